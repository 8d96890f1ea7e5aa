"""How long queued windows have waited for an estimate, as one worker sees it.

The queue only tells when a window last changed: one that changes all the time would never seem to wait.
"""

from __future__ import annotations

from collections.abc import Iterable

Window = tuple[str, int]


class Waiting:
    """Since when each queued window waits: since this worker first saw it, or since its last turn."""

    def __init__(self) -> None:
        self._since_ms: dict[Window, int] = {}
        self._longest_ms = 0

    def look(self, queued: Iterable[Window], now_ms: int) -> None:
        """Take note of all windows that wait now; begin to measure anew."""
        self._since_ms = {window: self._since_ms.get(window, now_ms) for window in queued}
        self._longest_ms = 0

    def since_ms(self, window: Window) -> int:
        """Return since when a window waits."""
        return self._since_ms[window]

    def taken(self, window: Window, now_ms: int) -> None:
        """Note that a window has its turn now, with this worker or another one."""
        self._longest_ms = max(self._longest_ms, now_ms - self._since_ms.pop(window, now_ms))

    def longest_ms(self, still: Iterable[Window], now_ms: int) -> int:
        """Return the longest wait of the windows taken since the last look, and of those that still wait."""
        left = (now_ms - self._since_ms[window] for window in still if window in self._since_ms)
        return max(self._longest_ms, max(left, default=0))
