"""A release that does not exist yet: reads frames of version 3 beside the others, with or without new keys.

`python -m tests.support.next_version [--keys] worker|deadletters|...` is its command line. In a frame of version 3 the
columns stand in reverse order, so today's code could not make sense of one by luck; `--keys` is a release that also
lays out Redis differently.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from producers.survey.survey import Survey
from producers.wire.frames import READERS, Buffer, ColumnReader, Header, Reports
from producers.wire.layout import HEADER_BYTES, VERSION_AT, Layout
from streams.cli.main import main
from streams.store import redis_connection

NEXT = 3


def to_next(frame: bytes, survey: Survey) -> bytes:
    """Turn a frame of today into one of version 3."""
    sizes = survey.layout.column_bytes(ColumnReader().header(frame, 0, len(frame)).count)
    return frame[:VERSION_AT] + bytes([NEXT]) + frame[VERSION_AT + 1 : HEADER_BYTES] + _reversed_columns(frame, sizes)


class NextReader(ColumnReader):
    """The reader of version 3: the header of today, the columns in reverse order."""

    def columns(self, message: Buffer, header: Header, layout: Layout) -> Reports:
        frame = bytes(message[header.start : header.start + header.length])
        restored = frame[:HEADER_BYTES] + _reversed_columns(frame, layout.column_bytes(header.count)[::-1])
        return super().columns(restored, replace(header, start=0, version=layout.version), layout)


def _reversed_columns(frame: bytes, sizes: Sequence[int]) -> bytes:
    """Return the columns of a frame, which have these padded lengths in the order they stand in, last one first."""
    ends = list(accumulate(sizes, initial=HEADER_BYTES))
    return b"".join(frame[start:end] for start, end in reversed(list(pairwise(ends))))


def install(*, keys: bool) -> None:
    """Turn this process into one of the next release."""
    READERS[NEXT] = NextReader()
    if keys:
        redis_connection.VERSION = "v2"  # type: ignore[misc]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    install(keys="--keys" in arguments)
    main([argument for argument in arguments if argument != "--keys"])
