"""Record batches of any producer, broker or disk: decoded, or set aside with their place; never an error."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import crc32c
import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka import batches
from streams.kafka.batches import LEAST_WALKED, MAX_FETCHED_BYTES, DecodedRecords, headed, plain
from streams.kafka.messages import (
    LOG_APPEND_TIME,
    FetchBatch,
    HeadedRecord,
    NoRecord,
    Record,
    RecordRun,
    RunRecords,
    Undecodable,
)
from streams.worker.record_walk import runs_of

TP = TopicPartition("reports", 0)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TRANSACTIONAL, CONTROL = 0x10, 0x20


def batch(
    base: int, *values: bytes | None, codec: int = 0, attributes: int = 0, producer: int = -1, key: bytes | None = None
) -> bytes:
    """Return a record batch as a broker stores it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, producer, 0, 0, 1 << 30)
    for number, value in enumerate(values):
        builder.append(number, 1_000 + number, key, value, [("name", b"x")])
    raw = bytearray(builder.build())
    raw[:8] = struct.pack(">q", base)
    raw[22] |= attributes
    return sealed(raw)


def sealed(raw: bytearray) -> bytes:
    raw[17:21] = struct.pack(">I", crc32c.crc32c(bytes(raw[21:])))
    return bytes(raw)


def decoded(raw: bytes, *, at: int = 0, aborted: Sequence[tuple[int, int]] = (), make: Any = plain) -> DecodedRecords:
    def fetched() -> Any:
        return fetcher.PartitionRecords(TP, fetcher.MemoryRecords(raw), list(aborted), at, None, None, True, 1)

    if make is plain:
        one_by_one, in_columns = DecodedRecords(fetched(), plain), DecodedRecords(fetched(), plain, runs_of)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(batches, "LEAST_WALKED", 1)  # small ones too
            assert told(in_columns) == told(one_by_one)
        assert in_columns.next_fetch_offset == one_by_one.next_fetch_offset
    return DecodedRecords(fetched(), make)


def told(reading: DecodedRecords) -> list[Any]:
    """Return all items, records of a run one by one, and why a batch cannot be decoded left out: both decoders say it
    in words of their own.
    """
    found: list[Any] = []
    for item in reading:
        if isinstance(item, RecordRun):
            found += RunRecords([item])
        else:
            found.append(item._replace(fault="") if isinstance(item, Undecodable) else item)
    return found


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_codec_is_read(codec: int) -> None:
    raw = batch(7, b"a" * 1_000, None, b"", codec=codec)
    assert list(decoded(raw, at=7)) == [Record(7, 1_000, b"a" * 1_000), Record(8, 1_001, None), Record(9, 1_002, b"")]
    [first, *_] = decoded(raw, at=7, make=headed)
    assert first == HeadedRecord(7, 1_000, b"a" * 1_000, [("name", b"x")])


def test_small_batches_and_large_ones_become_one_fetch_batch_in_order() -> None:
    small, large = batch(7, b"a"), batch(8, *[b"b"] * LEAST_WALKED)
    raw = small + large + batch(8 + LEAST_WALKED, b"c")
    unpacked = fetcher.PartitionRecords(TP, fetcher.MemoryRecords(raw), [], 7, None, None, True, 1)
    items = list(DecodedRecords(unpacked, plain, runs_of))
    assert [type(item) for item in items] == [Record, RecordRun, Record], "a walk takes longer than one record does"
    records = FetchBatch.of(TP.topic, TP.partition, 7, items).records
    assert [record.offset for record in records] == list(range(7, 9 + LEAST_WALKED))
    assert [record.value for record in records] == [b"a", *[b"b"] * LEAST_WALKED, b"c"]


