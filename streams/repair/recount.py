"""Counts a survey from its topic alone, by the rules of the workers: for rebuilds, and to check stored estimates.

What is counted comes from a `Bus` (streams/kafka/reader.py): anything that gives the records of the reports topic, with
partition, offset and the broker's timestamp, in the order of their offsets. `TopicReader` is one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from producers.wire.shards import partition_of
from streams.kafka.messages import FetchBatch
from streams.kafka.reader import Bus, Held
from streams.store.shape import Key, Shape
from streams.worker.fold import check
from streams.worker.table import Table
from streams.worker.tiers import known


class _Only:
    """Finds one survey, so that frames of others are skipped."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey

    def get(self, digest: bytes, now_ms: int) -> Survey | None:  # noqa: ARG002  # as the protocol has it
        return self._survey if digest in self._survey.digests else None


class Recount:
    """The tables of a survey counted from its topic alone; grows with every `catch_up`.

    Args:
        bus: the topic of reports.
        survey: the survey whose reports are counted.
        partitions: number of partitions of the topic.
        window_ms: only the window that starts there.
        since_ms: since when reports of this topic are counted; None if no others ever were.
        until: only these logs, each up to the offset given; None: all, as far as they can be read.
        clock: the time, in ms.
        tell: called as it goes on with the number of records read.
    """

    def __init__(
        self,
        bus: Bus,
        survey: Survey,
        *,
        partitions: int,
        window_ms: int | None = None,
        since_ms: int | None = None,
        until: Mapping[Key, int] | None = None,
        clock: Clock = system_clock,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._bus, self._survey, self._partitions, self._clock = bus, survey, partitions, clock
        self._window_ms, self._since_ms, self._until = window_ms, since_ms, until
        self._cuts = _cuts(until or {}, partitions)
        self._tell = tell
        self.records = 0
        """Records read so far."""
        self.tables: dict[Key, Table] = {}
        self.ends: dict[int, int] = {}
        """By partition: the offset behind the last record that was read."""
        self.misplaced = 0
        """Reports in a partition that their shard does not belong to, as they are after partitions were added."""

    def catch_up(self) -> None:
        """Read to the end that the topic has at this moment."""
        shape = Shape.of(self._survey)
        for batches in self._bus.read():
            self.ends |= {batch.partition: batch.next_offset for batch in batches}
            self.records += sum(len(batch.records) for batch in batches)
            self._tell(self.records)
            for piece in _pieces(batches, self._cuts):
                # No window is gone for a recount: `Rebuilder.run` leaves out those that are.
                whole = self._survey.whole
                checked = check(piece, _Only(whole), self._partitions, self._clock(), broker_ms=0)
                self.misplaced += sum(counters.rejected.get("partition", 0) for counters in checked.refused.values())
                ends = {batch.partition: batch.next_offset for batch in piece}
                for of_whole, reports in checked.reports.items():
                    key, told = of_whole._replace(survey_id=self._survey.id), known(self._survey, reports)
                    if len(told) and self._wanted(key, ends[partition_of(key.shard, self._partitions)]):
                        self.tables.setdefault(key, Table(shape)).fold(told)

    def _wanted(self, key: Key, end: int) -> bool:
        if self._until is None:
            return self._window_ms in (None, key.window_ms)
        return end <= self._until.get(key, 0)

    def table(self, key: Key) -> Table:
        """Return the table of one log, empty if the topic has nothing for it."""
        return self.tables.get(key) or Table(Shape.of(self._survey))

    def complete(self, key: Key) -> bool:
        """Tell whether everything that can have been sent for a log was counted here.

        Reports that were counted before partitions were added lie where their shard no longer belongs. The first offset
        of a topic that was made again proves nothing: earlier reports lay in another one.
        """
        held = self._bus.held()[partition_of(key.shard, self._partitions)]
        return not self.misplaced and holds_all(held, self._survey, key.window_ms, self._since_ms)


def holds_all(held: Held, survey: Survey, window_ms: int, since_ms: int | None = None) -> bool:
    """Tell whether a partition that holds this much can lack no report of a window.

    Args:
        held: where the partition begins.
        survey: the survey of the window.
        window_ms: the start of the window.
        since_ms: since when reports of this topic are counted; None if no others ever were.
    """
    # Nothing comes before its window starts, but for the clocks of devices that run ahead.
    first_possible_ms = window_ms - survey.skew_ms
    older = held.first_ms is not None and held.first_ms < first_possible_ms
    if since_ms is not None:
        return older and since_ms < first_possible_ms
    return older or held.first_offset == 0


def _cuts(until: Mapping[Key, int], partitions: int) -> dict[int, list[int]]:
    """Return by partition all offsets at which the count of some log ends, in order."""
    found: dict[int, set[int]] = {}
    for key, offset in until.items():
        found.setdefault(partition_of(key.shard, partitions), set()).add(offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def _pieces(batches: Sequence[FetchBatch], cuts: Mapping[int, Sequence[int]]) -> Iterator[list[FetchBatch]]:
    """Cut fetch batches where the count of some log ends; with cuts, at most one batch of a partition at a time."""
    if not cuts:
        yield list(batches)
        return
    whole: list[FetchBatch] = []
    for batch in batches:
        ordered = cuts.get(batch.partition, ())
        inside = ordered[bisect_right(ordered, batch.start) : bisect_left(ordered, batch.next_offset)]
        if any(other.partition == batch.partition for other in whole):
            yield whole
            whole = []
        if not inside:
            whole.append(batch)
            continue
        for start, end in zip([batch.start, *inside], [*inside, batch.next_offset], strict=True):
            first, last = (bisect_left(batch.records, at, key=lambda record: record.offset) for at in (start, end))
            records = batch.records[first:last]
            yield [replace(batch, start=start, next_offset=end, records=records, undecodable=())]
    if whole:
        yield whole
