"""Counts a survey again from Kafka alone, for a store that was lost, damaged or is in doubt.

This order makes it safe while workers run:

1. note the state of each report log in the store;
2. read Kafka to its end. What the store held at step 1 came from there, so the new count lacks nothing of it;
3. replace the report log, if it is still in the state of step 1; otherwise start again.

A window whose first reports Kafka no longer holds is never shortened: its new count is merged with the stored one. The
same holds for one that began before the topic was made again: its first reports came from a topic that is gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from estimators.tally import Tally
from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from producers.wire.shards import partition_of, shards_of_partition
from streams.kafka.reader import Bus
from streams.repair.recount import Recount
from streams.store.contract import QueuedWindow, Seen, Store, StoreCorruptError
from streams.store.shape import Key, Shape
from streams.worker.table import Table

ROUNDS: Final = 20
"""Attempts for report logs that workers change in between. Fewer: a survey with much traffic is given up too early."""

Status = Literal["equal", "differs", "unreadable", "replaced", "moving"]


@dataclass(frozen=True)
class WindowCount:
    """One window as it should be and as the store had it.

    missing: reports that Kafka holds and the store does not (or holds an older rung of); extra: the other way round.
    complete: Kafka still holds the window from its first report on. Status `unreadable`: a log in the store cannot have
    been written by this version. `moving`: workers kept changing it, so it was not replaced; try again later.
    """

    window_ms: int
    status: Status
    right: Tally
    store: Tally
    missing: int
    extra: int
    complete: bool


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is: records read from Kafka, windows compared, of how many (None: not known yet)."""

    records: int
    windows: int
    windows_in_all: int | None


