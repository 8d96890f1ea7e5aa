"""The store in memory: the same promises as Redis for as long as the process lives, and a way to lose a second.

It keeps what the Redis store keeps, in the same form, and takes the same patches, so that a test on one says something
about the other.
"""

from __future__ import annotations

import copy
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from estimators.tally import Tally
from producers.clock import Clock, system_clock
from streams.store.contract import (
    KEEP_MS,
    NO_STAMP,
    STAMP_BYTES,
    Change,
    Key,
    Loaded,
    Outcome,
    QueuedWindow,
    Seen,
    Shape,
    ShardBatch,
    StoreCorruptError,
)
from streams.windows.history import HISTORY_POINTS, point_to_drop
from streams.worker.table import AnyTable, Table

_EXACT = ("applied", "duplicate", "stale", "conflict")


@dataclass
class _Log:
    stamp: bytes = NO_STAMP
    segments: list[bytes] = field(default_factory=list)
    tally: bytearray = field(default_factory=bytearray)
    counters: Counter[str] = field(default_factory=Counter)
    expires_ms: int = 0


@dataclass
class _State:
    logs: dict[Key, _Log] = field(default_factory=dict)
    offsets: dict[tuple[str, int, int], int] = field(default_factory=dict)
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    shard_totals: dict[str, list[int]] = field(default_factory=dict)
    states: dict[tuple[str, str, int | None], tuple[bytes, int]] = field(default_factory=dict)
    counters: dict[tuple[str, int | None], tuple[Counter[str], int]] = field(default_factory=dict)
    dirty: dict[tuple[str, int], float] = field(default_factory=dict)
    locks: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    estimates: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    lives: dict[tuple[str, int], tuple[list[bytes], int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """All that a store held at one moment."""

    state: _State


class MemoryStore:
    """A `Store` for tests and simulations; safe for several threads."""

    def __init__(self, clock: Clock = system_clock, *, table: Callable[[Shape], AnyTable] = Table) -> None:
        self._clock = clock
        self._table = table
        self._state = _State()
        self._mutex = threading.RLock()
        self._restarted = False

    def snapshot(self) -> Snapshot:
        """Return a copy of everything."""
        with self._mutex:
            return Snapshot(copy.deepcopy(self._state))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back in time, as Redis does when a power cut takes the end of its append-only file."""
        with self._mutex:
            self._state = copy.deepcopy(snapshot.state)
            self._restarted = True

    def _forget_expired(self) -> None:
        now_ms = self._clock()
        state = self._state
        state.logs = {key: log for key, log in state.logs.items() if log.expires_ms > now_ms}
        state.counters = {key: held for key, held in state.counters.items() if held[1] > now_ms}
        state.locks = {key: held for key, held in state.locks.items() if held[1] > now_ms}
        state.estimates = {key: held for key, held in state.estimates.items() if held[1] > now_ms}
        state.states = {key: held for key, held in state.states.items() if held[1] > now_ms}
        state.lives = {key: lived for key, lived in state.lives.items() if lived[1] > now_ms}

    def load(self, keys: Sequence[Key], shape: Shape) -> dict[Key, Loaded]:
        """Return the logs of these keys; a tally that disagrees with its log is rewritten: the log wins."""
        loaded = {}
        with self._mutex:
            self._forget_expired()
            for key in keys:
                table = self._table(shape)
                log = self._state.logs.get(key)
                if log is None:
                    loaded[key] = Loaded(NO_STAMP, b"", 0, table)
                    continue
                entries = b"".join(log.segments)
                try:
                    table.fold_log(entries)
                except ValueError as error:
                    raise StoreCorruptError(f"{key}: {error}") from error
                expected = table.tally().to_bytes()
                if log.tally != expected:
                    log.stamp, log.tally = secrets.token_bytes(STAMP_BYTES), bytearray(expected)
                loaded[key] = Loaded(log.stamp, entries, len(log.segments), table)
        return loaded

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        """Return the stored offset of each shard, 0 if there is none."""
        with self._mutex:
            return {shard: self._state.offsets.get((topic, partition, shard), 0) for shard in shards}

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        """Take one atomic step per batch."""
        with self._mutex:
            self._forget_expired()
            return [self._apply(batch) for batch in batches]

    def _apply(self, batch: ShardBatch) -> Outcome:
        place = batch.topic, batch.partition, batch.shard
        stored = self._state.offsets.get(place, 0)
        if stored < batch.last_offset:
            return Outcome(True, frozenset(), {})
        contended: set[Key] = set()
        stamps: dict[Key, bytes] = {}
        for change in batch.changes:
            log = self._state.logs.get(change.key)
            if (log.stamp if log else NO_STAMP) != change.stamp:
                contended.add(change.key)
                continue
            stamps[change.key] = self._change(change, log or _Log())
        if not contended and batch.next_offset > stored:
            self._state.offsets[place] = batch.next_offset
        return Outcome(False, frozenset(contended), stamps)

    def _change(self, change: Change, log: _Log) -> bytes:
        counted = Counter(change.counters)
        if change.entries:
            if change.rewrite:
                log.segments.clear()
            log.segments.append(change.entries)
            for position, raw in change.patches:
                log.tally[position : position + len(raw)] = raw
            log.stamp = secrets.token_bytes(STAMP_BYTES)
            counted["applied"] = change.accepted
        log.counters.update(counted)
        self._state.totals.setdefault(change.key.survey_id, Counter()).update(counted)
        by_shard = self._state.shard_totals.setdefault(change.key.survey_id, [0] * change.shape.shards)
        by_shard[change.key.shard] += sum(counted.values())
        log.expires_ms = change.shape.expires_ms(change.key.window_ms)
        if log.segments and log.expires_ms > self._clock():
            self._state.logs[change.key] = log
        else:
            self._state.logs.pop(change.key, None)
        return log.stamp

    def seen(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        """Return what tells one state of these logs from another, without reading them."""
        with self._mutex:
            self._forget_expired()
            logs = {key: self._state.logs.get(key, _Log()) for key in keys}
            return {key: Seen(log.stamp, len(log.segments)) for key, log in logs.items()}

    def replace(self, key: Key, seen: Seen, table: AnyTable) -> bool:
        """Put the entries of a table in the place of a log, if nobody changed it since it was seen."""
        with self._mutex:
            if self.seen([key])[key] != seen:
                return False
            log = self._state.logs.pop(key, _Log())
            log.segments, log.tally = [table.live()], bytearray(table.tally().to_bytes())
            log.stamp, log.expires_ms = secrets.token_bytes(STAMP_BYTES), table.shape.expires_ms(key.window_ms)
            if len(table):
                self._state.logs[key] = log
            return True

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window."""
        total = Tally.empty(shape.rungs, shape.groups, shape.size)
        with self._mutex:
            self._forget_expired()
            for shard in range(shards):
                log = self._state.logs.get(Key(survey_id, window_ms, shard))
                if log is not None:
                    total = total + Tally.from_bytes(bytes(log.tally))
        return total

    def count(self, survey_id: str, window_ms: int | None, counters: Mapping[str, int], expires_ms: int) -> None:
        """Add to counters of a survey, and of a window if given."""
        with self._mutex:
            now_ms = self._clock()
            kept, _ = self._state.counters.get((survey_id, None), (Counter(), 0))
            self._state.counters[survey_id, None] = kept + Counter(counters), now_ms + KEEP_MS
            if window_ms is not None:
                kept, _ = self._state.counters.get((survey_id, window_ms), (Counter(), 0))
                self._state.counters[survey_id, window_ms] = kept + Counter(counters), expires_ms
            self._forget_expired()

    def counters(self, survey_id: str, window_ms: int | None = None) -> dict[str, int]:
        """Return applied, duplicate, stale, conflict, expired, rejected:REASON of a window, or of all ever if None."""
        counted = Counter(dict.fromkeys(_EXACT, 0))
        with self._mutex:
            self._forget_expired()
            counted.update(self._state.counters.get((survey_id, window_ms), (Counter(), 0))[0])
            if window_ms is None:
                counted.update(self._state.totals.get(survey_id, {}))
            else:
                for key, log in self._state.logs.items():
                    if (key.survey_id, key.window_ms) == (survey_id, window_ms):
                        counted.update(log.counters)
        return dict(counted)

    def mark_dirty(self, windows: Iterable[tuple[str, int]]) -> None:
        """Mark windows for recomputation."""
        with self._mutex:
            now_us = self._clock() * 1_000
            for window in windows:
                self._state.dirty[window] = float(max(now_us, self._state.dirty.get(window, 0.0) + 1))

    def mark_after_restart(self) -> int:
        """Mark every window with counts if the store went back in time since somebody did this; return how many."""
        with self._mutex:
            if not self._restarted:
                return 0
            self._forget_expired()
            windows = {(key.survey_id, key.window_ms) for key in self._state.logs}
            self.mark_dirty(windows)
            self._restarted = False
            return len(windows)

    def dirty(self) -> list[QueuedWindow]:
        """Return all marks, oldest first."""
        with self._mutex:
            marks = [
                QueuedWindow(survey_id, window_ms, score) for (survey_id, window_ms), score in self._state.dirty.items()
            ]
        return sorted(marks, key=lambda mark: (mark.score, mark.survey_id, mark.window_ms))

    def clear_dirty(self, mark: QueuedWindow) -> bool:
        """Remove the mark if its score has not changed."""
        with self._mutex:
            same = self._state.dirty.get((mark.survey_id, mark.window_ms)) == mark.score
            if same:
                del self._state.dirty[mark.survey_id, mark.window_ms]
            return same

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        """Try to take the short lock of a window; the returned secret proves ownership."""
        with self._mutex:
            self._forget_expired()
            if (survey_id, window_ms) in self._state.locks:
                return None
            secret = secrets.token_bytes(STAMP_BYTES)
            self._state.locks[survey_id, window_ms] = secret, self._clock() + ttl_ms
            return secret

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        """Give the lock back if it is still ours."""
        with self._mutex:
            if self._owns(survey_id, window_ms, secret):
                del self._state.locks[survey_id, window_ms]

    def _owns(self, survey_id: str, window_ms: int, secret: bytes) -> bool:
        self._forget_expired()
        return self._state.locks.get((survey_id, window_ms), (None, 0))[0] == secret

    def save_estimate(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        """Store an estimate if the lock is still ours, and add a point to the window's life."""
        with self._mutex:
            if not self._owns(survey_id, window_ms, secret):
                return False
            self._state.estimates[survey_id, window_ms] = payload, expires_ms
            if point:
                life, _ = self._state.lives.get((survey_id, window_ms), ([], 0))
                life.append(point)
                if len(life) > HISTORY_POINTS:
                    del life[point_to_drop([int(kept.split(b" ", 1)[0]) for kept in life])]
                self._state.lives[survey_id, window_ms] = life, expires_ms
            return True

    def life(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's life, oldest first."""
        with self._mutex:
            self._forget_expired()
            return list(self._state.lives.get((survey_id, window_ms), ([], 0))[0])

    def estimate(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        with self._mutex:
            self._forget_expired()
            return self._state.estimates.get((survey_id, window_ms), (None, 0))[0]

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        with self._mutex:
            self._forget_expired()
            return sorted(window_ms for name, window_ms in self._state.estimates if name == survey_id)

    def shard_reports(self, survey_id: str) -> list[int]:
        """Return the reports ever counted for each shard; empty if the survey was never seen."""
        with self._mutex:
            return list(self._state.shard_totals.get(survey_id, ()))

    def state(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        """Return a small state of a survey, or of one of its windows; empty if there is none."""
        with self._mutex:
            self._forget_expired()
            return self._state.states.get((survey_id, name, window_ms), (b"", 0))[0]

    def swap_state(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        """Replace a state if it still is `expected`; says whether it did."""
        with self._mutex:
            if self.state(survey_id, name, window_ms) != expected:
                return False
            self._state.states[survey_id, name, window_ms] = new, expires_ms
            return True

    def durability_warnings(self) -> list[str]:
        """Say that nothing outlives the process."""
        return ["counts are kept in memory only: they are gone when this process ends"]
