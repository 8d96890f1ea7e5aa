"""How old the oldest record is that was not counted, also while the thread that counts waits for the store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from prometheus_client import Gauge

from producers.clock import Clock
from streams.kafka.messages import FetchBatch, Lag
from streams.worker.driver import LAG_SECONDS

UNWATCHED_MS: Final = round(3_000 * LAG_SECONDS)
"""A partition at which nobody looked for longer than this may have unread records. Shorter: one late look shows as a
lag; longer: windows are called settled for longer while nothing is counted."""


class LagAges:
    """Ages by partition, as a gauge that is asked for whenever somebody looks.

    Unread records are younger than the last one read, and younger than the last moment at which none was unread. Before
    the first was read, the time since the partition was assigned is all that is known. The same holds for records in
    hand, which a store that refuses them can hold up for minutes, and which are as old as the first of them: on a topic
    with CreateTime that is what a device claims. And the same holds for a partition of which nobody could tell how much
    of it was read: since the thread that counts waits for the store with nothing in hand, or since no broker answers.

    Args:
        gauge: the metric.
        clock: the time, in ms.
        named: what stands before the number of a partition in its label.
    """

    def __init__(self, gauge: Gauge, clock: Clock, *, named: str = "") -> None:
        self._gauge, self._clock, self._named = gauge, clock, named
        self._read_until_ms: dict[int, int] = {}
        self._watched_ms: dict[int, int] = {}
        self._unread_since_ms: dict[int, int] = {}
        self._in_hand_ms: dict[int, int] = {}
        self._looked_ms: dict[int, int] = {}
        self._untold: set[int] = set()

    def assigned(self, partition: int) -> None:
        """Take note of a partition that will be read from now on: the store may hold that up before the first look."""
        self._watched_ms.setdefault(partition, self._clock())
        if partition not in self._looked_ms:
            self._looked_ms[partition] = self._clock()
            self._untold.add(partition)
        self._gauge.labels(f"{self._named}{partition}").set_function(partial(self._seconds, partition))

    def watch(self, partition: int, lag: Lag) -> None:
        """Take note of how many records of a partition were not read yet."""
        if not lag.records:
            self._note_read(partition, self._clock())
            self._unread_since_ms.pop(partition, None)
        else:
            self._unread_since_ms[partition] = self._known_since(partition)
        self._looked(partition)

    def begin(self, batches: Sequence[FetchBatch]) -> None:
        """Take note of batches that are being counted from now on."""
        self._in_hand_ms = {
            batch.partition: max(batch.records[0].timestamp_ms, self._known_since(batch.partition))
            for batch in reversed(batches)
            if batch.records
        }

    def end(self, batches: Sequence[FetchBatch]) -> None:
        """Take note that these batches were counted."""
        self._in_hand_ms = {}
        for batch in batches:
            if batch.records:
                self._note_read(batch.partition, batch.records[-1].timestamp_ms)
            self._looked(batch.partition)

    def clock_was_set(self) -> None:
        """Forget moments of the clock as it was before; until more is known, nothing is old."""
        for known in self._moments:
            known.clear()

    def forget(self, partition: int) -> None:
        """Take note of a partition that went elsewhere."""
        self._gauge.remove(f"{self._named}{partition}")
        self._untold.discard(partition)
        for known in self._moments:
            known.pop(partition, None)

    @property
    def _moments(self) -> Sequence[dict[int, int]]:
        return self._read_until_ms, self._watched_ms, self._unread_since_ms, self._looked_ms

    def _seconds(self, partition: int) -> float:
        now_ms, looked_ms = self._clock(), self._looked_ms.get(partition)
        known = [since.get(partition) for since in (self._unread_since_ms, self._in_hand_ms)]
        if looked_ms is not None and now_ms - looked_ms > UNWATCHED_MS:
            known.append(looked_ms)
        since_ms = [moment for moment in known if moment is not None]
        if since_ms:
            return max(0, now_ms - min(since_ms)) / 1_000
        return math.nan if partition in self._untold else 0.0

    def _looked(self, partition: int) -> None:
        self._looked_ms[partition] = self._clock()
        self._untold.discard(partition)

    def _known_since(self, partition: int) -> int:
        return self._read_until_ms.get(partition, self._watched_ms.setdefault(partition, self._clock()))

    def _note_read(self, partition: int, time_ms: int) -> None:
        self._read_until_ms[partition] = max(time_ms, self._read_until_ms.get(partition, 0))
