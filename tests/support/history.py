"""Which point of an estimate history goes when it is full."""

from __future__ import annotations

from collections.abc import Sequence


def point_to_drop(times_ms: Sequence[int]) -> int:
    """Return the position of the inner point whose neighbours are closest to each other, the first of several.

    >>> point_to_drop([0, 10, 11, 20])
    2
    """
    return min(range(1, len(times_ms) - 1), key=lambda i: times_ms[i + 1] - times_ms[i - 1])
