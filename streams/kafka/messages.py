"""What is read from Kafka and what is sent to it, as plain data. Imports no Kafka client."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

LOG_APPEND_TIME: Final = 0x08
"""Bit in the attributes of a record batch: its records have the broker's time, and not that of whoever sent them."""
LARGEST_BYTES: Final = 8 << 20
"""Of one message that the collector itself publishes. A dead letter may be larger than the record it was in, which may
have been compressed; larger ones are cut. An estimate takes about 340 bytes a value before it is compressed. Smaller:
surveys of thousands of values are not published; larger: a reader must take as much at once."""


class Record(NamedTuple):
    """One Kafka record: its offset, the broker's timestamp (LogAppendTime), its bytes."""

    offset: int
    timestamp_ms: int
    value: bytes | None


class HeadedRecord(NamedTuple):
    """The same with its headers, for topics whose headers mean something."""

    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, eq=False)
class RecordRun:
    """Records of one batch as columns: value i is `lengths[i]` bytes of `raw` from `starts[i]` on; -1 means null."""

    raw: bytes
    offsets: Ints
    timestamps_ms: Ints
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, records: Sequence[Record]) -> RecordRun:
        """Put records into columns."""
        values = [record.value for record in records]
        lengths = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
        held = np.maximum(lengths, 0)
        return cls(
            b"".join(value for value in values if value),
            np.array([record.offset for record in records], dtype=np.int64),
            np.array([record.timestamp_ms for record in records], dtype=np.int64),
            np.cumsum(held) - held,
            lengths,
        )

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)

    @property
    def first_offset(self) -> int:
        """The first of its offsets."""
        return int(self.offsets[0])

    @property
    def offset(self) -> int:
        """The last of its offsets."""
        return int(self.offsets[-1])

    def since(self, offset: int) -> RecordRun:
        """Return the records from this offset on."""
        first = int(np.searchsorted(self.offsets, offset))
        if not first:
            return self
        return RecordRun(
            self.raw, self.offsets[first:], self.timestamps_ms[first:], self.starts[first:], self.lengths[first:]
        )

    def record(self, place: int) -> Record:
        """Return one record."""
        start, length = int(self.starts[place]), int(self.lengths[place])
        value = None if length < 0 else self.raw[start : start + length]
        return Record(int(self.offsets[place]), int(self.timestamps_ms[place]), value)


class RunRecords(Sequence[Record]):
    """The records of runs, each made when it is asked for."""

    def __init__(self, runs: Sequence[RecordRun]) -> None:
        self.runs = runs
        self._ends = list(accumulate(map(len, runs)))

    def __len__(self) -> int:
        """Return the number of records."""
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        """Return a record, or a list of some."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        found = place + len(self) if place < 0 else place
        if not 0 <= found < len(self):
            raise IndexError(f"record {place} of {len(self)}")
        number = bisect_right(self._ends, found)
        return self.runs[number].record(found - (self._ends[number - 1] if number else 0))

    def __iter__(self) -> Iterator[Record]:
        """Yield all records."""
        return (run.record(place) for run in self.runs for place in range(len(run)))


class Undecodable(NamedTuple):
    """A record batch that cannot be decoded: all its offsets, why, and its bytes as the broker sent them."""

    first_offset: int
    last_offset: int
    fault: str
    raw: bytes

    @property
    def offset(self) -> int:
        """The last of its offsets."""
        return self.last_offset


class NoRecord(NamedTuple):
    """Offsets that hold no record for a reader: markers of transactions, and what was aborted."""

    first_offset: int
    offset: int
    """The last of them."""


Item = Record | RecordRun | Undecodable | NoRecord
"""What a fetch brings; each has the last of its offsets as `offset`."""


def since(items: Sequence[Item], offset: int) -> list[Item]:
    """Return what lies at this offset or behind it; a run that began before is cut."""
    return [item.since(offset) if type(item) is RecordRun else item for item in items if item.offset >= offset]


def first_offset(item: Item | HeadedRecord) -> int:
    """Return the first of its offsets."""
    return item.offset if isinstance(item, Record | HeadedRecord) else item.first_offset


@dataclass(frozen=True)
class FetchBatch:
    """All records that one fetch brought from one partition, in order of their offsets.

    `start` is where the previous fetch batch of the partition ended (or reading began), so fetch batches of a partition
    leave no gap between them; `next_offset` is one past the last offset that was read, which may hold no record.
    """

    topic: str
    partition: int
    start: int
    next_offset: int
    records: Sequence[Record]
    undecodable: Sequence[Undecodable] = ()
    """Record batches among them that cannot be decoded."""
    missing: int = 0
    """How many offsets from `start` on the broker no longer has."""

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        start: int,
        items: Sequence[Item],
        *,
        missing: int = 0,
    ) -> FetchBatch:
        """Sort what a fetch brought."""
        records: Sequence[Record] = [item for item in items if type(item) is Record]
        runs = [item for item in items if type(item) is RecordRun]
        if runs:
            records = RunRecords(list(_as_runs(items)) if records else runs)
        undecodable = [item for item in items if type(item) is Undecodable]
        return cls(topic, partition, start, items[-1].offset + 1, records, undecodable, missing)


def _as_runs(items: Sequence[Item]) -> Iterator[RecordRun]:
    """Return records and runs in their order, records that follow each other as one run."""
    for kind, some in groupby((item for item in items if isinstance(item, Record | RecordRun)), type):
        if kind is Record:
            yield RecordRun.of([item for item in some if isinstance(item, Record)])
        else:
            yield from (item for item in some if isinstance(item, RecordRun))


class Lag(NamedTuple):
    """Records of a partition that were not handed over yet, and those that wait for the end of a transaction."""

    records: int
    uncommitted: int
    stable: int = 0
    """Where those begin: the offset up to which the partition can be read."""


@dataclass(frozen=True)
class Outgoing:
    """One message for a topic."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class PublishError(RuntimeError):
    """The brokers did not acknowledge all messages; sending all of them again is harmless."""


class MessageTooLargeError(PublishError):
    """Messages are larger than their topic, or the client, allows; the brokers have all others.

    `messages` are those that were refused. Several may fit one by one: a topic may take less than a batch of them.
    """

    def __init__(self, message: str, messages: Sequence[Outgoing]) -> None:
        super().__init__(message)
        self.messages = messages
