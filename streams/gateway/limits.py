"""What one sender, and all together, may take: bytes in memory, reports per second."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

BURST_SECONDS: Final = 10
"""A sender that was quiet may send what it may send in this time at once. Smaller: a phone that comes out of a tunnel
is told to wait; larger: a short flood passes."""
MOST_SENDERS: Final = 65_536
"""Senders that are remembered, the latest. More: memory that strangers can fill."""


class Memory:
    """Bytes of requests that are not answered yet. What does not fit is told to come again."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.held_bytes = limit_bytes, 0

    def take(self, size: int) -> bool:
        """Take so many bytes; False, and nothing taken, if they do not fit."""
        if self.held_bytes + size > self.limit_bytes:
            return False
        self.held_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Give bytes back."""
        self.held_bytes -= size


class Rates:
    """Reports per second by sender. Only the level of each is known, no moment of a request beyond the last one.

    A sender may go into debt once, so that a request of any allowed size passes, and then waits until it is paid.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._levels: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, sender: bytes, reports: int, rate: int) -> float:
        """Count reports of a sender that may send `rate` a second and return 0; or return how long it must wait."""
        if rate == 0:
            return 0.0
        now = self._time()
        level, since = self._levels.pop(sender, (float(rate * BURST_SECONDS), now))
        level = min(level + (now - since) * rate, rate * BURST_SECONDS)
        passes = level > 0
        self._levels[sender] = (level - reports if passes else level, now)
        while len(self._levels) > MOST_SENDERS:
            self._levels.popitem(last=False)
        return 0.0 if passes else (1 - level) / rate
