"""Times for tests: a clock that is moved by hand, and an expiry that no test reaches."""

from __future__ import annotations

from producers.clock import system_clock


class ManualClock:
    """A clock that moves only when it is told to.

    >>> clock = ManualClock(1_000)
    >>> clock.sleep(0.5)
    >>> clock()
    1500
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        """Return the time the hands show."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move the hands forward."""
        if milliseconds < 0:
            raise ValueError(f"time goes forward only; got {milliseconds} ms")
        self._now_ms += milliseconds

    def sleep(self, seconds: float) -> None:
        """Move the hands forward instead of waiting."""
        self.advance(round(seconds * 1_000))


def later() -> int:
    """Return a time an hour from now, for keys that must not expire during a test."""
    return system_clock() + 3_600_000
