"""Decodes the record batches of a fetch one by one, so that one that cannot be decoded stops no reader.

aiokafka raises at the first batch with a wrong checksum, an unknown codec or damaged records, and again after every
restart. Here such a batch becomes an `Undecodable` with its offsets and bytes, and reading goes on behind it. Markers
of transactions and aborted records become a `NoRecord`, so that the place of a reader moves over them. Private parts
of aiokafka are replaced: `tests/unit/streams/worker/test_faust_contract.py` fails when they change (decision 0059).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from streams.kafka.codecs import decompress
from streams.kafka.messages import (
    LOG_APPEND_TIME,
    HeadedRecord,
    NoRecord,
    Record,
    RecordRun,
    Undecodable,
    first_offset,
)

MAX_FETCHED_BYTES: Final = 8 << 20
"""Decompressed bytes after which the rest of a fetch is left to the next one. Smaller: more fetches for compressed
records. Larger: a fetch of many small batches that expand takes more memory."""

LEAST_WALKED: Final = 24
"""Records in a batch from which on compiled code walks it. Fewer: starting the walk takes longer than the records do,
and a device sends each report as a batch of its own. More: records are made one by one that need not be."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length of all behind it, leader epoch, magic, checksum, attributes, last offset - base offset, first and
last timestamp, producer id, epoch, sequence number, number of records."""
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_CODEC: Final = 7
_MOST_RECORDS: Final = 1 << 24


class MisplacedError(ValueError):
    """A batch is whole, and its offset is not one that the broker can have sent."""


MakeRecord = Callable[[Any], Record | HeadedRecord]


WalkRecords = Callable[[bytes], list[RecordRun] | None]
"""Decodes an uncompressed batch of format 2 into columns; None: aiokafka is to judge it."""

Stamped = Callable[[str, bool], None]
"""Is told, at the first batch of a fetch and at each that differs, the topic and whether the broker stamped it."""


def plain(record: Any) -> Record:
    """Make a record without its headers."""
    return Record(record.offset, record.timestamp, record.value)


def headed(record: Any) -> HeadedRecord:
    """Make a record with its headers."""
    return HeadedRecord(record.offset, record.timestamp, record.value, record.headers)


class RawBatches(MemoryRecords):  # type: ignore[misc]  # a compiled class without types
    """aiokafka's view of the bytes of a fetch, which keeps them."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self.raw = raw

    def has_next(self) -> bool:
        """Tell whether there is anything: aiokafka takes a batch whose length is wrong for one that is too large."""
        return bool(self.raw)


fetcher.MemoryRecords = RawBatches


