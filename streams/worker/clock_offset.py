"""How far the clock of this machine is from the broker's, from records alone.

A record that lies behind an end that was asked for came after the question, and it was read after it came. So its
timestamp, which the broker's clock gave, belongs to a moment between the two; consumer lag is not mistaken for a wrong
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

_ENDS_KEPT: Final = 200


class ClockOffset:
    """Estimates the offset; positive if this machine's clock is ahead."""

    def __init__(self) -> None:
        self._ends: dict[int, deque[tuple[int, int]]] = {}

    def asked(self, ends: Mapping[int, int], asked_ms: int) -> None:
        """Take note of the ends of partitions that were asked for at this time of the local clock."""
        for partition, end in ends.items():
            self._ends.setdefault(partition, deque(maxlen=_ENDS_KEPT)).append((end, asked_ms))

    def of(self, partition: int, offset: int, timestamp_ms: int, now_ms: int) -> int | None:
        """Return the offset of the clock nearest to 0 that a record which was just read allows; None if any is.

        >>> clock = ClockOffset()
        >>> clock.asked({0: 10}, 1_000_000)
        >>> clock.of(0, 10, 940_000, 1_002_000), clock.of(0, 9, 940_000, 1_002_000)
        (60000, None)
        >>> clock.of(0, 11, 1_090_000, 1_002_000)
        -88000
        """
        latest_ms = now_ms - timestamp_ms
        if latest_ms < 0:
            return latest_ms
        ends = self._ends.get(partition, ())
        # A copy: the ends come from another thread.
        earliest_ms = next((asked_ms for end, asked_ms in reversed(list(ends)) if end <= offset), None)
        return None if earliest_ms is None else max(0, earliest_ms - timestamp_ms)
