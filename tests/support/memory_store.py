"""The store in memory: the same guarantees as Redis for as long as the process lives, and a way to lose a second.

It keeps what the Redis store keeps, in the same form, and takes the same patches, so that a test on one says something
about the other.
"""

from __future__ import annotations

import copy
import itertools
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from estimators.tally import Tally
from producers.clock import Clock, system_clock
from producers.wire.shards import partition_of
from streams.store import log_content
from streams.store.contract import (
    HISTORY_POINTS,
    NO_STAMP,
    STAMP_BYTES,
    Change,
    Outcome,
    QueuedWindow,
    Seen,
    ShardBatch,
    Shortened,
    StoreCorruptError,
)
from streams.store.counters import Counters
from streams.store.ladders import fitted, refuse_longer
from streams.store.log_content import Content, FoldEntries, Loaded, LogContent, pieces_of
from streams.store.shape import KEEP_MS, Key, Shape
from streams.store.shard_counts import ShardCounts
from tests.support.history import point_to_drop
from tests.support.memory_state import RECOMPUTE, Log, Shared, State, holds


@dataclass(frozen=True)
class Snapshot:
    """All that a store held at one moment."""

    state: State


class MemoryReportLog:
    """A `ReportLog` in memory."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def load(
        self, keys: Sequence[Key], shape: Shape, fold: FoldEntries[Content], *, whole: bool = False
    ) -> dict[Key, Loaded[Content]]:
        loaded, unreadable, readable, reason = {}, {}, {}, ""
        with self._shared.mutex:
            self._shared.forget_expired()
            for key in keys:
                log = self._shared.state.logs.get(key, Log())
                entries = b"".join(log.segments)
                refuse_longer(bytes(log.tally), shape, str(key))
                try:
                    content = fold(shape, entries)
                except ValueError as error:
                    unreadable[key], reason = Seen(log.stamp, len(log.segments)), f"{key}: {error}"
                    continue
                expected, told = content.tally().to_bytes(), entries if whole else None
                size = len(log.segments), len(entries) // shape.entry_bytes
                if log.segments and log.tally != expected:
                    if len(log.tally) == len(expected) and log.tally[:4] == expected[:4]:
                        unreadable[key], readable[key] = Seen(log.stamp, len(log.segments)), content
                        reason = f"{key}: its tally is that of other entries"
                        continue
                    log.stamp, log.tally = secrets.token_bytes(STAMP_BYTES), bytearray(expected)
                    loaded[key] = Loaded(log.stamp, *size, content, repaired=True, whole=told)
                    continue
                loaded[key] = Loaded(log.stamp, *size, content, whole=told)
        if unreadable:
            raise StoreCorruptError(reason, unreadable, readable)
        return loaded

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        with self._shared.mutex:
            return {shard: self._shared.state.offsets.get((topic, partition, shard), 0) for shard in shards}

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        with self._shared.mutex:
            self._shared.forget_expired()
            return [self._apply(batch) for batch in batches]

    def _apply(self, batch: ShardBatch) -> Outcome:
        place = batch.topic, batch.partition, batch.shard
        stored = self._shared.state.offsets.get(place, 0)
        if stored < batch.last_offset:
            return Outcome(frozenset(), {}, regressed_to=stored)
        contended: set[Key] = set()
        stamps: dict[Key, bytes] = {}
        for change in batch.changes:
            log = self._shared.state.logs.get(change.key)
            if (log.stamp if log else NO_STAMP) != change.stamp:
                contended.add(change.key)
                continue
            stamps[change.key] = self._change(change, log or Log(), batch.limit)
        if not contended and batch.next_offset > stored:
            self._shared.state.offsets[place] = batch.next_offset
        return Outcome(frozenset(contended), stamps)

    def _change(self, change: Change, log: Log, limit: int | None) -> bytes:
        state, survey_id = self._shared.state, change.key.survey_id
        counted = change.counters if change.entries else replace(change.counters, applied=0)
        if change.entries:
            if limit is None:
                log.limit = None
            elif limit and (log.limit is not None or not log.segments):
                log.limit = max(log.limit or 0, limit)
            if change.rewrite:
                log.segments.clear()
            log.segments += pieces_of(change.entries, change.shape.entry_bytes)
            for position, raw in change.patches:
                log.tally[position : position + len(raw)] = raw
            log.stamp = secrets.token_bytes(STAMP_BYTES)
        log.counters += counted
        state.totals[survey_id] = state.totals.get(survey_id, Counters()) + counted
        by_shard = state.shard_totals.setdefault(survey_id, [0] * change.shape.shards)
        by_shard[change.key.shard] += counted.counted
        log.expires_ms = change.shape.expires_ms(change.key.window_ms)
        if log.segments and log.expires_ms > self._shared.clock():
            state.logs[change.key] = log
        else:
            state.logs.pop(change.key, None)
        return log.stamp

    def seen(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        with self._shared.mutex:
            self._shared.forget_expired()
            logs = {key: self._shared.state.logs.get(key, Log()) for key in keys}
            return {key: Seen(log.stamp, len(log.segments)) for key, log in logs.items()}

    def replace(self, key: Key, seen: Seen, content: LogContent, *, limit: int | None = None) -> bool:
        with self._shared.mutex:
            if self.seen([key])[key] != seen:
                return False
            log = self._shared.state.logs.pop(key, Log())
            log.segments = pieces_of(content.live(), content.shape.entry_bytes)
            log.tally = bytearray(content.tally().to_bytes())
            log.limit = limit
            log.stamp, log.expires_ms = secrets.token_bytes(STAMP_BYTES), content.shape.expires_ms(key.window_ms)
            if len(content):
                self._shared.state.logs[key] = log
            return True

    def shorten(self, key: Key, seen: Seen, keep: Callable[[bytes], bytes], shape: Shape) -> Shortened | None:
        with self._shared.mutex:
            if self.seen([key])[key] != seen:
                return None
            log = self._shared.state.logs[key]
            sizes = list(itertools.accumulate(map(len, log.segments)))
            count = max(1, sum(size <= log_content.PIECE_BYTES for size in sizes))
            oldest = b"".join(log.segments[:count])
            kept = keep(oldest)
            log.segments = log.segments[count:] + ([kept] if kept else [])
            log.stamp = secrets.token_bytes(STAMP_BYTES)
            return Shortened(log.stamp, len(log.segments), (len(oldest) - len(kept)) // shape.entry_bytes)

    def set_aside(self, key: Key, seen: Seen) -> bool:
        with self._shared.mutex:
            same = self.seen([key])[key] == seen
            if same:
                del self._shared.state.logs[key]
            return same

    def distrust(self, key: Key, seen: Seen) -> bool:
        with self._shared.mutex:
            same = self.seen([key])[key] == seen
            if same:
                log = self._shared.state.logs[key]
                log.stamp, log.tally = secrets.token_bytes(STAMP_BYTES), bytearray()
            return same

    def count(self, survey_id: str, window_ms: int | None, counters: Counters, expires_ms: int) -> None:
        with self._shared.mutex:
            refused = self._shared.state.refused
            kept, _ = refused.get((survey_id, None), (Counters(), 0))
            refused[survey_id, None] = kept + counters, self._shared.clock() + KEEP_MS
            if window_ms is not None:
                kept, _ = refused.get((survey_id, window_ms), (Counters(), 0))
                refused[survey_id, window_ms] = kept + counters, expires_ms
            self._shared.forget_expired()

    def counters(self, survey_id: str, window_ms: int | None = None) -> Counters:
        with self._shared.mutex:
            self._shared.forget_expired()
            state = self._shared.state
            counted, _ = state.refused.get((survey_id, window_ms), (Counters(), 0))
            if window_ms is None:
                return counted + state.totals.get(survey_id, Counters())
            logs = [log for key, log in state.logs.items() if key[:2] == (survey_id, window_ms)]
            return sum((log.counters for log in logs), counted)

    def shard_reports(self, survey_id: str) -> list[int]:
        with self._shared.mutex:
            return list(self._shared.state.shard_totals.get(survey_id, ()))


class MemoryWindowQueue:
    """A `WindowQueue` in memory."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared, self._name = shared, name

    @property
    def _queue(self) -> dict[tuple[str, int], float]:
        return self._shared.state.queues.setdefault(self._name, {})

    def put(self, windows: Iterable[tuple[str, int]]) -> None:
        with self._shared.mutex:
            now_us, queue = self._shared.clock() * 1_000, self._queue
            for window in windows:
                queue[window] = float(max(now_us, queue.get(window, 0.0) + 1))

    def entries(self) -> list[QueuedWindow]:
        with self._shared.mutex:
            queued = [QueuedWindow(*window, score) for window, score in self._queue.items()]
        return sorted(queued, key=lambda window: (window.score, window.survey_id, window.window_ms))

    def remove(self, window: QueuedWindow) -> bool:
        with self._shared.mutex:
            same = self._queue.get((window.survey_id, window.window_ms)) == window.score
            if same:
                del self._queue[window.survey_id, window.window_ms]
            return same

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        with self._shared.mutex:
            self._shared.forget_expired()
            if (survey_id, window_ms, self._name) in self._shared.state.locks:
                return None
            secret = secrets.token_bytes(STAMP_BYTES)
            self._shared.state.locks[survey_id, window_ms, self._name] = secret, self._shared.clock() + ttl_ms
            return secret

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        with self._shared.mutex:
            if holds(self._shared, survey_id, window_ms, secret, self._name):
                del self._shared.state.locks[survey_id, window_ms, self._name]


