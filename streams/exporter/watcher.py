"""Reads the store once a second, in one thread, for everybody: metrics, health, alerts and the event stream.

A request never waits for the store to say how it is: it gets what was seen last, and whether that is still so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from streams.exporter.api import Health
from streams.exporter.reader import Reader, Snapshot
from streams.exporter.views import Views
from streams.logs import StateLog
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
OVERDUE_SECONDS: Final = 10.0
"""A look that takes longer means that the store does not answer in time. A store that hangs fails each read after its
own time-out, which is shorter; this is for one that answers every read, slowly. Shorter: a busy machine looks down."""
FIRST_SECONDS: Final = 1.0
"""How long the start waits for the first look, so that the first answers are not `unknown`."""


@dataclass(frozen=True)
class Seen:
    """What one look found."""

    number: int
    """Counts looks; 0 before the first."""
    health: Health
    snapshot: Snapshot | None
    """None while the store does not answer."""
    error: str = ""

    def current(self) -> Snapshot:
        """Return the snapshot.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        if self.snapshot is None:
            raise StoreUnavailableError(self.error)
        return self.snapshot


class Watcher:
    """Looks at the store until it is cancelled. Its methods, but for `seen`, belong to the event loop."""

    def __init__(self, reader: Reader, views: Views) -> None:
        self._reader, self._views = reader, views
        self._pool = ThreadPoolExecutor(1, "watcher")
        self._log = StateLog(logger, "Redis")
        self._failure: type[Exception] | None = None
        error = "Redis was not read yet: the exporter has just started."
        self._seen = Seen(0, views.no_health(error, store="unknown"), None, error)
        self._looked = asyncio.Event()
        self._started: float | None = None
        self._time: Callable[[], float] | None = None

    def seen(self) -> Seen:
        """Return what was seen last; a look that takes too long means that the store does not answer."""
        seen, started = self._seen, self._started
        if seen.snapshot is None or started is None or self._time is None or self._time() - started < OVERDUE_SECONDS:
            return seen
        error = f"reading it takes longer than {OVERDUE_SECONDS:.0f} s"
        return Seen(seen.number, self._views.no_health(error), None, error)

    async def after(self, number: int) -> Seen:
        """Wait for a look later than this one and return it."""
        while self._seen.number <= number:
            await self._looked.wait()
        return self._seen

    async def run(self) -> None:
        """Look once a second."""
        loop = asyncio.get_running_loop()
        self._time = loop.time
        while True:
            self._started = started = loop.time()
            self._seen = await loop.run_in_executor(self._pool, self._look, self._seen.number + 1)
            self._started = None
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.sleep(max(LOOK_SECONDS - (loop.time() - started), LOOK_SECONDS / 4))

    def close(self) -> None:
        """Let the thread end after its present look."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look(self, number: int) -> Seen:
        try:
            snapshot = self._reader.snapshot()
            health = self._views.health(snapshot)
        except StoreUnavailableError as error:
            self._log.down(error)
            return Seen(number, self._views.no_health(str(error)), None, str(error))
        except Exception as error:
            # What cannot be read must not end the looks: the operator would see old numbers for ever.
            reason = f"what it holds cannot be read: {error}"
            if type(error) is not self._failure:
                logger.exception("reading the store failed")
            self._failure = type(error)
            self._log.down(reason)
            return Seen(number, self._views.no_health(reason), None, reason)
        self._log.up()
        self._failure = None
        return Seen(number, health, snapshot)
