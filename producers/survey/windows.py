"""Time windows: half-open intervals of integer milliseconds, found by integer division."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Windows:
    """Windows [start, start + size_ms) whose starts are the multiples of step_ms since the epoch.

    >>> list(Windows(60_000, 60_000).starts(60_000))
    [60000]
    >>> list(Windows(60_000, 20_000).starts(60_000))
    [20000, 40000, 60000]
    """

    size_ms: int
    step_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= self.size_ms:
            raise ValueError(
                f"windows need 0 < step <= size, otherwise some moments belong to none; got step {self.step_ms} ms and "
                f"size {self.size_ms} ms"
            )

    def starts(self, time_ms: int) -> range:
        """Return the starts of the windows that contain time_ms, oldest first."""
        oldest = ((time_ms - self.size_ms) // self.step_ms + 1) * self.step_ms
        return range(oldest, time_ms + 1, self.step_ms)

    def latest(self, time_ms: int) -> int:
        """Return the start of the youngest window that contains time_ms."""
        return time_ms // self.step_ms * self.step_ms

    def end(self, start_ms: int) -> int:
        """Return the first millisecond after the window."""
        return start_ms + self.size_ms

    def is_start(self, start_ms: int) -> bool:
        """Tell whether a window starts there."""
        return start_ms % self.step_ms == 0
