"""Rows of an export: reports, refused frames and estimates as Arrow tables, and reports back into frames.

docs/export.md describes every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from producers.survey.survey import Survey
from producers.wire.frames import Reports, encode
from producers.wire.layout import KEY_BYTES, MAX_REPORTS, TOKEN_BYTES, TOKEN_NAME_BYTES
from streams.kafka.messages import FetchBatch, Record
from streams.store.shape import Key, Shape
from streams.windows.record import EstimateRecord, RecordError, ValueEstimate, decode_estimate
from streams.worker import kernels
from streams.worker.fold import Checked, DeadLetter
from streams.worker.precedence import tie_hashes
from streams.worker.table import unpack
from streams.worker.words import Ints, Words

_PLACE: Final = [("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), ("broker_ms", pa.int64())]
REPORT_SCHEMA: Final = pa.schema(
    [
        *_PLACE,
        ("sent_ms", pa.int64()),
        ("token", pa.binary(TOKEN_NAME_BYTES)),
        ("rung", pa.int16()),
        ("tie", pa.int64()),
        ("group_number", pa.int32()),
        ("answer", pa.int64()),
        ("bits", pa.string()),
    ]
)
_KEYS: Final = [("token_end", pa.binary(TOKEN_BYTES - TOKEN_NAME_BYTES)), ("key", pa.binary(KEY_BYTES))]
KEYED_SCHEMA: Final = pa.schema([*REPORT_SCHEMA, *_KEYS])
"""Of withdrawable surveys: what it takes to check a report again."""
REFUSED_SCHEMA: Final = pa.schema(
    [
        *_PLACE,
        ("topic", pa.string()),
        ("reason", pa.string()),
        ("last_offset", pa.int64()),
        ("detail", pa.string()),
        ("frame", pa.binary()),
    ]
)
_NUMBERS: Final = pa.struct(
    [(name, pa.string() if name == "value" else pa.float64()) for name in ValueEstimate.__struct_fields__]
)
ESTIMATE_SCHEMA: Final = pa.schema(
    [
        *_PLACE,
        ("window_ms", pa.int64()),
        ("computed_ms", pa.int64()),
        ("users", pa.int64()),
        ("method", pa.string()),
        ("estimates", pa.list_(_NUMBERS)),
        ("record", pa.binary()),
    ]
)
NO_ESTIMATE: Final = "estimate"
"""Why a record of the estimates topic is refused."""

_TIE_SHIFT: Final = np.uint64(1 << 63)
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), dtype="S2")


class Traced:
    """Reports of one log with where they come from: entries of the log, and columns in the same order.

    keys holds the key of each report and the end of its token, None where the survey has no keys.
    """

    def __init__(
        self,
        entries: Words,
        partition: int,
        offsets: Ints,
        broker_ms: Ints,
        sent_ms: Ints,
        keys: NDArray[np.uint8] | None = None,
    ) -> None:
        self.entries, self.partition = entries, partition
        self.offsets, self.broker_ms, self.sent_ms = offsets, broker_ms, sent_ms
        self.keys = keys


def traced(batches: Sequence[FetchBatch], checked: Checked) -> Iterator[tuple[Key, Traced]]:
    """Return the good reports of checked batches by log, with the records that they came in; keys were kept."""
    records = [record for batch in batches for record in batch.records]
    places = np.repeat([batch.partition for batch in batches], [len(batch.records) for batch in batches])
    offsets = np.array([record.offset for record in records], dtype=np.int64)
    times = np.array([record.timestamp_ms for record in records], dtype=np.int64)
    for key, entries in checked.reports.items():
        frames = checked.frames[key]
        counts = frames[:, kernels.COUNT]
        message = np.repeat(frames[:, kernels.MESSAGE], counts)
        sent_ms = np.repeat(frames[:, kernels.SENT_MS], counts)
        # All reports of a shard lie in one partition; frames elsewhere were refused.
        found = checked.keys.get(key)
        yield key, Traced(entries, int(places[message[0]]), offsets[message], times[message], sent_ms, found)


def report_table(pieces: Sequence[Traced], shape: Shape) -> Any:
    """Return the reports of one log as a table, in the order of their offsets."""
    entries = np.concatenate([piece.entries for piece in pieces])
    found = unpack(entries.tobytes(), shape)
    count, is_index = len(entries), shape.kind == "index"
    answers = np.ascontiguousarray(found.answers)
    columns = {
        "kafka_partition": np.full(count, pieces[0].partition, dtype=np.int32),
        "kafka_offset": np.concatenate([piece.offsets for piece in pieces]),
        "broker_ms": np.concatenate([piece.broker_ms for piece in pieces]),
        "sent_ms": np.concatenate([piece.sent_ms for piece in pieces]),
        "token": _fixed(found.tokens),
        "rung": found.rungs.astype(np.int16),
        # Signed, so that engines without unsigned numbers find the same order.
        "tie": (tie_hashes(entries) ^ _TIE_SHIFT).view(np.int64),
        "group_number": found.groups.astype(np.int32),
        "answer": answers.view(f"<u{shape.width}").ravel().astype(np.int64)
        if is_index
        else pa.nulls(count, pa.int64()),
        "bits": pa.nulls(count, pa.string()) if is_index else _numerals(answers),
    }
    keys = [piece.keys for piece in pieces if piece.keys is not None]
    if not keys:
        return pa.table(columns, schema=REPORT_SCHEMA)
    joined = np.concatenate(keys)
    columns |= {"token_end": _fixed(joined[:, KEY_BYTES:]), "key": _fixed(joined[:, :KEY_BYTES])}
    return pa.table(columns, schema=KEYED_SCHEMA)


def _fixed(rows: NDArray[np.uint8]) -> Any:
    raw = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, raw])


def _numerals(answers: NDArray[np.uint8]) -> Any:
    """Return packed bits as hexadecimal numbers of equal length: the greater text is the greater number."""
    text = np.ascontiguousarray(_HEX[answers[:, ::-1]])
    digits = 2 * answers.shape[1]
    ends = np.arange(0, digits * (len(answers) + 1), digits, dtype=np.int64)
    array = pa.LargeStringArray.from_buffers(len(answers), pa.py_buffer(ends), pa.py_buffer(text))
    return array.cast(pa.string())


def refused_table(batches: Sequence[FetchBatch], refused: Iterable[DeadLetter]) -> Any:
    """Return frames, or whole record batches, that are not counted, as a table."""
    times = {(batch.partition, record.offset): record.timestamp_ms for batch in batches for record in batch.records}
    rows = [
        {
            "kafka_partition": letter.partition,
            "kafka_offset": letter.offset,
            # A record batch that cannot be decoded has no readable time.
            "broker_ms": times.get((letter.partition, letter.offset)),
            "topic": letter.topic,
            "reason": letter.reason,
            "last_offset": letter.last_offset,
            "detail": letter.detail,
            "frame": letter.frame,
        }
        for letter in refused
    ]
    return pa.Table.from_pylist(rows, schema=REFUSED_SCHEMA)


def estimate_tables(batches: Sequence[FetchBatch]) -> tuple[dict[str, Any], list[DeadLetter]]:
    """Return published estimates by survey id, and what is none."""
    rows: dict[str, list[dict[str, Any]]] = {}
    refused: list[DeadLetter] = []
    for batch in batches:
        for record in batch.records:
            try:
                found = decode_estimate(record.value or b"")
            except RecordError as error:
                letter = DeadLetter(batch.topic, batch.partition, record.offset, NO_ESTIMATE, record.value or b"")
                refused.append(letter._replace(detail=str(error)))
                continue
            rows.setdefault(found.survey, []).append(_estimate_row(batch.partition, record, found))
    return {name: pa.Table.from_pylist(some, schema=ESTIMATE_SCHEMA) for name, some in rows.items()}, refused


def _estimate_row(partition: int, record: Record, found: EstimateRecord) -> dict[str, Any]:
    return {
        "kafka_partition": partition,
        "kafka_offset": record.offset,
        "broker_ms": record.timestamp_ms,
        "window_ms": found.window_start_ms,
        "computed_ms": found.computed_ms,
        "users": found.users,
        "method": found.method,
        "estimates": [msgspec.to_builtins(value) for value in found.values],
        "record": record.value,
    }


def messages_of(survey: Survey, key: Key, table: Any) -> Iterator[tuple[int, Record]]:
    """Return the rows of one log as messages again, by partition: one for each record that they came in.

    What the export does not keep, and no rule asks for, is made up: the last three bytes of tokens without keys, which
    give the shard.
    """
    if not table.num_rows:
        return
    columns: Mapping[str, Any] = {name: table[name].combine_chunks() for name in table.column_names}
    offsets, times, sent = (columns[name].to_numpy() for name in ("kafka_offset", "broker_ms", "sent_ms"))
    partitions = columns["kafka_partition"].to_numpy()
    reports = _reports(survey, key, columns)
    changed = (np.diff(partitions) != 0) | (np.diff(offsets) != 0) | (np.diff(times) != 0) | (np.diff(sent) != 0)
    cuts = [0, *(np.flatnonzero(changed) + 1).tolist(), len(offsets)]
    for first, last in pairwise(cuts):
        for start in range(first, last, MAX_REPORTS):
            rows = slice(start, min(start + MAX_REPORTS, last))
            groups = None if reports.groups is None else reports.groups[rows]
            keys = None if reports.keys is None else reports.keys[rows]
            some = Reports(reports.tokens[rows], reports.answers[rows], reports.rungs[rows], groups, keys)
            frame = encode(survey.digest, key.window_ms, int(sent[first]), key.shard, some, survey.layout)
            yield int(partitions[first]), Record(int(offsets[first]), int(times[first]), frame)


def _reports(survey: Survey, key: Key, columns: Mapping[str, Any]) -> Reports:
    shape = Shape.of(survey)
    names = np.frombuffer(b"".join(columns["token"].to_pylist()), dtype=np.uint8).reshape(-1, TOKEN_NAME_BYTES)
    tails = np.frombuffer(key.shard.to_bytes(TOKEN_BYTES - TOKEN_NAME_BYTES, "little"), dtype=np.uint8)
    tails, keys = np.tile(tails, (len(names), 1)), None
    if survey.withdrawable:
        tails = np.frombuffer(b"".join(columns["token_end"].to_pylist()), dtype=np.uint8).reshape(len(names), -1)
        keys = np.frombuffer(b"".join(columns["key"].to_pylist()), dtype=np.uint8).reshape(-1, KEY_BYTES)
    tokens = np.hstack([names, tails])
    if shape.kind == "index":
        numbers = columns["answer"].to_numpy().astype(f"<u{shape.width}")
        answers = numbers.view(np.uint8).reshape(-1, shape.width)
    else:
        numerals = bytes.fromhex("".join(columns["bits"].to_pylist()))
        answers = np.frombuffer(numerals, dtype=np.uint8).reshape(-1, shape.width)[:, ::-1]
    groups = columns["group_number"].to_numpy().astype(np.uint16) if survey.layout.grouped else None
    return Reports(tokens, np.ascontiguousarray(answers), columns["rung"].to_numpy().astype(np.uint8), groups, keys)
