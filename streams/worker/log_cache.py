"""Cached report logs, the least recently used first; sizes and times of expiry are kept as they change.

Looking at every log after every batch costs more than counting it when many windows are open.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator

from streams.store.shape import Key, Shape
from streams.worker.fold import Cached

Window = tuple[str, int]


class LogCache:
    """Logs by key. May be dropped at any time, so that a bound is all that its memory needs."""

    def __init__(self) -> None:
        self._logs: OrderedDict[Key, Cached] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._bytes = 0
        self._shards: defaultdict[Window, set[int]] = defaultdict(set)
        self._expires_ms: dict[Window, int] = {}
        self._first_ms: int | None = None
        """The earliest moment at which a window may be gone; None: none is known."""

    def __contains__(self, key: Key) -> bool:
        """Tell whether a log is cached."""
        return key in self._logs

    def fits(self, key: Key, shape: Shape) -> bool:
        """Tell whether a log is cached, with all rungs of its survey: a ladder may grow."""
        return key in self._logs and self._logs[key].table.shape.rungs == shape.rungs

    def __iter__(self) -> Iterator[Key]:
        """Yield all keys, the least recently used first."""
        return iter(self._logs)

    @property
    def nbytes(self) -> int:
        """Memory of the cached logs."""
        return self._bytes

    def used(self, key: Key) -> Cached:
        """Return a log and take note of its use."""
        self._logs.move_to_end(key)
        return self._logs[key]

    def put(self, key: Key, cached: Cached) -> None:
        """Add or replace a log."""
        self._logs[key] = cached
        self._weigh(key, cached.table.nbytes)
        window = key.survey_id, key.window_ms
        self._shards[window].add(key.shard)
        self._expires_ms[window] = expires_ms = cached.table.shape.expires_ms(key.window_ms)
        self._first_ms = expires_ms if self._first_ms is None else min(self._first_ms, expires_ms)

    def weigh(self, keys: Iterable[Key]) -> None:
        """Take note of how large logs are that were folded into."""
        for key in keys:
            if (cached := self._logs.get(key)) is not None:
                self._weigh(key, cached.table.nbytes)

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop logs, and pass over those that are not there."""
        for key in keys:
            if self._logs.pop(key, None) is not None:
                self._bytes -= self._sizes.pop(key)
                window = key.survey_id, key.window_ms
                self._shards[window].discard(key.shard)
                if not self._shards[window]:
                    del self._shards[window], self._expires_ms[window]

    def clear(self) -> None:
        """Drop all logs."""
        self.__init__()  # type: ignore[misc]  # the state of a new one

    def evict(self, now_ms: int, most_bytes: int) -> None:
        """Drop logs of windows that are gone, and the least recently used ones beyond a size."""
        if self._first_ms is not None and self._first_ms <= now_ms:
            gone = [window for window, expires_ms in self._expires_ms.items() if expires_ms <= now_ms]
            self.forget([Key(*window, shard) for window in gone for shard in self._shards[window]])
            self._first_ms = min(self._expires_ms.values(), default=None)
        while self._logs and self._bytes > most_bytes:
            self.forget([next(iter(self._logs))])

    def _weigh(self, key: Key, size: int) -> None:
        self._bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
