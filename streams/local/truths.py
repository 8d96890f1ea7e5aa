"""The truth of a simulated fleet on its way to Redis: a Redis that is down or hangs delays no report."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from producers.simulation.run import Truths
from streams.logs import FailureLog, StateLog
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
LIMIT: Final = 10_000
"""Blocks of windows that wait at most; beyond it the oldest are dropped. More: memory during a long outage. Fewer: the
page lacks the truth of windows that settled during it."""

_Place = tuple[str, int, str]


class PatientTruths:
    """`Truths` that write to others in a thread of its own, again and again until Redis has everything.

    Of each block only the newest truth waits. Use as a context manager: leaving it gives the rest `close_seconds`.
    """

    def __init__(self, truths: Truths, *, close_seconds: float = 3.0) -> None:
        self._truths, self._close_seconds = truths, close_seconds
        self._state = StateLog(logger, "Redis (for the simulated truth; reports are sent all the same)")
        self._failures = FailureLog(logger, "writing the simulated truth")
        self._changed = threading.Condition()
        self._waiting: dict[_Place, dict[str, Any]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="truths", daemon=True)
        self._thread.start()

    def __enter__(self) -> PatientTruths:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(self._close_seconds)
        if self._waiting:
            logger.warning("the truth of %d blocks of windows did not reach Redis", len(self._waiting))

    def post(self, survey_id: str, window_ms: int, part: str, truth: dict[str, Any]) -> None:
        """Hand over one part of the truth of a window; it replaces what waits of the same part."""
        with self._changed:
            place = survey_id, window_ms, part
            self._waiting.pop(place, None)
            self._waiting[place] = truth
            if len(self._waiting) > LIMIT:
                del self._waiting[next(iter(self._waiting))]
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    return
                place, truth = next(iter(self._waiting.items()))
            try:
                self._truths.post(*place, truth)
            except StoreUnavailableError as error:
                self._state.down(error)
                with self._changed:
                    # One that is refused by itself must not keep the others waiting.
                    if self._waiting.get(place) is truth:
                        self._waiting[place] = self._waiting.pop(place)
                    if self._changed.wait_for(lambda: self._closed, RETRY_SECONDS):
                        return
                continue
            except Exception as error:
                self._failures.met(error)  # this truth is left out
            else:
                self._state.up()
            with self._changed:
                if self._waiting.get(place) is truth:
                    del self._waiting[place]
