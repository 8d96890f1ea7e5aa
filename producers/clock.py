"""The one place that reads the time: integer milliseconds since the epoch. Everywhere else the time is an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Gives the time in integer milliseconds since the epoch."""

    def __call__(self) -> int:
        """Return the time now."""
        ...


def system_clock() -> int:
    """Return the wall-clock time of this machine in integer milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