def test_whose_clock_stamped_a_batch_is_told_once_until_it_changes() -> None:
    told: list[tuple[str, bool]] = []
    by_broker = [False, True, True, False, True]
    made = [batch(base, b"x", attributes=LOG_APPEND_TIME * stamp) for base, stamp in enumerate(by_broker)]
    marker = batch(5, b"\0\0\0\1\0\0\0\0", attributes=TRANSACTIONAL | CONTROL)
    unpacked = fetcher.PartitionRecords(TP, fetcher.MemoryRecords(b"".join(made) + marker), [], 0, None, None, True, 1)
    reading = DecodedRecords(unpacked, plain, stamped=lambda *stamp: told.append(stamp))
    assert len(list(reading)) == 6
    assert told == [(TP.topic, stamp) for stamp in (False, True, False, True)]


def test_a_damaged_batch_is_set_aside_and_its_neighbours_are_read() -> None:
    good, after = batch(0, b"a"), batch(4, b"b")
    wrong = bytearray(batch(1, b"x", b"y", b"z"))
    wrong[-1] ^= 1
    reading = decoded(good + bytes(wrong) + after)
    assert list(reading) == [
        Record(0, 1_000, b"a"),
        Undecodable(1, 3, "wrong checksum", bytes(wrong)),
        Record(4, 1_000, b"b"),
    ]
    assert reading.next_fetch_offset == 5


def test_a_damaged_header_does_not_move_the_place_too_far() -> None:
    wrong = bytearray(batch(1, b"x", b"y"))
    wrong[23:27] = struct.pack(">i", 1 << 30)  # claims a billion records
    assert [item.offset for item in decoded(bytes(wrong) + batch(3, b"b"), at=1)] == [2, 3]
    alone = decoded(bytes(wrong), at=1)
    assert [item.offset for item in alone] == [1]
    assert alone.next_fetch_offset == 2
    assert list(decoded(bytes(wrong), at=2)) == [NoRecord(2, 2)], "it was reported before"