class DecodedRecords(fetcher.PartitionRecords):  # type: ignore[misc]  # untyped
    """The records of one fetch and partition, and what stands in place of those that there are none of."""

    next_fetch_offset: int

    def __init__(
        self, fetched: Any, make: MakeRecord, walk: WalkRecords | None = None, stamped: Stamped | None = None
    ) -> None:
        self._make, self._walk, self._stamped = make, walk, stamped
        self._by_broker: bool | None = None
        self._told: bool | None = None
        super().__init__(
            fetched._tp,
            fetched._records,
            fetched._aborted_transactions,
            fetched.next_fetch_offset,
            None,
            None,
            True,
            fetched._isolation_level,
        )

    def _unpack_records(self) -> Iterator[Record | HeadedRecord | RecordRun | Undecodable | NoRecord]:
        raw, at, budget = self._records.raw, 0, MAX_FETCHED_BYTES
        while budget > 0 and at < len(raw):
            end = _end(raw, at)
            if end is None and at > 0:
                return  # cut by the broker: the next fetch begins with it
            try:
                if end is None:  # a broker sends the first batch whole, however long it is
                    raise ValueError("its length is negative, or larger than the fetch")
                items, next_offset, size = self._decode(raw, at, end)
            except Exception as error:  # whatever a batch does to a decoder, it must not stop the reader
                end = len(raw) if end is None else end
                items, next_offset, goes_on = self._set_aside(raw, at, end, error)
                size, end = end - at, end if goes_on else len(raw)
            self._tell_stamp()
            for item in items:
                if item.offset >= self.next_fetch_offset:
                    if type(item) is RecordRun:
                        item = item.since(self.next_fetch_offset)  # a batch may begin before
                    self.next_fetch_offset = item.offset + 1
                    yield item
            if next_offset > self.next_fetch_offset:
                covered = NoRecord(max(_base(raw, at), self.next_fetch_offset), next_offset - 1)
                self.next_fetch_offset = next_offset
                yield covered
            at, budget = end, budget - size

    def _decode(self, fetched: bytes, at: int, end: int) -> tuple[list[Any], int, int]:
        """Return all records of a batch, the offset behind it, and how many bytes were decoded."""
        raw = fetched[at:end]
        if len(raw) <= _MAGIC_AT or raw[_MAGIC_AT] > _MAGIC:
            raise ValueError(f"unknown format version {raw[_MAGIC_AT] if len(raw) > _MAGIC_AT else 'none'}")
        if raw[_MAGIC_AT] < _MAGIC:
            old, next_offset, size = self._decode_old(raw)
            self._check_place(fetched, at, end, next_offset)
            return old, next_offset, size
        base, length, epoch, magic, checksum, attributes, delta, *others = _HEADER.unpack_from(raw)
        batch = DefaultRecordBatch(raw)
        if not batch.validate_crc():
            raise ValueError("wrong checksum")
        next_offset = base + delta + 1
        self._check_place(fetched, at, end, next_offset)
        if self._holds_no_record(batch):
            return [], next_offset, len(raw)
        self._by_broker = bool(attributes & LOG_APPEND_TIME)
        size = len(raw)
        if attributes & _CODEC:
            content = decompress(attributes & _CODEC, raw[_HEADER.size :])
            length, size = _HEADER.size - _LENGTH_END + len(content), len(content)
            header = _HEADER.pack(base, length, epoch, magic, checksum, attributes & ~_CODEC, delta, *others)
            raw = header + content
        runs = self._walk(raw) if self._walk is not None and others[-1] >= LEAST_WALKED else None
        records = runs if runs is not None else [self._make(record) for record in DefaultRecordBatch(raw)]
        if records and not base <= first_offset(records[0]) <= records[-1].offset < next_offset:
            raise ValueError("offsets of records lie outside of the batch")
        return records, next_offset, size

    def _tell_stamp(self) -> None:
        if self._stamped is not None and self._by_broker is not None and self._by_broker is not self._told:
            self._told = self._by_broker
            self._stamped(self._tp.topic, self._by_broker)

    def _check_place(self, raw: bytes, at: int, end: int, next_offset: int) -> None:
        """Refuse a batch whose offset, which no checksum covers, cannot be right.

        A broker sends the batch that holds the offset asked for, and then those that follow. Offsets may be missing
        between them where a topic is compacted.

        Raises:
            MisplacedError: the batch lies elsewhere.
        """
        first, asked = _base(raw, at), self.next_fetch_offset
        if first <= asked < next_offset and (at == 0 or first == asked):
            return
        follows = _base_if_whole(raw, end)
        if asked < first < asked + _MOST_RECORDS and (follows is None or next_offset <= follows):
            return
        raise MisplacedError(f"its offset is {first}, where {asked} was expected")

    def _set_aside(self, raw: bytes, at: int, end: int, error: Exception) -> tuple[list[Any], int, bool]:
        """Return what stands for a batch that cannot be decoded, the offset behind it, and whether to read on.

        Nothing of it can be trusted. It holds the offset asked for, since the broker sent it. It ends where the batch
        that follows begins, or where its header says, if that agrees with itself; the lower one of both, since
        reading again what was reported costs less than passing over what was not. If the batch that follows does not
        begin there, its length may be wrong, and the next fetch finds the true one.
        """
        first, asked = _base(raw, at), self.next_fetch_offset
        is_inside = first < asked < first + _MOST_RECORDS and not isinstance(error, MisplacedError)
        start = first if is_inside else asked
        follows = _base_if_whole(raw, end)
        candidates = [] if follows is None else [follows]
        if end - at >= _HEADER.size:
            header = _HEADER.unpack_from(raw, at)
            delta, records = header[6], header[12]
            if 0 <= delta < _MOST_RECORDS and delta == records - 1:
                candidates.append(start + delta + 1)
        ahead = [offset for offset in candidates if asked < offset <= asked + _MOST_RECORDS]
        next_offset = min(ahead, default=asked + 1)
        # Reading went on inside of it: it was reported before.
        items = [] if is_inside else [Undecodable(asked, next_offset - 1, _fault(error), raw[at:end])]
        return items, next_offset, next_offset == follows

    def _holds_no_record(self, batch: Any) -> bool:
        """Tell whether a batch is a marker of a transaction, or belongs to one that was aborted."""
        if self._isolation_level == fetcher.READ_COMMITTED:
            self._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch and self._contains_abort_marker(batch):
                self._aborted_producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in self._aborted_producers:
                return True
        return bool(batch.is_control_batch)

    def _decode_old(self, raw: bytes) -> tuple[list[Any], int, int]:
        """Decode a batch in the format of brokers before 0.11, which has no bound on what it expands to."""
        batch = MemoryRecords(raw).next_batch()
        if raw[_MAGIC_AT + 1] & _CODEC:
            raise ValueError(f"format version {raw[_MAGIC_AT]} is read only without compression")
        if not batch.validate_crc():
            raise ValueError("wrong checksum")
        return [self._make(record) for record in batch], batch.next_offset, len(raw)


