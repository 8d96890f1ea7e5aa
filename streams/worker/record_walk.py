"""Compiled walk over the records of a Kafka batch, and their copy into one aligned buffer.

A record costs Python microseconds and this walk a tenth of one: with one report a message that is most of what a worker
does. It checks what aiokafka checks: every number lies inside its record, every record inside its batch, and nothing
is left.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.kafka.messages import LOG_APPEND_TIME, RecordRun
from streams.worker.words import Ints, compiled

Bytes = NDArray[np.uint8]

_HEADER_BYTES: Final = 61
_ATTRIBUTES: Final = struct.Struct(">hiqq")
"""Attributes, last offset - base offset, first and last timestamp."""
_ATTRIBUTES_AT: Final = 21
_COUNT_AT: Final = 57
_LEAST_RECORD_BYTES: Final = 7
"""Length, attributes, time, offset, no key, no value, no headers: a byte each."""

OFFSET, TIME, START, LENGTH = range(4)
"""Columns of what `walk_records` writes; a length of -1 is a null value."""


@compiled
def walk_records(raw: Bytes, at: int, found: Ints) -> bool:
    """Write a row for each record from byte `at` on; False if they do not fill the batch exactly, or may be refused.

    Long because it is one loop, and calls inside it would cost time per record.
    """
    size = len(raw)
    # 0 length, 1 time, 2 offset, 3 key, 4 value, 5 headers, then a key and a value of each header.
    for row in range(len(found)):
        end = size
        field = 0
        headers = 0
        while True:
            number = np.uint64(0)
            shift = 0
            while True:
                if at >= end or shift > 63:
                    return False
                byte = np.uint64(raw[at])
                at += 1
                number = number | (byte & np.uint64(0x7F)) << np.uint64(shift)
                if byte < np.uint64(0x80):
                    break
                shift += 7
            signed: int = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))  # type: ignore[assignment]
            if field == 0:
                if signed < 0 or signed > size - at:
                    return False
                end = at + signed
                at += 1  # attributes, all unused
            elif field == 1:
                found[row, 1] = signed
            elif field == 2:
                found[row, 0] = signed
            elif field == 5:
                if signed < 0 or signed > end - at:
                    return False
                headers = 2 * signed
            else:
                # Only a key of a header cannot be null.
                if signed < (0 if field > 5 and field % 2 == 0 else -1) or signed > end - at:
                    return False
                if field == 4:
                    found[row, 2] = at
                    found[row, 3] = signed
                if field > 5 and field % 2 == 0:
                    for i in range(at, at + signed):
                        if raw[i] >= 0x80:  # perhaps no UTF-8
                            return False
                if signed > 0:
                    at += signed
            if field >= 5:
                if headers == 0:
                    break
                headers -= 1
            field += 1
        if at != end:
            return False
    return at == size


@compiled
def gather(raw: Bytes, starts: Ints, lengths: Ints, out: Bytes, targets: Ints) -> None:
    """Copy pieces of one buffer to their places in another; both were checked to be inside."""
    for i in range(len(starts)):
        # Unsigned: a place that might be negative would be looked at before every byte, and no vector be made.
        start, target = np.uint64(starts[i]), np.uint64(targets[i])
        for j in range(lengths[i]):
            out[target + np.uint64(j)] = raw[start + np.uint64(j)]


def warm_up_walk() -> None:
    """Compile both loops."""
    none, nothing = np.zeros(0, dtype=np.int64), np.frombuffer(b"", dtype=np.uint8)
    walk_records(nothing, 0, np.zeros((0, 4), dtype=np.int64))
    gather(nothing, none, none, np.zeros(0, dtype=np.uint8), none)


def runs_of(raw: bytes) -> list[RecordRun] | None:
    """Return the records of an uncompressed batch of format 2 as one run; None where aiokafka must judge them."""
    attributes, _, first_ms, last_ms = _ATTRIBUTES.unpack_from(raw, _ATTRIBUTES_AT)
    (base,) = struct.unpack_from(">q", raw)
    (count,) = struct.unpack_from(">i", raw, _COUNT_AT)
    if not 0 < count <= (len(raw) - _HEADER_BYTES) // _LEAST_RECORD_BYTES:
        return None
    found = np.zeros((count, 4), dtype=np.int64)
    whole = walk_records(np.frombuffer(raw, dtype=np.uint8), _HEADER_BYTES, found)
    if not whole or np.any(np.diff(found[:, OFFSET]) <= 0):
        return None
    in_batch = np.full(count, last_ms) if attributes & LOG_APPEND_TIME else first_ms + found[:, TIME]
    return [RecordRun(raw, base + found[:, OFFSET], in_batch, found[:, START], found[:, LENGTH])]