class Rebuilder:
    """Compares the store with Kafka, and replaces what differs.

    Args:
        store: what is compared and repaired.
        bus: the topic of reports.
        survey: the survey whose windows are counted.
        partitions: number of partitions of the topic.
        window_ms: only the window that starts there.
        since_ms: since when reports of this topic are counted; None if no others ever were.
        tell: called as it goes on with what was read and compared so far.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        survey: Survey,
        *,
        partitions: int,
        window_ms: int | None = None,
        since_ms: int | None = None,
        clock: Clock = system_clock,
        tell: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._store, self._survey = store, survey
        self._shape, self._window_ms, self._partitions = Shape.of(survey), window_ms, partitions
        self._unreadable: dict[int, QueuedWindow] = {}
        self._tell, self._progress = tell, Progress(0, 0, None)
        self.recount = Recount(
            bus,
            survey,
            partitions=partitions,
            window_ms=window_ms,
            since_ms=since_ms,
            clock=clock,
            tell=lambda count: self._at(records=count),
        )

    def run(self, *, replace: bool) -> list[WindowCount]:
        """Count everything again and compare; with `replace`, replace what differs. Oldest window first.

        A replaced window that was set aside as unreadable is estimated again.
        """
        unreadable = [queued for queued in self._store.unreadable.entries() if queued.survey_id == self._survey.id]
        self._unreadable = {queued.window_ms: queued for queued in unreadable}
        self.recount.catch_up()
        # Windows that only the store has are compared too: they differ if Kafka has no reports for them.
        known = {*self._store.estimates.window_starts(self._survey.id), *self._unreadable}
        now_ms = self._store.now_ms()
        found = {key.window_ms for key in self.recount.tables if self._shape.expires_ms(key.window_ms) > now_ms}
        asked = set() if self._window_ms is None else {self._window_ms}
        windows = sorted(window_ms for window_ms in known | found | asked if self._window_ms in (None, window_ms))
        counts: list[WindowCount] = []
        for window_ms in windows:
            self._at(windows=len(counts), windows_in_all=len(windows))
            counts.append(self._window(window_ms, replace))
        return counts

    def _at(self, **news: int) -> None:
        self._progress = dataclasses.replace(self._progress, **news)
        self._tell(self._progress)

    def lag(self, topic: str) -> int:
        """Return how many records lie between what the store has for sure and what was read here, over partitions."""
        behind = 0
        for partition, end in self.recount.ends.items():
            shards = shards_of_partition(partition, self._survey.shards, self._partitions)
            stored = self._store.log.offsets(topic, partition, shards)
            behind += max([0, *(end - offset for offset in stored.values())])
        return behind

    def _window(self, window_ms: int, replace: bool) -> WindowCount:
        keys = [Key(self._survey.id, window_ms, shard) for shard in range(self._survey.shards)]
        changed = False
        looked: dict[Key, _Compared] = {}
        left: Sequence[Key] = keys
        for _ in range(ROUNDS):
            seen = self._store.log.seen(left)
            stored = {key: self._stored(key) for key in left}
            self.recount.catch_up()
            looked |= {key: self._compare(key, *stored[key]) for key in left}
            if not replace:
                # Reports that arrived in between are not missing: only an unchanged log can be judged.
                now = self._store.log.seen(left)
                left = [key for key in left if looked[key].differs and now[key] != seen[key]]
            else:
                wrong = [key for key in left if looked[key].differs]
                done = {key for key in wrong if self._replaced(key, seen[key], looked[key])}
                changed = changed or bool(done)
                left = [key for key in wrong if key not in done]
            if not left:
                break
        marked = self._unreadable.get(window_ms) if replace and not left else None
        if changed or marked is not None:
            self._store.queue.put([(self._survey.id, window_ms)])
        if marked is not None:
            # After the line above: a crash in between rebuilds the window once more.
            self._store.unreadable.remove(marked)
        return self._summary(window_ms, looked.values(), changed=changed, moving=bool(left))

    def _replaced(self, key: Key, seen: Seen, compared: _Compared) -> bool:
        # Merged with what was stored, it holds reports from anywhere.
        end = self.recount.ends.get(partition_of(key.shard, self._partitions), 0)
        return self._store.log.replace(key, seen, compared.right, limit=end if compared.complete else None)

    def _stored(self, key: Key) -> tuple[Table | None, bool]:
        """Return what the store has of a log, None if it cannot be read, and whether nothing contradicts it."""
        try:
            loaded = self._store.log.load([key], self._shape, Table.of_log)[key]
            if loaded.repaired:
                self._store.queue.put([(key.survey_id, key.window_ms)])
            return loaded.content, True
        except StoreCorruptError as error:
            left = error.readable.get(key)
            return (None if left is None else Table.of_log(self._shape, left.live())), False

    def _compare(self, key: Key, stored: Table | None, sound: bool) -> _Compared:
        complete = self.recount.complete(key)
        right = self.recount.table(key)
        if stored is not None and not complete:
            right = _merged(self._shape, stored, right)
        ours, theirs = _entries(right), _entries(stored or Table(self._shape))
        return _Compared(
            right=right,
            stored=stored,
            sound=sound,
            missing=len(np.setdiff1d(ours, theirs)),
            extra=len(np.setdiff1d(theirs, ours)),
            complete=complete,
        )

    def _summary(self, window_ms: int, looked: Iterable[_Compared], *, changed: bool, moving: bool) -> WindowCount:
        empty = Tally.empty(self._shape.rungs, self._shape.groups, self._shape.size)
        found = list(looked)
        right = sum((one.right.tally() for one in found), empty)
        store = sum((one.stored.tally() for one in found if one.stored is not None), empty)
        missing, extra = sum(one.missing for one in found), sum(one.extra for one in found)
        status: Status = "equal"
        if moving:
            status = "moving"
        elif changed:
            status = "replaced"
        elif not all(one.sound for one in found):
            status = "unreadable"
        elif any(one.differs for one in found):
            status = "differs"
        return WindowCount(window_ms, status, right, store, missing, extra, all(one.complete for one in found))


@dataclass(frozen=True)
class _Compared:
    """One log as it should be, and as it is in the store (None: it cannot be read)."""

    right: Table
    stored: Table | None
    sound: bool
    """It can be read, and neither head nor tally contradict it."""
    missing: int
    extra: int
    complete: bool

    @property
    def differs(self) -> bool:
        """Whether the store must change."""
        return not self.sound or self.missing > 0 or self.extra > 0


def _merged(shape: Shape, *tables: Table) -> Table:
    """Return the report of each token that counts."""
    merged = Table(shape)
    for table in tables:
        merged.fold_log(table.live())
    return merged


def _entries(table: Table) -> NDArray[np.bytes_]:
    """Return the live entries, each as one item that can be sorted and compared."""
    return np.frombuffer(table.live(), dtype=f"S{table.shape.entry_bytes}")
