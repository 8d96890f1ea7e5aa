"""The store in memory: the same guarantees as Redis for as long as the process lives, and a way to lose a second.

It keeps what the Redis store keeps, in the same form, and takes the same patches, so that a test on one says something
about the other.
"""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from estimators.tally import Tally
from producers.clock import Clock, system_clock
from streams.store.contract import (
    HISTORY_POINTS,
    NO_STAMP,
    STAMP_BYTES,
    Change,
    Content,
    FoldEntries,
    Loaded,
    LogContent,
    Outcome,
    QueuedWindow,
    Seen,
    ShardBatch,
    StoreCorruptError,
)
from streams.store.counters import Counters
from streams.store.shape import KEEP_MS, Key, Shape


@dataclass
class _Log:
    stamp: bytes = NO_STAMP
    segments: list[bytes] = field(default_factory=list)
    tally: bytearray = field(default_factory=bytearray)
    counters: Counters = field(default_factory=Counters)
    expires_ms: int = 0


@dataclass
class _State:
    logs: dict[Key, _Log] = field(default_factory=dict)
    offsets: dict[tuple[str, int, int], int] = field(default_factory=dict)
    totals: dict[str, Counters] = field(default_factory=dict)
    shard_totals: dict[str, list[int]] = field(default_factory=dict)
    states: dict[tuple[str, str, int | None], tuple[bytes, int]] = field(default_factory=dict)
    refused: dict[tuple[str, int | None], tuple[Counters, int]] = field(default_factory=dict)
    queues: dict[str, dict[tuple[str, int], float]] = field(default_factory=dict)
    locks: dict[tuple[str, int, str], tuple[bytes, int]] = field(default_factory=dict)
    estimates: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    histories: dict[tuple[str, int], tuple[list[bytes], int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """All that a store held at one moment."""

    state: _State


_RECOMPUTE = "windows"
"""Name of the recompute queue."""


class _Shared:
    """What the parts of one store share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.state = _State()
        self.mutex = threading.RLock()
        self.restarted = False

    def forget_expired(self) -> None:
        now_ms = self.clock()
        state = self.state
        state.logs = {key: log for key, log in state.logs.items() if log.expires_ms > now_ms}
        state.refused = {key: held for key, held in state.refused.items() if held[1] > now_ms}
        state.locks = {key: held for key, held in state.locks.items() if held[1] > now_ms}
        state.estimates = {key: held for key, held in state.estimates.items() if held[1] > now_ms}
        state.states = {key: held for key, held in state.states.items() if held[1] > now_ms}
        state.histories = {key: held for key, held in state.histories.items() if held[1] > now_ms}


class MemoryReportLog:
    """A `ReportLog` in memory."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    def load(self, keys: Sequence[Key], shape: Shape, fold: FoldEntries[Content]) -> dict[Key, Loaded[Content]]:
        loaded, unreadable, reason = {}, {}, ""
        with self._shared.mutex:
            self._shared.forget_expired()
            for key in keys:
                log = self._shared.state.logs.get(key, _Log())
                entries = b"".join(log.segments)
                try:
                    content = fold(shape, entries)
                except ValueError as error:
                    unreadable[key], reason = Seen(log.stamp, len(log.segments)), f"{key}: {error}"
                    continue
                expected = content.tally().to_bytes()
                if log.segments and log.tally != expected:
                    log.stamp, log.tally = secrets.token_bytes(STAMP_BYTES), bytearray(expected)
                loaded[key] = Loaded(log.stamp, entries, len(log.segments), content)
        if unreadable:
            raise StoreCorruptError(reason, unreadable)
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
            stamps[change.key] = self._change(change, log or _Log())
        if not contended and batch.next_offset > stored:
            self._shared.state.offsets[place] = batch.next_offset
        return Outcome(frozenset(contended), stamps)

    def _change(self, change: Change, log: _Log) -> bytes:
        state, survey_id = self._shared.state, change.key.survey_id
        counted = change.counters if change.entries else replace(change.counters, applied=0)
        if change.entries:
            if change.rewrite:
                log.segments.clear()
            log.segments.append(change.entries)
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
            logs = {key: self._shared.state.logs.get(key, _Log()) for key in keys}
            return {key: Seen(log.stamp, len(log.segments)) for key, log in logs.items()}

    def replace(self, key: Key, seen: Seen, content: LogContent) -> bool:
        with self._shared.mutex:
            if self.seen([key])[key] != seen:
                return False
            log = self._shared.state.logs.pop(key, _Log())
            log.segments, log.tally = [content.live()], bytearray(content.tally().to_bytes())
            log.stamp, log.expires_ms = secrets.token_bytes(STAMP_BYTES), content.shape.expires_ms(key.window_ms)
            if len(content):
                self._shared.state.logs[key] = log
            return True

    def set_aside(self, key: Key, seen: Seen) -> bool:
        with self._shared.mutex:
            same = self.seen([key])[key] == seen
            if same:
                del self._shared.state.logs[key]
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

    def __init__(self, shared: _Shared, name: str) -> None:
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
            if _holds(self._shared, survey_id, window_ms, secret, self._name):
                del self._shared.state.locks[survey_id, window_ms, self._name]


class MemoryRecomputeQueue(MemoryWindowQueue):
    """A `RecomputeQueue` in memory."""

    def __init__(self, shared: _Shared) -> None:
        super().__init__(shared, _RECOMPUTE)

    def put_after_restart(self, for_ms: int | None = None) -> int:  # noqa: ARG002  # always in time
        with self._shared.mutex:
            if not self._shared.restarted:
                return 0
            self._shared.forget_expired()
            windows = {(key.survey_id, key.window_ms) for key in self._shared.state.logs}
            self.put(windows)
            self._shared.restarted = False
            return len(windows)


def _holds(shared: _Shared, survey_id: str, window_ms: int, secret: bytes, queue: str) -> bool:
    shared.forget_expired()
    return shared.state.locks.get((survey_id, window_ms, queue), (None, 0))[0] == secret


class MemoryEstimates:
    """An `EstimateStore` in memory."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        total, unreadable, reason = Tally.empty(shape.rungs, shape.groups, shape.size), dict[Key, Seen](), ""
        with self._shared.mutex:
            self._shared.forget_expired()
            for shard in range(shards):
                log = self._shared.state.logs.get(Key(survey_id, window_ms, shard))
                if log is not None:
                    try:
                        total = total + Tally.from_bytes(bytes(log.tally))
                    except ValueError as error:
                        unreadable[Key(survey_id, window_ms, shard)], reason = Seen(log.stamp, 0), str(error)
        if unreadable:
            raise StoreCorruptError(reason, unreadable)
        return total

    def save(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        with self._shared.mutex:
            if not _holds(self._shared, survey_id, window_ms, secret, _RECOMPUTE):
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


def point_to_drop(times_ms: Sequence[int]) -> int:
    """Return the position of the inner point whose neighbours are closest to each other, the first of several.

    >>> point_to_drop([0, 10, 11, 20])
    2
    """
    return min(range(1, len(times_ms) - 1), key=lambda i: times_ms[i + 1] - times_ms[i - 1])


class MemorySmallStates:
    """`SmallStates` in memory."""

    def __init__(self, shared: _Shared) -> None:
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
        self._shared = _Shared(clock)
        self.log = log(self._shared)
        self.queue = MemoryRecomputeQueue(self._shared)
        self.unreadable = MemoryWindowQueue(self._shared, "unreadable")
        self.estimates = MemoryEstimates(self._shared)
        self.states = MemorySmallStates(self._shared)

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
