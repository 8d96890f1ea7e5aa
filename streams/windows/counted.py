"""Reads what was counted for a window: its tally, and the proof of where that comes from."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from estimators.tally import Tally
from producers.clock import Clock
from producers.survey.survey import Survey
from streams.store.contract import NO_STAMP, Seen, Store, StoreCorruptError
from streams.store.log_content import FoldEntries, LogContent
from streams.store.shape import Key, Shape
from streams.store.shard_counts import ShardCounts
from streams.windows.proof import Proof, shard_digest, split_offsets, survey_hash, tally_hash, version, winners_hash
from streams.windows.settled import is_current
from streams.windows.unreadable import UnreadableLogs
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

WINNERS_SHARE: Final = 0.1
"""Share of the time that may go to hashes of winning reports. Smaller: estimates of large open windows go without one
for longer; larger: estimates come later."""

_WINDOWS_KEPT: Final = 512
"""Windows whose digests are kept. Fewer: unchanged logs are read again; more: some kilobytes for each."""
_FORGOTTEN_MS: Final = 60_000

_Window = tuple[str, int]


class ReportsTopic(NamedTuple):
    """Where reports are counted from."""

    name: str
    partitions: int
    id: str = ""
    """As the brokers tell it; empty where they do not."""
    since_ms: int | None = None
    """Since when its reports are counted, if there was another topic of this name before: counts may be of both."""


@dataclass(frozen=True)
class Counted:
    """What was counted for a window."""

    tally: Tally
    proof: Proof | None
    """None where it cannot be said which offsets the tally contains."""
    whole: bool
    """The proof is as complete as it can be; otherwise the window must be read once more."""


class WindowCounts:
    """Reads windows. Keeps the digests of shards, so that only logs that changed are read again. For one thread."""

    def __init__(
        self,
        store: Store,
        topic: ReportsTopic,
        *,
        fold: FoldEntries[LogContent],
        clock: Clock,
        metrics: WorkerMetrics,
    ) -> None:
        self._store, self._topic, self._fold, self._clock, self._metrics = store, topic, fold, clock, metrics
        self._unreadable = UnreadableLogs(store, metrics)
        self._digests: OrderedDict[_Window, list[tuple[bytes, bytes]]] = OrderedDict()
        self._current, self._old = _Pace(), _Pace()

    def read(self, survey: Survey, window_ms: int) -> Counted:
        """Read a window; a tally that cannot be read, or disagrees with its log, is made again from the log.

        Raises:
            StoreCorruptError: a log cannot be read; it was set aside.
        """
        window, shape, now_ms = (survey.id, window_ms), Shape.of(survey), self._clock()
        current = is_current(survey, window_ms, now_ms)
        pace = self._current if current else self._old
        since_ms = self._topic.since_ms
        one_topic = since_ms is None or window_ms - survey.skew_ms >= since_ms
        due = one_topic and pace.due(window, now_ms)
        counts, winners = self._repaired(window, shape, hashed=due)
        if due:
            pace.spent(window, now_ms, self._clock() - now_ms)
        tally = sum((shard.tally for shard in counts), Tally.empty(shape.rungs, shape.groups, shape.size))
        if not one_topic or any(shard.stamp and shard.limit is None for shard in counts):
            return Counted(tally, None, whole=True)
        if not all(shard.exact for shard in counts):
            # A worker will raise the offset soon, and perhaps without a report of this window.
            return Counted(tally, None, whole=not current)
        offsets, others = split_offsets([shard.offset for shard in counts], self._topic.partitions)
        proof = Proof(
            thaw=version(),
            survey=survey_hash(survey),
            topic=self._topic.name,
            topic_id=self._topic.id,
            offsets=offsets,
            tally=tally_hash(tally),
            winners=winners,
            shard_offsets=others,
        )
        return Counted(tally, proof, whole=winners is not None)

    def _repaired(self, window: _Window, shape: Shape, *, hashed: bool) -> tuple[list[ShardCounts], str | None]:
        try:
            return self._counts(window, shape, hashed=hashed)
        except StoreCorruptError as error:
            try:
                self._store.log.load(list(error.logs), shape, self._fold)
            except StoreCorruptError as log_error:
                self._unreadable.set_aside(log_error)
                raise
            self._metrics.unreadable.labels("tally").inc(len(error.logs))
            logger.error("%s, window %d: %s; made again from its log", *window, error)
            return self._counts(window, shape, hashed=hashed)

    def _counts(self, window: _Window, shape: Shape, *, hashed: bool) -> tuple[list[ShardCounts], str | None]:
        """Return the counts of every shard, and if asked for the hash of the reports that are in exactly these.

        There is no hash if a long log changed while it was read.
        """
        read = partial(
            self._store.estimates.counts, *window, shape, topic=self._topic.name, partitions=self._topic.partitions
        )
        if not hashed:
            return read(), None
        kept = self._digests.get(window) or [(NO_STAMP, shard_digest(b"", shape.entry_bytes))] * shape.shards
        counts = read(known=[stamp for stamp, _ in kept])
        digests: list[tuple[bytes, bytes]] = []
        wrong: dict[Key, Seen] = {}
        for shard, (found, held) in enumerate(zip(counts, kept, strict=True)):
            if found.entries is None:
                digests.append(held)  # of another state if the log changed: it is read at the next call
                continue
            content = self._content(shape, found.entries)
            if content is None or content.tally() != found.tally:
                wrong[Key(*window, shard)] = Seen(found.stamp, 0)
                continue
            digests.append((found.stamp, shard_digest(content.live(), shape.entry_bytes)))
        if wrong:
            raise StoreCorruptError(f"the tallies of {len(wrong)} shards are not those of their logs", wrong)
        self._digests[window] = digests
        self._digests.move_to_end(window)
        if len(self._digests) > _WINDOWS_KEPT:
            self._digests.popitem(last=False)
        if any(found.changed for found in counts):
            return counts, None
        return counts, winners_hash(digest for _, digest in digests)

    def _content(self, shape: Shape, entries: bytes) -> LogContent | None:
        try:
            return self._fold(shape, entries)
        except ValueError:
            return None


class _Pace:
    """Says when the winners of a window are hashed again: once in a round, and rounds are long enough for all."""

    def __init__(self) -> None:
        self._done: dict[_Window, tuple[int, int]] = {}
        """By window: when it was hashed last, and how long that took, in ms."""

    def _round_ms(self) -> float:
        return sum(cost_ms for _, cost_ms in self._done.values()) / WINNERS_SHARE

    def due(self, window: _Window, now_ms: int) -> bool:
        done = self._done.get(window)
        return done is None or not 0 <= now_ms - done[0] < self._round_ms()

    def spent(self, window: _Window, now_ms: int, cost_ms: int) -> None:
        self._done[window] = now_ms, max(0, cost_ms)
        oldest_ms = now_ms - max(_FORGOTTEN_MS, self._round_ms())
        self._done = {place: done for place, done in self._done.items() if done[0] >= oldest_ms}