def test_markers_and_aborted_records_are_passed_over() -> None:
    marker = batch(2, b"", key=b"\0\0\0\0", attributes=CONTROL | TRANSACTIONAL, producer=5)
    raw = batch(0, b"a", b"b", attributes=TRANSACTIONAL, producer=5) + marker + batch(3, b"c")
    assert list(decoded(raw, aborted=[(5, 0)])) == [NoRecord(0, 1), NoRecord(2, 2), Record(3, 1_000, b"c")]
    assert [item.offset for item in decoded(raw)] == [0, 1, 2, 3], "committed"
    assert next(iter(decoded(raw, at=1, aborted=[(5, 0)]))) == NoRecord(1, 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_expands_beyond_the_limit_is_set_aside(codec: int) -> None:
    raw = batch(0, bytes(17 << 20), codec=codec)
    [found] = decoded(raw)
    assert isinstance(found, Undecodable)
    assert "more than 16777216 bytes" in found.fault


def test_the_rest_of_a_fetch_that_expands_is_left_to_the_next() -> None:
    raw = b"".join(batch(number, bytes(3 << 20), codec=4) for number in range(9))
    reading = decoded(raw)
    found = list(reading)
    assert [record.offset for record in found] == [0, 1, 2]
    assert MAX_FETCHED_BYTES <= 3 * (3 << 20)
    assert reading.next_fetch_offset == 3


def test_an_old_format_is_read_only_without_compression() -> None:
    message = struct.pack(">bbqi", 1, 8, 1_000, -1) + struct.pack(">i", 1) + b"v"

    whole = struct.pack(">I", zlib.crc32(message)) + message
    raw = struct.pack(">qi", 0, len(whole)) + whole
    assert list(decoded(raw)) == [Record(0, 1_000, b"v")]
    packed = struct.pack(">bbqi", 1, 9, 1_000, -1) + struct.pack(">i", 1) + b"v"
    whole = struct.pack(">I", zlib.crc32(packed)) + packed
    [found] = decoded(struct.pack(">qi", 0, len(whole)) + whole)
    assert "only without compression" in found.fault


def read_all(log: Sequence[tuple[int, bytes]], end: int, limit_bytes: int) -> list[Any]:
    """Read a log as a consumer does: each fetch begins with the whole batch that holds the offset asked for."""
    items: list[Any] = []
    place = fetches = 0
    while place < end:
        fetches += 1
        assert fetches < 20, "the place does not move"
        first = max(number for number, (offset, _) in enumerate(log) if offset <= place)
        raw = b"".join(batch for _, batch in log[first:])
        reading = decoded(raw[: max(limit_bytes, len(log[first][1]))], at=place)
        items += reading
        place = reading.next_fetch_offset
    return items


LENGTH, BASE = slice(8, 12), slice(0, 8)


@pytest.mark.parametrize("limit_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize(
    ("part", "value"),
    [
        (LENGTH, struct.pack(">i", 2_000_000)),
        (LENGTH, struct.pack(">i", 20)),
        (LENGTH, struct.pack(">i", 0)),
        (LENGTH, struct.pack(">i", -5)),
        (LENGTH, struct.pack(">i", 260)),  # the whole of the batch behind it as well
        (BASE, struct.pack(">q", 1 << 40)),
        (BASE, struct.pack(">q", -5)),
    ],
)
def test_a_wrong_length_or_offset_is_set_aside_and_all_others_are_read(
    part: slice, value: bytes, limit_bytes: int
) -> None:
    """No checksum covers them."""
    wrong = bytearray(batch(1, b"x" * 50, b"y" * 50))
    wrong[part] = value
    log = [(0, batch(0, b"a")), (1, bytes(wrong)), (3, batch(3, b"b" * 50)), (4, batch(4, b"c"))]
    items = read_all(log, 5, limit_bytes)
    values = [item.value for item in items if isinstance(item, Record)]
    assert values == [b"a", b"b" * 50, b"c"]
    assert [item.first_offset for item in items if isinstance(item, Undecodable)] == [1]
    covered = [(item.first_offset, item.offset) for item in items if not isinstance(item, Record)]
    assert covered in ([(1, 2)], [(1, 1), (2, 2)])


def test_an_offset_that_is_a_little_wrong_is_found_out_by_the_batch_that_follows() -> None:
    """Alone in its fetch it looks like a batch behind a gap, as a compacted topic has them."""
    log = [(0, batch(0, b"a")), (1, batch(2, b"x", b"y")), (3, batch(3, b"b")), (4, batch(4, b"c"))]
    items = read_all(log, 5, 1 << 20)
    assert [item.value for item in items if isinstance(item, Record)] == [b"a", b"b", b"c"]
    assert [type(item) for item in items][1] is Undecodable
    compacted = [(0, batch(0, b"a")), (1, batch(7, b"x", b"y")), (9, batch(20, b"b"))]
    assert [item.offset for item in read_all(compacted, 21, 1 << 20)] == [0, 7, 8, 20]


@given(st.data())
def test_no_change_of_any_byte_stops_reading(data: st.DataObject) -> None:
    """Whatever is changed, reading reaches the end, and what was not changed is read.

    Unless its checksum is made right again: then what it says of its offsets is believed.
    """
    codec = data.draw(st.sampled_from(sorted(CODECS.values())))
    wrong = bytearray(batch(1, b"x" * 50, b"y" * 50, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        wrong[data.draw(st.integers(0, len(wrong) - 1))] = data.draw(st.integers(0, 255))
    is_sealed = data.draw(st.booleans())
    changed = sealed(wrong) if is_sealed else bytes(wrong)
    limit_bytes = data.draw(st.sampled_from([150, 1 << 20]))
    log = [(0, batch(0, b"a")), (1, changed), (3, batch(3, b"b")), (4, batch(4, b"c"))]
    items = read_all(log, 5, limit_bytes)
    assert items[0] == Record(0, 1_000, b"a")
    offsets = [item.offset for item in items]
    assert offsets == sorted(set(offsets))
    if not is_sealed and limit_bytes > 150:
        assert items[-2:] == [Record(3, 1_000, b"b"), Record(4, 1_000, b"c")]


@given(st.binary(max_size=400))
def test_no_bytes_stop_reading(raw: bytes) -> None:
    list(decoded(raw))
