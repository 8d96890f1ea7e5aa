"""Latency from the emission of a frame to a stored estimate that contains it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

MAX_PENDING = 100_000
"""Frames waiting for their estimate. More: memory while Redis or Kafka is down. Fewer: gaps in the histogram then."""


class Emission(NamedTuple):
    """Frames of one window: when they were sent and when they were applied, both in ms, and how many there were."""

    sent_ms: int
    applied_ms: int
    frames: int


class Latencies:
    """Frames applied here that wait for an estimate of any worker. Safe for several threads."""

    def __init__(self, *, limit: int = MAX_PENDING) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._pending: dict[tuple[str, int], deque[Emission]] = {}
        self._size = 0
        self._frames_noted = 0

    @property
    def frames_noted(self) -> int:
        """Number of frames that were noted so far."""
        return self._frames_noted

    def applied(self, window: tuple[str, int], sent_ms: Iterable[tuple[int, int]], applied_ms: int) -> None:
        """Note frames of a window as (sent_ms, number of frames) pairs."""
        with self._lock:
            waiting = self._pending.setdefault(window, deque())
            for moment, frames in sent_ms:
                self._frames_noted += frames
                if self._size >= self._limit:
                    self._size -= len(self._pending.pop(next(iter(self._pending))))
                    waiting = self._pending.setdefault(window, deque())
                waiting.append(Emission(moment, applied_ms, frames))
                self._size += 1

    def windows(self) -> list[tuple[str, int]]:
        """Return the windows that have frames waiting."""
        with self._lock:
            return [window for window, waiting in self._pending.items() if waiting]

    def settle(self, window: tuple[str, int], read_ms: int) -> list[Emission]:
        """Take out the frames that an estimate contains whose counts were read at `read_ms`."""
        with self._lock:
            waiting = self._pending.get(window)
            if waiting is None:
                return []
            done = []
            while waiting and waiting[0].applied_ms <= read_ms:
                done.append(waiting.popleft())
            self._size -= len(done)
            if not waiting:
                del self._pending[window]
            return done

    def forget(self, window: tuple[str, int]) -> None:
        """Drop a window that will never be estimated."""
        with self._lock:
            self._size -= len(self._pending.pop(window, ()))