def _end(raw: bytes, at: int) -> int | None:
    """Return where the batch that begins here ends; None if it is not whole, or its length cannot be right."""
    if at + _LENGTH_END > len(raw):
        return None
    (length,) = struct.unpack_from(">i", raw, at + 8)
    end = at + _LENGTH_END + length
    return end if length >= 0 and end <= len(raw) else None


def _base(raw: bytes, at: int) -> int:
    """Return the offset that a batch says it begins with; -1 if not even that is there."""
    return int(struct.unpack_from(">q", raw, at)[0]) if at + 8 <= len(raw) else -1


def _base_if_whole(raw: bytes, at: int) -> int | None:
    """Return the offset of the batch that begins here; None if there is none, or it is not whole or damaged."""
    end = _end(raw, at)
    if end is None or end - at < _HEADER.size or raw[at + _MAGIC_AT] != _MAGIC:
        return None
    return _base(raw, at) if DefaultRecordBatch(raw[at:end]).validate_crc() else None


def _fault(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


class _Results(OrderedDict[Any, Any]):
    """What aiokafka's fetcher holds for each partition until it is asked for, decoded by us."""

    def __init__(self, make: MakeRecord, walk: WalkRecords | None, stamped: Stamped | None) -> None:
        super().__init__()
        self._make, self._walk, self._stamped = make, walk, stamped

    def __setitem__(self, tp: Any, result: Any) -> None:
        fetched = getattr(result, "_partition_records", None)
        if fetched is not None:  # otherwise an error, to be raised when the partition is asked for
            result._partition_records = DecodedRecords(fetched, self._make, self._walk, self._stamped)
        super().__setitem__(tp, result)


def decode_here(
    consumer: Any, make: MakeRecord = plain, walk: WalkRecords | None = None, stamped: Stamped | None = None
) -> None:
    """Let a started consumer of aiokafka decode by these rules; call it in the thread of the consumer.

    With `walk` records come as columns, but for those in a format of old brokers.
    """
    reader = consumer._fetcher
    if not isinstance(reader._records, _Results):
        # The fetcher may have begun; what it holds has the old form.
        held, reader._records = reader._records, _Results(make, walk, stamped)
        for tp, result in held.items():
            reader._records[tp] = result
