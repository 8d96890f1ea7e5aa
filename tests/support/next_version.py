"""A release that does not exist yet: reads frames of version 2 beside those of version 1, with or without new keys.

`python -m tests.support.next_version [--keys] worker|deadletters|...` is its command line. In a frame of version 2 the
columns stand in reverse order, so today's code could not make sense of one by luck; `--keys` is a release that also
lays out Redis differently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from producers.survey.survey import Survey
from producers.wire import frames as wire
from streams.kafka.messages import FetchBatch

NEXT = 2


def to_next(frame: bytes, survey: Survey) -> bytes:
    """Turn a frame of version 1 into one of version 2."""
    return frame[:3] + bytes([NEXT]) + frame[4:40] + b"".join(reversed(list(_columns(frame, survey.layout))))


def _columns(frame: bytes, layout: wire.Layout, *, backwards: bool = False) -> Iterator[bytes]:
    count = int.from_bytes(frame[34:38], "little")
    sizes = [16 * count, layout.width * count, count] + ([2 * count] if layout.grouped else [])
    position = 40
    for size in reversed(sizes) if backwards else sizes:
        padded = size + -size % 8
        yield frame[position : position + padded]
        position += padded


def _upcast(message: bytes | None, layouts: dict[bytes, wire.Layout]) -> bytes | None:
    """Turn all frames of a message into version 1, which is what this release works with inside."""
    if not message:
        return message
    out, position = bytearray(message), 0
    while len(out) - position >= 40 and out[position : position + 3] == b"THW":
        length = int.from_bytes(out[position + 4 : position + 8], "little")
        if not 40 <= length <= len(out) - position:
            break
        layout = layouts.get(bytes(out[position + 8 : position + 16]))
        if out[position + 3] == NEXT and layout is not None:
            frame = bytes(out[position : position + length])
            out[position + 3] = 1
            out[position + 40 : position + length] = b"".join(reversed(list(_columns(frame, layout, backwards=True))))
        position += length
    return bytes(out)


def install(*, keys: bool) -> None:
    """Turn this process into one of the next release."""
    from producers.survey.survey import load_folder
    from streams.repair import dead_letters as deadletter_tools
    from streams.settings import load_settings
    from streams.store import redis as redis_store
    from streams.worker import applier, fold

    layouts = {digest: survey.layout for digest, survey in load_folder(load_settings({}).surveys_folder).items()}
    check_one, headers_one = fold.check, wire.headers

    def check(batches: Sequence[FetchBatch], *arguments: Any) -> fold.Checked:
        read = [
            replace(batch, records=[record._replace(value=_upcast(record.value, layouts)) for record in batch.records])
            for batch in batches
        ]
        return check_one(read, *arguments)

    applier.check = deadletter_tools.check = check  # type: ignore[attr-defined, assignment]
    wire.headers = lambda message: headers_one(_upcast(bytes(message), layouts) or b"")
    if keys:
        redis_store.VERSION = "v2"  # type: ignore[misc]


if __name__ == "__main__":
    from streams.cli.main import main

    arguments = sys.argv[1:]
    install(keys="--keys" in arguments)
    main([argument for argument in arguments if argument != "--keys"])
