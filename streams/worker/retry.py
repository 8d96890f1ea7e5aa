"""Waiting for a store that does not answer, up to a limit, and the request to restart when it is reached."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from producers.clock import Clock, system_clock
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

EXIT_RESTART: Final = 75
"""Exit status for a failure that a restart cures: the supervisor starts the worker again."""

PATIENCE_SECONDS: Final = 120.0
"""How long a batch waits for a store that does not answer before the worker exits."""
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 0.25
_WARN_EVERY_MS: Final = 10_000

_Result = TypeVar("_Result")


class RestartRequired(Exception):  # noqa: N818  # a request to the supervisor, not an error of the program
    """The worker must exit with status 75 without acknowledging; the next one reads the batch again."""

    status = EXIT_RESTART


class StoreRetry:
    """Repeats calls of the store with backoff while it is unavailable.

    Args:
        clock: the time, in ms.
        sleep: waits for some seconds.
        stopping: tells whether the worker was asked to stop; checked while waiting.
        patience_seconds: how long one call may take with all its retries.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        stopping: Callable[[], bool] = lambda: False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._clock, self._sleep, self._stopping = clock, sleep, stopping
        self._patience_seconds = patience_seconds

    def __call__(self, action: Callable[[], _Result]) -> _Result:
        """Return the result of the first call that the store answers.

        Raises:
            RestartRequired: it did not answer in time, or the worker was asked to stop.
        """
        deadline_ms = self._clock() + round(self._patience_seconds * 1_000)
        wait_seconds, warned_ms = _FIRST_WAIT_SECONDS, 0
        while True:
            try:
                result = action()
            except StoreUnavailableError as error:
                now_ms = self._clock()
                if self._stopping() or now_ms >= deadline_ms:
                    raise RestartRequired(f"the last batch was not stored and stays in Kafka: {error}") from error
                if now_ms - warned_ms >= _WARN_EVERY_MS:
                    logger.warning("%s; retrying, last batch not acknowledged", error)
                    warned_ms = now_ms
                self._wait(wait_seconds * random.uniform(0.5, 1.0))
                wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
            else:
                if warned_ms:
                    logger.warning("the store answers again")
                return result

    def _wait(self, seconds: float) -> None:
        while seconds > 0 and not self._stopping():
            slept = min(seconds, _WATCH_SECONDS)
            self._sleep(slept)
            seconds -= slept