class MemoryRecomputeQueue(MemoryWindowQueue):
    """A `RecomputeQueue` in memory."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared, RECOMPUTE)

    def put_after_restart(self, for_ms: int | None = None) -> int:  # noqa: ARG002  # always in time
        with self._shared.mutex:
            if not self._shared.restarted:
                return 0
            self._shared.forget_expired()
            windows = {(key.survey_id, key.window_ms) for key in self._shared.state.logs}
            self.put(windows)
            self._shared.restarted = False
            return len(windows)


class MemoryEstimates:
    """An `EstimateStore` in memory."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        found = self.counts(survey_id, window_ms, replace(shape, shards=shards), topic="", partitions=1)
        return sum((shard.tally for shard in found), Tally.empty(shape.rungs, shape.groups, shape.size))

    def counts(
        self,
        survey_id: str,
        window_ms: int,
        shape: Shape,
        *,
        topic: str,
        partitions: int,
        known: Sequence[bytes] | None = None,
    ) -> list[ShardCounts]:
        found, unreadable, reason = list[ShardCounts](), dict[Key, Seen](), ""
        empty = Tally.empty(shape.rungs, shape.groups, shape.size)
        with self._shared.mutex:
            self._shared.forget_expired()
            for shard in range(shape.shards):
                log = self._shared.state.logs.get(Key(survey_id, window_ms, shard), Log())
                offset = self._shared.state.offsets.get((topic, partition_of(shard, partitions), shard), 0)
                entries = b"".join(log.segments) if known is not None and known[shard] != log.stamp else None
                try:
                    tally = fitted(bytes(log.tally), shape, f"{survey_id}, shard {shard}") if log.segments else empty
                    found.append(ShardCounts(tally, log.stamp, offset, log.limit, entries))
                except ValueError as error:
                    unreadable[Key(survey_id, window_ms, shard)], reason = Seen(log.stamp, 0), str(error)
        if unreadable:
            raise StoreCorruptError(reason, unreadable)
        return found

    def save(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        with self._shared.mutex:
            if not holds(self._shared, survey_id, window_ms, secret, RECOMPUTE):
                return False
            self._shared.state.estimates[survey_id, window_ms] = payload, expires_ms
            if point:
                history, _ = self._shared.state.histories.get((survey_id, window_ms), ([], 0))
                history.append(point)
                if len(history) > HISTORY_POINTS:
                    del history[point_to_drop([int(kept.split(b" ", 1)[0]) for kept in history])]
                self._shared.state.histories[survey_id, window_ms] = history, expires_ms
            return True

    def read(self, survey_id: str, window_ms: int) -> bytes | None:
        with self._shared.mutex:
            self._shared.forget_expired()
            return self._shared.state.estimates.get((survey_id, window_ms), (None, 0))[0]

    def read_many(self, windows: Sequence[tuple[str, int]]) -> list[bytes | None]:
        return [self.read(*window) for window in windows]

    def history(self, survey_id: str, window_ms: int) -> list[bytes]:
        with self._shared.mutex:
            self._shared.forget_expired()
            return list(self._shared.state.histories.get((survey_id, window_ms), ([], 0))[0])

    def window_starts(self, survey_id: str) -> list[int]:
        with self._shared.mutex:
            self._shared.forget_expired()
            return sorted(window_ms for name, window_ms in self._shared.state.estimates if name == survey_id)


class MemorySmallStates:
    """`SmallStates` in memory."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def get(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        with self._shared.mutex:
            self._shared.forget_expired()
            return self._shared.state.states.get((survey_id, name, window_ms), (b"", 0))[0]

    def swap(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        with self._shared.mutex:
            if self.get(survey_id, name, window_ms) != expected:
                return False
            self._shared.state.states[survey_id, name, window_ms] = new, expires_ms
            return True


class MemoryStore:
    """A `Store` for tests and simulations; safe for several threads."""

    def __init__(self, clock: Clock = system_clock, *, log: type[MemoryReportLog] = MemoryReportLog) -> None:
        self._shared = Shared(clock)
        self.log = log(self._shared)
        self.queue = MemoryRecomputeQueue(self._shared)
        self.unreadable = MemoryWindowQueue(self._shared, "unreadable")
        self.estimates = MemoryEstimates(self._shared)
        self.states = MemorySmallStates(self._shared)

    def now_ms(self) -> int:
        return self._shared.clock()

    def segments(self, key: Key) -> list[bytes]:
        """Return the segments of a report log, to be damaged."""
        return self._shared.state.logs[key].segments

    def stored_tally(self, key: Key) -> bytearray:
        """Return the stored tally of a report log, to be damaged."""
        return self._shared.state.logs[key].tally

    def snapshot(self) -> Snapshot:
        """Return a copy of everything."""
        with self._shared.mutex:
            return Snapshot(copy.deepcopy(self._shared.state))

    def restore(self, snapshot: Snapshot) -> None:
        """Lose all writes since the snapshot, as Redis does when a power cut takes the end of its append-only file."""
        with self._shared.mutex:
            self._shared.state = copy.deepcopy(snapshot.state)
            self._shared.restarted = True
