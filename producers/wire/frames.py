"""Writing and reading frames, each with the reports of one survey, window and shard, in the layout of `layout`.

Frames are read by the reader of their version. A new version of the format is a new entry in `READERS`; frames of a
version without a reader are refused and can be sent again after an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from producers.wire.layout import (
    GROUP_TYPE,
    HEADER,
    HEADER_BYTES,
    KEY_BYTES,
    KEYED_VERSION,
    MAGIC,
    MAX_REPORTS,
    PACK_BYTES,
    PLAIN_VERSION,
    PREFIX,
    TOKEN_BYTES,
    WORD_BYTES,
    Layout,
    padded,
)

Buffer = bytes | memoryview

_WRONG_VERSION: Final = (
    f"answers of this survey cannot be withdrawn: its frames have version {PLAIN_VERSION} and no keys",
    f"answers of this survey can be withdrawn: its frames have version {KEYED_VERSION}, with keys",
)
"""What is said of a frame that has keys and should not, and the other way round."""


class FrameError(ValueError):
    """Bytes that are not a valid frame. `reason` is the key of counters and dead letters.

    `resume` is the offset in the message at which the next frame may start, or None if that cannot be known.
    """

    def __init__(self, reason: str, message: str, resume: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.resume = reason, resume


@dataclass(frozen=True)
class Header:
    """The fixed part of a frame and where the frame lies inside its message."""

    version: int
    digest: bytes
    window_ms: int
    sent_ms: int
    shard: int
    count: int
    start: int
    length: int


@dataclass(frozen=True)
class Reports:
    """The columns of a frame: tokens (n, 16) u1, answers (n, width) u1, rungs (n,) u1, groups (n,) u2 or None.

    keys (n, 16) u1, for surveys whose answers can be withdrawn, otherwise None.
    """

    tokens: NDArray[np.uint8]
    answers: NDArray[np.uint8]
    rungs: NDArray[np.uint8]
    groups: NDArray[np.uint16] | None
    keys: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.rungs)


def encode(digest: bytes, window_ms: int, sent_ms: int, shard: int, reports: Reports, layout: Layout) -> bytes:
    """Return one frame. The caller guarantees that all tokens belong to the shard."""
    count = len(reports)
    if not 1 <= count <= MAX_REPORTS:
        raise ValueError(f"a frame holds 1 to {MAX_REPORTS} reports; got {count}; split them")
    if reports.answers.shape != (count, layout.width):
        raise ValueError(f"answers must have shape {(count, layout.width)}; got {reports.answers.shape}")
    if (reports.groups is not None) != layout.grouped:
        raise ValueError("groups must be given exactly when the survey has more than one group")
    if (reports.keys is not None) != layout.keyed:
        raise ValueError("keys must be given exactly when answers of the survey can be withdrawn")
    length = layout.frame_bytes(count)
    columns = [reports.tokens, reports.answers, reports.rungs.astype("u1")]
    if reports.groups is not None:
        columns.append(reports.groups.astype(GROUP_TYPE))
    if reports.keys is not None:
        columns.append(reports.keys)
    parts = [HEADER.pack(MAGIC, layout.version, length, digest, window_ms, sent_ms, shard, count)]
    for column in columns:
        raw = column.tobytes()
        parts += [raw, bytes(-len(raw) % WORD_BYTES)]
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


class Reader(Protocol):
    """Reads the frames of one version."""

    def header(self, message: Buffer, start: int, length: int) -> Header:
        """Read the header of the frame at `start`, which has `length` bytes, at least HEADER_BYTES.

        Raises:
            FrameError: the header cannot be right.
        """
        ...

    def columns(self, message: Buffer, header: Header, layout: Layout) -> Reports:
        """Read the columns of a frame as views of the message.

        Raises:
            FrameError: the length of the frame does not fit the survey.
        """
        ...


class ColumnReader:
    """The reader of version 1, and of version 2 where the survey has keys."""

    def header(self, message: Buffer, start: int, length: int) -> Header:
        """Read the header; FrameError if the number of reports cannot be right."""
        _, version, _, digest, window_ms, sent_ms, shard, count = HEADER.unpack_from(message, start)
        if not 1 <= count <= MAX_REPORTS:
            raise FrameError("count", f"a frame holds 1 to {MAX_REPORTS} reports; got {count}", start + length)
        return Header(version, bytes(digest), window_ms, sent_ms, shard, count, start, length)

    def columns(self, message: Buffer, header: Header, layout: Layout) -> Reports:
        """Read the columns; FrameError if the length of the frame does not fit the survey."""
        count, expected = header.count, layout.frame_bytes(header.count)
        if header.version != layout.version:
            raise FrameError("key", _WRONG_VERSION[layout.keyed])
        if header.length != expected:
            raise FrameError(
                "length", f"{count} reports of this survey take {expected} bytes; the frame says {header.length}"
            )
        position = header.start + HEADER_BYTES

        def take(size: int, dtype: str) -> NDArray[Any]:
            nonlocal position
            column = np.frombuffer(message, dtype=dtype, count=size, offset=position)
            position += padded(column.nbytes)
            return column

        tokens = take(TOKEN_BYTES * count, "u1").reshape(count, TOKEN_BYTES)
        answers = take(layout.width * count, "u1").reshape(count, layout.width)
        rungs = take(count, "u1")
        groups = take(count, GROUP_TYPE) if layout.grouped else None
        keys = take(KEY_BYTES * count, "u1").reshape(count, KEY_BYTES) if layout.keyed else None
        return Reports(tokens, answers, rungs, groups, keys)


READERS: Final[dict[int, Reader]] = {PLAIN_VERSION: ColumnReader(), KEYED_VERSION: ColumnReader()}
"""Readers by version. The worker counts frames of these as they are and translates those of other versions."""


def headers(message: Buffer) -> Iterator[Header | FrameError]:
    """Walk the frames of a message without trusting any of them.

    A frame with a plausible length but another fault is reported and skipped; after an impossible length nothing more
    is read, since the next frame could be anywhere.
    """
    position, total = 0, len(message)
    if total == 0:
        yield FrameError("empty", "the message has no bytes")
    while position < total:
        if total - position < HEADER_BYTES:
            yield FrameError("length", f"{total - position} bytes left; a frame has at least {HEADER_BYTES}")
            return
        magic, version, length = PREFIX.unpack_from(message, position)
        if magic != MAGIC:
            yield FrameError("magic", f"a frame starts with {MAGIC!r}; got {bytes(magic)!r}")
            return
        if not HEADER_BYTES <= length <= total - position or length % WORD_BYTES:
            yield FrameError("length", f"a frame of {length} bytes does not fit the {total - position} bytes left")
            return
        reader = READERS.get(version)
        if reader is None:
            known = ", ".join(map(str, sorted(READERS)))
            yield FrameError("version", f"this worker reads version {known}; got {version}", position + length)
        else:
            try:
                yield reader.header(message, position, length)
            except FrameError as error:
                yield error
        position += length


def columns(message: Buffer, header: Header, layout: Layout) -> Reports:
    """Read the columns of a frame as views of the message; FrameError if its length does not fit the survey."""
    return READERS[header.version].columns(message, header, layout)
