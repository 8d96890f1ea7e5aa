"""The applier: counts fetch batches in the store, every report exactly once however often a batch is repeated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from producers.clock import Clock, system_clock
from producers.survey.lookup import Surveys
from producers.wire.shards import partition_of, shards_of_partition
from streams.kafka.messages import FetchBatch
from streams.store.contract import Change, Outcome, Seen, ShardBatch, Store, StoreCorruptError
from streams.store.counters import Counters
from streams.store.ladders import LongerLadderError
from streams.store.shape import GRACE_MS, KEEP_MS, Key, Shape
from streams.windows.unreadable import UnreadableLogs
from streams.worker.fold import Cached, Checked, DeadLetter, check, fold
from streams.worker.log_cache import LogCache
from streams.worker.retry import PATIENCE_SECONDS, RestartRequired, StoreRetry
from streams.worker.table import Table, tally_bytes
from streams.worker.tiers import add_tiers
from streams.worker.words import Ints
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

DEFAULT_SHARDS: Final = 64
CACHE_BYTES: Final = 512 << 20
"""Smaller: logs are loaded again and again when many windows are open; larger: memory that nothing else can use."""

_Place = tuple[str, int, int]


@dataclass(frozen=True)
class Applied:
    """What `process` did. Counts are in reports."""

    windows: Mapping[tuple[str, int], int]
    """Survey id and start of every window in the batch, and when its youngest frame was sent (as it claims, ms)."""
    frames_sent_ms: Mapping[tuple[str, int], Ints]
    """The same for each of its frames."""
    reports: int
    """Reports of accepted frames."""
    counters: Counters


@dataclass
class _Progress:
    """What `process` has done with a batch between two attempts."""

    topic: str
    checked: Checked
    next_offsets: Mapping[int, int]
    """By partition."""
    pending: dict[int, list[Key]]
    """Shards whose offset was not raised yet, with all their report logs."""
    taken: set[Key] = field(default_factory=set)
    """Logs of pending shards whose changes the store has taken. Their stamps are checked again in the step that raises
    the offset: until then a store that loses acknowledged writes loses them without a trace."""
    counted: Counters = field(default_factory=Counters)


class Applier:
    """Applies batches to a store, with a cache of the report logs it works on. For one thread.

    Args:
        store: report logs and the recompute queue.
        surveys: the surveys by digest.
        send_dead_letters: sends dead letters, and returns only when the broker has them.
        partitions: number of partitions of the topic of reports.
        draining: by name, the number of partitions of topics that are read beside it. While there is one, it is not
            known below which offsets a report log is exact.
        clock: the time here, in ms; it judges no report.
        sleep: waits for some seconds.
        stopping: tells whether the worker was asked to stop; checked while waiting for the store.
        cache_bytes: bound on the memory of cached logs between batches.
        patience_seconds: how long one batch may wait for the store.
        table: what a log is loaded into.
        metrics: where unreadable logs are counted.
    """

    def __init__(
        self,
        store: Store,
        surveys: Surveys,
        send_dead_letters: Callable[[Sequence[DeadLetter]], None],
        *,
        partitions: int,
        draining: Mapping[str, int] | None = None,
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        stopping: Callable[[], bool] = lambda: False,
        cache_bytes: int = CACHE_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
        table: type[Table] = Table,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._log, self._queue = store.log, store.queue
        self._unreadable = UnreadableLogs(store, metrics)
        self._surveys, self._send_dead_letters, self._table = surveys, send_dead_letters, table
        self._partitions, self._draining = partitions, draining or {}
        self._clock, self._cache_bytes = clock, cache_bytes
        self._retried = StoreRetry(clock=clock, sleep=sleep, stopping=stopping, patience_seconds=patience_seconds)
        self._cache = LogCache()
        self._last: dict[_Place, int] = {}
        self._assigned: set[tuple[str, int]] = set()
        self._shards = DEFAULT_SHARDS
        self._broker_ms = 0

    @property
    def cached_bytes(self) -> int:
        """Memory of the cached logs."""
        return self._cache.nbytes

    @property
    def broker_ms(self) -> int:
        """The broker's time: the newest timestamp that was seen, 0 before the first. It decides what is gone."""
        return self._broker_ms

    def broker_time(self, timestamp_ms: int) -> None:
        """Take note of a timestamp of the broker.

        One from more than a day ahead is left out: on a topic with CreateTime it is what a device claims, and one
        device must not end all windows.
        """
        if timestamp_ms <= self._clock() + GRACE_MS:
            self._broker_ms = max(self._broker_ms, timestamp_ms)

    def assigned(self, topic: str, committed: Mapping[int, int | None]) -> dict[int, int]:
        """Take over partitions; return where to start reading each.

        That is the smaller of Kafka's committed offset and the lowest stored offset of the partition's shards: what the
        store lost in a crash is read again. Without a committed offset it is the start, since offsets in the store may
        be those of a deleted topic of the same name.

        Raises:
            RestartRequired: the store did not answer in time.
        """
        starts, again = {}, 0
        for survey in self._surveys.surveys(self._clock()):
            self._shards = max(self._shards, survey.shards)
        for partition, offset in committed.items():
            stored = self._retried(partial(self._log.offsets, topic, partition, self._shards_of(topic, partition)))
            starts[partition] = min([offset or 0, *stored.values()])
            again += (offset or 0) - starts[partition]
            self._last |= {(topic, partition, shard): value for shard, value in stored.items()}
            self._assigned.add((topic, partition))
        if again:
            logger.warning(
                "Redis lacks %d records of %s that had been counted and acknowledged: it lost writes, is new, or a "
                "survey has more shards; they are read again",
                again,
                topic,
            )
        return starts

    def revoked(self, topic: str, partitions: Iterable[int]) -> None:
        """Release partitions: forget their offsets and logs."""
        gone = set(partitions)
        self._assigned -= {(topic, partition) for partition in gone}
        for place in [place for place in self._last if place[0] == topic and place[1] in gone]:
            del self._last[place]
        self._cache.forget([key for key in self._cache if partition_of(key.shard, self._count(topic)) in gone])

    def process(self, batches: Sequence[FetchBatch]) -> Applied:
        """Count fetch batches of one topic; when it returns, they may be acknowledged.

        1. check frames
        2. send dead letters and wait for the broker
        3. fold and apply until no report log is contended, for every shard of the partitions, idle ones too
        4. shorten large logs of which more than half was replaced, piece by piece
        5. count refusals
        6. put the windows into the recompute queue, also unchanged ones: a worker that crashed here did not put them

        Every step may be repeated by a crash without harm: the store keeps the maximum per token. Batches of a
        partition that was revoked in between are applied but raise no offset, since the records before them are no
        longer known to be in the store.

        Raises:
            RestartRequired: the stored offset regressed, the store did not answer in time, or the worker was stopped.
        """
        now_ms = self._clock()
        for batch in batches:
            if batch.records:
                self.broker_time(batch.records[-1].timestamp_ms)
        checked = self._check_frames(batches, now_ms)
        if checked.dead_letters:
            self._send_dead_letters(checked.dead_letters)
        counted = self._fold_and_apply(batches, checked)
        self._shorten(checked)
        refused = self._count_refusals(checked, now_ms)
        if checked.sent_ms:
            self._retried(partial(self._queue.put, checked.sent_ms))
        # Logs of expired windows go, and the least recently used ones beyond the bound.
        self._cache.weigh(checked.reports)
        self._cache.evict(self._broker_ms, self._cache_bytes)
        return Applied(
            windows=checked.sent_ms,
            frames_sent_ms=checked.frames_sent_ms,
            reports=sum(len(checked.reports[key]) for key in checked.frames),
            counters=counted + refused,
        )

    def verify(self) -> None:
        """Check that the store still has what this worker stored; for times without traffic.

        Raises:
            RestartRequired: the stored offset regressed, or the store did not answer in time.
        """
        asked = [
            ShardBatch(topic, partition, shard, last_offset, 0, ())
            for (topic, partition, shard), last_offset in self._last.items()
        ]
        for batch, outcome in zip(asked, self._retried(partial(self._log.apply, asked)), strict=True):
            self._check_offset(batch, outcome)

    def _count(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return self._draining.get(topic, self._partitions)

    def _shards_of(self, topic: str, partition: int) -> range:
        return shards_of_partition(partition, self._shards, self._count(topic))

    def _check_frames(self, batches: Sequence[FetchBatch], now_ms: int) -> Checked:
        topics = {batch.topic for batch in batches}
        if len(topics) > 1:
            raise ValueError(f"expected batches of one topic; got {sorted(topics)}; process them one by one")
        partitions = self._count(next(iter(topics), ""))
        checked = check(batches, self._surveys, partitions, now_ms, broker_ms=self._broker_ms)
        add_tiers(checked)
        self._shards = max([self._shards, *(shape.shards for shape in checked.shapes.values())])
        return checked

    def _fold_and_apply(self, batches: Sequence[FetchBatch], checked: Checked) -> Counters:
        if not batches:
            return Counters()
        next_offsets: dict[int, int] = {}
        for batch in batches:
            next_offsets[batch.partition] = max(batch.next_offset, next_offsets.get(batch.partition, 0))
        pending: dict[int, list[Key]] = {
            shard: [] for partition in next_offsets for shard in self._shards_of(batches[0].topic, partition)
        }
        for key in checked.reports:
            pending[key.shard].append(key)
        progress = _Progress(batches[0].topic, checked, next_offsets, pending)
        while progress.pending:
            self._retried(partial(self._attempt, progress))
        return progress.counted

    def _attempt(self, progress: _Progress) -> None:
        """Make one round trip; shards with a contended log stay pending with all their logs."""
        keys = [key for shard_keys in progress.pending.values() for key in shard_keys]
        try:
            shapes = progress.checked.shapes
            self._load([key for key in keys if not self._cache.fits(key, shapes[key.survey_id])], shapes)
            shard_batches = [self._shard_batch(shard, progress) for shard in progress.pending]
            outcomes = self._log.apply(shard_batches)
        except BaseException:
            # The tables are ahead of the store, or the outcome is unknown.
            self._cache.forget(keys)
            progress.taken.difference_update(keys)
            raise
        contended: dict[int, list[Key]] = {}
        counted: list[Counters] = []
        for batch, outcome in zip(shard_batches, outcomes, strict=True):
            self._check_offset(batch, outcome)
            for change in batch.changes:
                if change.key not in outcome.contended:
                    self._cache.used(change.key).applied(change, outcome.stamps[change.key])
                    if change.key in progress.checked.frames:  # what tiers know is among it
                        counted.append(change.counters)
            self._cache.forget(outcome.contended)
            place = batch.topic, batch.partition, batch.shard
            if outcome.contended:
                logger.debug("%s[%d]: %d report logs contended", batch.topic, batch.partition, len(outcome.contended))
                contended[batch.shard] = progress.pending[batch.shard]
                progress.taken.update(outcome.stamps)
                progress.taken -= outcome.contended
            elif place in self._last or batch.next_offset:
                self._last[place] = max(self._last.get(place, 0), batch.next_offset)
        progress.pending = contended
        progress.counted += Counters(
            sum(counters.applied for counters in counted),
            sum(counters.duplicate for counters in counted),
            sum(counters.outdated for counters in counted),
            sum(counters.conflicting for counters in counted),
        )

    def _check_offset(self, batch: ShardBatch, outcome: Outcome) -> None:
        if outcome.regressed:
            self._cache.clear()
            raise RestartRequired(
                f"{batch.topic}[{batch.partition}], shard {batch.shard}: stored offset regressed from "
                f"{batch.last_offset} to {outcome.regressed_to} (Redis lost acknowledged writes)"
            )

    def _load(self, missing: Sequence[Key], shapes: Mapping[str, Shape]) -> None:
        for survey_id, shape in shapes.items():
            keys = [key for key in missing if key.survey_id == survey_id]
            while keys:
                try:
                    for key, loaded in self._log.load(keys, shape, self._table.of_log).items():
                        self._cache.put(key, Cached.of(loaded))
                    break
                except StoreCorruptError as error:
                    self._unreadable.set_aside(error)
                except LongerLadderError as error:
                    # With the newest files it starts again; nothing of this batch was stored or acknowledged.
                    raise RestartRequired(str(error)) from error

    def _shard_batch(self, shard: int, progress: _Progress) -> ShardBatch:
        partition = partition_of(shard, self._count(progress.topic))
        owned = (progress.topic, partition) in self._assigned
        changes = []
        for key in progress.pending[shard]:
            cached, shape = self._cache.used(key), progress.checked.shapes[key.survey_id]
            if key in progress.taken:
                changes.append(_unchanged(key, cached, shape))
            else:
                changes.append(fold(key, cached, progress.checked.reports[key], shape))
        return ShardBatch(
            topic=progress.topic,
            partition=partition,
            shard=shard,
            last_offset=self._last.get((progress.topic, partition, shard), 0),
            next_offset=progress.next_offsets[partition] if owned else 0,
            changes=changes,
            limit=None if self._draining else progress.next_offsets[partition],
        )

    def _shorten(self, checked: Checked) -> None:
        for key in [key for key in checked.reports if key in self._cache]:
            cached, shape = self._cache.used(key), checked.shapes[key.survey_id]
            for _ in range(cached.segments):  # once around at most
                if not cached.is_long:
                    break
                seen = Seen(cached.stamp, cached.segments)
                done = self._retried(partial(self._log.shorten, key, seen, cached.table.kept, shape))
                if done is None:  # somebody else changed it, or the store did and its answer was lost
                    self._cache.forget([key])
                    break
                cached.shortened(done)

    def _count_refusals(self, checked: Checked, now_ms: int) -> Counters:
        for (survey_id, window_ms), counters in checked.refused.items():
            shape = checked.shapes.get(survey_id)
            expires_ms = now_ms + KEEP_MS if shape is None or window_ms is None else shape.expires_ms(window_ms)
            self._retried(partial(self._log.count, survey_id, window_ms, counters, expires_ms))
        return sum(checked.refused.values(), Counters())


def _unchanged(key: Key, cached: Cached, shape: Shape) -> Change:
    """Return a change that only asks whether the log is still the cached one."""
    return Change(
        key=key,
        stamp=cached.stamp,
        entries=b"",
        rewrite=False,
        log_entries=cached.log_entries,
        patches=(),
        tally_bytes=tally_bytes(shape),
        shape=shape,
        counters=Counters(),
    )
