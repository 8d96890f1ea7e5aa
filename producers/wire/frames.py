"""The wire: a message is one or more frames back to back, a frame holds reports of one survey, window and shard.

Frame, little-endian:

    offset  bytes
    0       3      `THW`
    3       1      version
    4       4      total length of the frame
    8       8      survey digest
    16      8      window start, ms
    24      8      sent, ms
    32      2      shard
    34      4      number of reports n
    38      2      zero
    40             columns, each padded with zeros to a multiple of 8:
                   tokens 16 n, answers width n, rungs n, groups 2 n (absent if the survey has one group)

`sent` is when a simulated report left; a real device writes the public moment at which the rung opened (the window's
start for the first), since its own clock's error would recognise it in every window.

There is no message key and no field that outlives a window. The width of an answer and whether groups are present
follow from the survey, so a frame cannot contradict it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1
MAGIC = b"THW"
HEADER_BYTES = 40
TOKEN_BYTES = 16
MAX_REPORTS = 65_536
MAX_MESSAGE_BYTES = 1 << 20
PACK_BYTES = MAX_MESSAGE_BYTES - 4096
"""What senders fill: a broker with default settings counts its own headers towards a limit of about 1 MiB."""

SCHEMA_HEADER = ("schema", b"thaw.frame.v1")
"""The only header of a record: it says how to read it and nothing about who sent it."""

_HEADER = struct.Struct("<3sBI8sqqHI2x")
assert _HEADER.size == HEADER_BYTES


class FrameError(ValueError):
    """Bytes that are not a good frame. `reason` is a short word for counters and dead letters.

    `resume` is the offset in the message at which the next frame may start, or None if that cannot be known.
    """

    def __init__(self, reason: str, message: str, resume: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.resume = reason, resume


@dataclass(frozen=True)
class Layout:
    """What a survey fixes about its reports: answer width in bytes and whether a group column is present."""

    width: int
    grouped: bool

    def frame_bytes(self, count: int) -> int:
        """Return the length of a frame of `count` reports."""
        size = HEADER_BYTES + _padded(TOKEN_BYTES * count) + _padded(self.width * count) + _padded(count)
        return size + (_padded(2 * count) if self.grouped else 0)

    def fitting(self, limit_bytes: int = PACK_BYTES) -> int:
        """Return how many reports fit into a frame of at most limit_bytes, 0 if not even one does."""
        each = TOKEN_BYTES + self.width + 1 + (2 if self.grouped else 0)
        count = min(max(limit_bytes - HEADER_BYTES, 0) // each, MAX_REPORTS)
        while count and self.frame_bytes(count) > limit_bytes:
            count -= 1
        return count


@dataclass(frozen=True)
class Header:
    """The fixed part of a frame and where the frame lies inside its message."""

    digest: bytes
    window_ms: int
    sent_ms: int
    shard: int
    count: int
    start: int
    length: int


@dataclass(frozen=True)
class Reports:
    """The columns of a frame: tokens (n, 16) u1, answers (n, width) u1, rungs (n,) u1, groups (n,) u2 or None."""

    tokens: NDArray[np.uint8]
    answers: NDArray[np.uint8]
    rungs: NDArray[np.uint8]
    groups: NDArray[np.uint16] | None

    def __len__(self) -> int:
        return len(self.rungs)


def shards_of(tokens: NDArray[np.uint8], shards: int) -> NDArray[np.int64]:
    """Return the shard of each token: its last three bytes, little-endian, modulo the number of shards.

    The other thirteen bytes are what the store keeps, so that they stay uniform inside a shard.
    """
    tail = tokens[:, 13:16].astype(np.int64)
    return (tail[:, 0] | tail[:, 1] << 8 | tail[:, 2] << 16) % shards


def encode(digest: bytes, window_ms: int, sent_ms: int, shard: int, reports: Reports, layout: Layout) -> bytes:
    """Return one frame. The caller guarantees that all tokens belong to the shard."""
    count = len(reports)
    if not 1 <= count <= MAX_REPORTS:
        raise ValueError(f"a frame holds 1 to {MAX_REPORTS} reports; got {count}; split them")
    if reports.answers.shape != (count, layout.width):
        raise ValueError(f"answers must have shape {(count, layout.width)}; got {reports.answers.shape}")
    if (reports.groups is not None) != layout.grouped:
        raise ValueError("groups must be given exactly when the survey has more than one group")
    length = layout.frame_bytes(count)
    columns = [reports.tokens, reports.answers, reports.rungs.astype("u1")]
    if reports.groups is not None:
        columns.append(reports.groups.astype("<u2"))
    parts = [_HEADER.pack(MAGIC, VERSION, length, digest, window_ms, sent_ms, shard, count)]
    for column in columns:
        raw = column.tobytes()
        parts += [raw, bytes(-len(raw) % 8)]
    return b"".join(parts)


def pack_messages(frames: Iterable[bytes], limit_bytes: int = PACK_BYTES) -> list[bytes]:
    """Put frames of one partition back to back into messages of at most limit_bytes, in order.

    A frame longer than the limit becomes a message of its own.
    """
    messages: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for frame in frames:
        if waiting and size + len(frame) > limit_bytes:
            messages.append(b"".join(waiting))
            waiting, size = [], 0
        waiting.append(frame)
        size += len(frame)
    if waiting:
        messages.append(b"".join(waiting))
    return messages


def headers(message: bytes | memoryview) -> Iterator[Header | FrameError]:
    """Walk the frames of a message without trusting any of them.

    A frame with a sane length but another fault is reported and skipped; after a length that cannot be right nothing
    more is read, since the next frame could be anywhere.
    """
    position, total = 0, len(message)
    if total == 0:
        yield FrameError("empty", "the message has no bytes")
    while position < total:
        if total - position < HEADER_BYTES:
            yield FrameError("length", f"{total - position} bytes left; a frame has at least {HEADER_BYTES}")
            return
        magic, version, length, digest, window_ms, sent_ms, shard, count = _HEADER.unpack_from(message, position)
        if magic != MAGIC:
            yield FrameError("magic", f"a frame starts with {MAGIC!r}; got {bytes(magic)!r}")
            return
        if not HEADER_BYTES <= length <= total - position or length % 8:
            yield FrameError("length", f"a frame of {length} bytes does not fit the {total - position} bytes left")
            return
        if version != VERSION:
            yield FrameError("version", f"this worker reads version {VERSION}; got {version}", position + length)
        elif not 1 <= count <= MAX_REPORTS:
            yield FrameError("count", f"a frame holds 1 to {MAX_REPORTS} reports; got {count}", position + length)
        else:
            yield Header(bytes(digest), window_ms, sent_ms, shard, count, position, length)
        position += length


def columns(message: bytes | memoryview, header: Header, layout: Layout) -> Reports:
    """Read the columns of a frame as views of the message; FrameError if its length does not fit the survey."""
    expected = layout.frame_bytes(header.count)
    if header.length != expected:
        raise FrameError(
            "length", f"{header.count} reports of this survey take {expected} bytes; the frame says {header.length}"
        )
    position = header.start + HEADER_BYTES

    def take(size: int, dtype: str) -> NDArray[Any]:
        nonlocal position
        column = np.frombuffer(message, dtype=dtype, count=size, offset=position)
        position += _padded(column.nbytes)
        return column

    count = header.count
    tokens = take(TOKEN_BYTES * count, "u1").reshape(count, TOKEN_BYTES)
    answers = take(layout.width * count, "u1").reshape(count, layout.width)
    rungs = take(count, "u1")
    groups = take(count, "<u2") if layout.grouped else None
    return Reports(tokens, answers, rungs, groups)


def _padded(size: int) -> int:
    return size + -size % 8
