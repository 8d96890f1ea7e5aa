"""The heart of the worker: apply batches of messages to the store, exactly once per report whatever happens.

    messages -> check -> dead letters sent -> fold -> store (stamps, offsets) -> windows marked -> acknowledge

Each step may be repeated by a crash: the store keeps the maximum per token, so repeating changes nothing.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from producers.wire.shards import partition_of, shards_of_partition
from streams.kafka.messages import FetchBatch
from streams.store.contract import KEEP_MS, Key, Outcome, ShardBatch, Store, StoreUnavailableError
from streams.worker.fold import Cached, Checked, DeadLetter, check, fold, unchanged
from streams.worker.kernels import Ints

logger = logging.getLogger(__name__)

EXIT_RESTART: Final = 75
"""Exit status for `not now`: whoever supervises the worker starts it again."""

DEFAULT_SHARDS: Final = 64
CACHE_BYTES: Final = 512 << 20
"""Smaller: logs are loaded again and again when many windows are open; larger: memory that nothing else can use."""
PATIENCE_SECONDS: Final = 120.0
"""How long a batch waits for a store that does not answer before the worker leaves."""
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 0.25
_COMPLAIN_MS: Final = 10_000

_Result = TypeVar("_Result")
_Place = tuple[str, int, int]


class RestartRequired(Exception):  # noqa: N818  # a request to the supervisor, not an error of the program
    """The worker must leave with status 75 without acknowledging; a fresh one will read the batch again."""

    status = EXIT_RESTART


class Surveys(Protocol):
    """Where surveys are looked up; `producers.survey.folder.SurveyFolder` is one."""

    def get(self, digest: bytes, now_ms: int) -> Survey | None:
        """Return the survey with this digest, or None; may look for new files first."""
        ...

    def surveys(self, now_ms: int) -> Sequence[Survey]:
        """Return all known surveys."""
        ...


@dataclass(frozen=True)
class Applied:
    """What a batch did. Counts are in reports."""

    windows: Mapping[tuple[str, int], int]
    """Survey id and window start of every window touched, and when its youngest frame was sent (as it claims, ms)."""
    frames_sent_ms: Mapping[tuple[str, int], Ints]
    """The same for each of its frames."""
    reports: int
    """All good reports: applied, duplicate, stale, or a conflict that lost."""
    applied: int
    duplicate: int
    stale: int
    conflict: int
    expired: int
    rejected: Mapping[str, int]
    """By reason."""


class Applier:
    """Applies batches to a store, with a cache of the logs it works on. For one thread.

    Args:
        store: where the truth is.
        surveys: what digests mean.
        send_dead_letters: sends what could not be right, and returns only when the broker has it.
        partitions: number of partitions of the topic of reports.
        clock: the time, in ms.
        sleep: waits for some seconds.
        stopping: tells whether the worker was asked to end; looked at while waiting for the store.
        cache_bytes: bound on the memory of cached logs between batches.
        patience_seconds: how long one batch may wait for the store.
    """

    def __init__(
        self,
        store: Store,
        surveys: Surveys,
        send_dead_letters: Callable[[Sequence[DeadLetter]], None],
        *,
        partitions: int,
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        stopping: Callable[[], bool] = lambda: False,
        cache_bytes: int = CACHE_BYTES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._store, self._surveys, self._send_dead_letters = store, surveys, send_dead_letters
        self._partitions, self._clock, self._sleep, self._stopping = partitions, clock, sleep, stopping
        self._cache_bytes, self._patience_seconds = cache_bytes, patience_seconds
        self._cache: OrderedDict[Key, Cached] = OrderedDict()
        self._last: dict[_Place, int] = {}
        self._assigned: set[tuple[str, int]] = set()
        self._shards = DEFAULT_SHARDS

    @property
    def cached_bytes(self) -> int:
        """Memory of the cached logs."""
        return sum(cached.table.nbytes for cached in self._cache.values())

    def assigned(self, topic: str, committed: Mapping[int, int | None]) -> dict[int, int]:
        """Take over partitions; return where to start reading each.

        That is the smaller of Kafka's committed offset and the lowest stored offset of the partition's shards: what the
        store lost in a crash is read again. Without a committed offset it is the start, since offsets in the store may
        be those of a deleted topic of the same name.

        Raises:
            RestartRequired: the store did not answer in time.
        """
        starts = {}
        for survey in self._surveys.surveys(self._clock()):
            self._shards = max(self._shards, survey.shards)
        for partition, offset in committed.items():
            stored = self._patiently(partial(self._store.offsets, topic, partition, self._shards_of(partition)))
            starts[partition] = min([offset or 0, *stored.values()])
            self._last |= {(topic, partition, shard): value for shard, value in stored.items()}
            self._assigned.add((topic, partition))
        return starts

    def revoked(self, topic: str, partitions: Iterable[int]) -> None:
        """Give partitions up: forget their offsets and logs."""
        gone = set(partitions)
        self._assigned -= {(topic, partition) for partition in gone}
        for place in [place for place in self._last if place[0] == topic and place[1] in gone]:
            del self._last[place]
        self._forget([key for key in self._cache if partition_of(key.shard, self._partitions) in gone])

    def process(self, batches: Sequence[FetchBatch]) -> Applied:
        """Apply messages of one topic; when it returns, they may be acknowledged.

        1. Check all frames. 2. Send dead letters and wait for the broker. 3. Fold and apply, until the store has said
        yes for every shard of the partitions, idle ones too. 4. Count what was refused. 5. Mark the windows for
        recomputation, also those in which nothing changed: a worker that died here before had no time to mark them.

        Messages of a partition that was revoked meanwhile are applied, but claim no offset: what lies before them is
        no longer known to be in the store.

        Raises:
            RestartRequired: the stored offset regressed, the store did not answer in time, or the worker was stopped.
        """
        topics = {batch.topic for batch in batches}
        if len(topics) > 1:
            raise ValueError(f"expected batches of one topic; got {sorted(topics)}; process them one by one")
        now_ms = self._clock()
        checked = check(batches, self._surveys, self._partitions, now_ms)
        self._shards = max([self._shards, *(shape.shards for shape in checked.shapes.values())])
        if checked.dead_letters:
            self._send_dead_letters(checked.dead_letters)
        counted: Counter[str] = Counter()
        for topic in topics:
            self._apply(topic, batches, checked, counted)
        for (survey_id, window_ms), counters in checked.counters.items():
            expires_ms = self._expiry(checked, survey_id, window_ms, now_ms)
            self._patiently(partial(self._store.count, survey_id, window_ms, counters, expires_ms))
        if checked.sent_ms:
            self._patiently(partial(self._store.mark_dirty, checked.sent_ms))
        self._evict(now_ms)
        refused = sum(checked.counters.values(), Counter[str]())
        return Applied(
            windows=checked.sent_ms,
            frames_sent_ms=checked.frames_sent_ms,
            reports=sum(map(len, checked.reports.values())),
            applied=counted["applied"],
            duplicate=counted["duplicate"],
            stale=counted["stale"],
            conflict=counted["conflict"],
            expired=refused.pop("expired", 0),
            rejected={name.removeprefix("rejected:"): reports for name, reports in refused.items()},
        )

    def verify(self) -> None:
        """Ask the store whether it still has what this worker stored; for times when no messages come.

        Raises:
            RestartRequired: the store went back in time or did not answer in time.
        """
        asked = [
            ShardBatch(topic, partition, shard, last_offset, 0, ())
            for (topic, partition, shard), last_offset in self._last.items()
        ]
        for batch, outcome in zip(asked, self._patiently(partial(self._store.apply, asked)), strict=True):
            self._leave_if_back(batch, outcome)

    def _shards_of(self, partition: int) -> range:
        return shards_of_partition(partition, self._shards, self._partitions)

    def _apply(self, topic: str, batches: Sequence[FetchBatch], checked: Checked, counted: Counter[str]) -> None:
        """Fold and apply until the store has taken everything."""
        next_offsets: dict[int, int] = {}
        for batch in batches:
            next_offsets[batch.partition] = max(batch.next_offset, next_offsets.get(batch.partition, 0))
        pending: dict[int, list[Key]] = {
            shard: [] for partition in next_offsets for shard in self._shards_of(partition)
        }
        for key in checked.reports:
            pending[key.shard].append(key)
        taken: set[Key] = set()
        while pending:
            pending = self._patiently(partial(self._attempt, topic, pending, taken, next_offsets, checked, counted))

    def _attempt(
        self,
        topic: str,
        pending: Mapping[int, list[Key]],
        taken: set[Key],
        next_offsets: Mapping[int, int],
        checked: Checked,
        counted: Counter[str],
    ) -> dict[int, list[Key]]:
        """Make one round trip; return the shards, with all their logs, in which somebody else has changed a log.

        `taken` are logs of such shards whose changes the store has taken. Their stamps are checked again in the step
        that raises the offset: until then a store that goes back in time loses them without a trace.
        """
        keys = [key for shard_keys in pending.values() for key in shard_keys]
        try:
            self._load([key for key in keys if key not in self._cache], checked)
            shard_batches = [
                self._shard_batch(topic, shard, shard_keys, taken, next_offsets, checked)
                for shard, shard_keys in pending.items()
            ]
            outcomes = self._store.apply(shard_batches)
        except BaseException:
            # The tables are ahead of the store, or nobody knows.
            self._forget(keys)
            taken.difference_update(keys)
            raise
        left: dict[int, list[Key]] = {}
        for batch, outcome in zip(shard_batches, outcomes, strict=True):
            place = topic, batch.partition, batch.shard
            self._leave_if_back(batch, outcome)
            for change in batch.changes:
                if change.key in outcome.contended:
                    continue
                self._cache[change.key].applied(change, outcome.stamps[change.key])
                counted.update(change.counters)
                counted["applied"] += change.accepted
            self._forget(outcome.contended)
            if outcome.contended:
                logger.debug("%s[%d]: %d logs had another writer", topic, batch.partition, len(outcome.contended))
                left[batch.shard] = pending[batch.shard]
                taken.update(outcome.stamps)
                taken -= outcome.contended
            elif place in self._last or batch.next_offset:
                self._last[place] = max(self._last.get(place, 0), batch.next_offset)
        return left

    def _leave_if_back(self, batch: ShardBatch, outcome: Outcome) -> None:
        if outcome.regressed:
            self._cache.clear()
            raise RestartRequired(
                f"the store went back in time: for shard {batch.shard} of {batch.topic}[{batch.partition}] it was at "
                f"offset {batch.last_offset} and now is before it; a fresh start reads again what was lost"
            )

    def _load(self, missing: Sequence[Key], checked: Checked) -> None:
        for survey_id, shape in checked.shapes.items():
            keys = [key for key in missing if key.survey_id == survey_id]
            if keys:
                for key, loaded in self._store.load(keys, shape).items():
                    self._cache[key] = Cached.of(loaded)

    def _shard_batch(
        self,
        topic: str,
        shard: int,
        keys: Sequence[Key],
        taken: Container[Key],
        next_offsets: Mapping[int, int],
        checked: Checked,
    ) -> ShardBatch:
        partition = partition_of(shard, self._partitions)
        owned = (topic, partition) in self._assigned
        changes = []
        for key in keys:
            self._cache.move_to_end(key)
            cached, shape = self._cache[key], checked.shapes[key.survey_id]
            changes.append(
                unchanged(key, cached, shape) if key in taken else fold(key, cached, checked.reports[key], shape)
            )
        return ShardBatch(
            topic=topic,
            partition=partition,
            shard=shard,
            last_offset=self._last.get((topic, partition, shard), 0),
            next_offset=next_offsets[partition] if owned else 0,
            changes=changes,
        )

    def _expiry(self, checked: Checked, survey_id: str, window_ms: int | None, now_ms: int) -> int:
        shape = checked.shapes.get(survey_id)
        return now_ms + KEEP_MS if shape is None or window_ms is None else shape.expires_ms(window_ms)

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._cache.pop(key, None)

    def _evict(self, now_ms: int) -> None:
        """Drop logs of windows that are gone, and the least recently used ones beyond the bound."""
        self._forget(
            [key for key, cached in self._cache.items() if cached.table.shape.expires_ms(key.window_ms) <= now_ms]
        )
        held = self.cached_bytes
        while self._cache and held > self._cache_bytes:
            _, cached = self._cache.popitem(last=False)
            held -= cached.table.nbytes

    def _patiently(self, action: Callable[[], _Result]) -> _Result:
        """Do something with the store, waiting for it as long as it does not answer."""
        deadline_ms = self._clock() + round(self._patience_seconds * 1_000)
        wait_seconds, complained_ms = _FIRST_WAIT_SECONDS, 0
        while True:
            try:
                result = action()
            except StoreUnavailableError as error:
                now_ms = self._clock()
                if self._stopping() or now_ms >= deadline_ms:
                    raise RestartRequired(
                        f"leaving without having stored the last batch, which stays in Kafka: {error}"
                    ) from error
                if now_ms - complained_ms >= _COMPLAIN_MS:
                    logger.warning("waiting for the store; nothing is acknowledged until it answers: %s", error)
                    complained_ms = now_ms
                self._wait(wait_seconds * random.uniform(0.5, 1.0))
                wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
            else:
                if complained_ms:
                    logger.warning("the store answers again")
                return result

    def _wait(self, seconds: float) -> None:
        while seconds > 0 and not self._stopping():
            slept = min(seconds, _WATCH_SECONDS)
            self._sleep(slept)
            seconds -= slept
