"""Round trips, and no crash whatever the bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from producers.survey.survey import Survey
from producers.wire.frames import FrameError, Header, Reports, columns, encode, headers, pack_messages
from producers.wire.layout import Layout
from producers.wire.shards import shards_of
from producers.wire.transport import frames_of
from tests.support.surveys import survey

TIMES = st.integers(-(2**63), 2**63 - 1)
ASKED = survey()


@st.composite
def frames(draw: st.DrawFn) -> tuple[Layout, tuple[bytes, int, int, int], Reports]:
    width, grouped, count = draw(st.sampled_from([1, 2, 4, 16])), draw(st.booleans()), draw(st.integers(1, 40))
    reports = Reports(
        draw(arrays.arrays(np.uint8, (count, 16))),
        draw(arrays.arrays(np.uint8, (count, width))),
        draw(arrays.arrays(np.uint8, count)),
        draw(arrays.arrays(np.uint16, count)) if grouped else None,
    )
    head = (draw(st.binary(min_size=8, max_size=8)), draw(TIMES), draw(TIMES), draw(st.integers(0, 65_535)))
    return Layout(width, grouped), head, reports


def same(a: Reports, b: Reports) -> bool:
    pairs: list[tuple[Any, Any]] = [
        (a.tokens, b.tokens),
        (a.answers, b.answers),
        (a.rungs, b.rungs),
        (a.groups, b.groups),
    ]
    return all((x is None and y is None) or np.array_equal(x, y) for x, y in pairs)


@given(st.lists(frames(), min_size=1, max_size=4))
def test_what_is_written_is_read(written: list[tuple[Layout, tuple[bytes, int, int, int], Reports]]) -> None:
    packed = [encode(*head, reports, layout) for layout, head, reports in written]
    (message,) = pack_messages(packed)
    read = list(headers(message))
    assert len(read) == len(written)
    for header, (layout, head, reports) in zip(read, written, strict=True):
        assert isinstance(header, Header)
        assert (header.digest, header.window_ms, header.sent_ms, header.shard) == head
        assert same(columns(message, header, layout), reports)


@given(st.binary(max_size=300), st.sampled_from([Layout(1, False), Layout(2, True), Layout(16, False)]))
def test_arbitrary_bytes_are_walked_to_an_end(message: bytes, layout: Layout) -> None:
    walk(message, layout)


@given(st.lists(frames(), min_size=1, max_size=3), st.data())
def test_damaged_messages_are_walked_to_an_end(
    written: list[tuple[Layout, tuple[bytes, int, int, int], Reports]], data: st.DataObject
) -> None:
    message = bytearray(b"".join(encode(*head, reports, layout) for layout, head, reports in written))
    for _ in range(data.draw(st.integers(1, 5))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(message)))
    walk(bytes(message[:cut]), written[0][0])


def walk(message: bytes, layout: Layout) -> None:
    """Nothing but FrameError may come out, frames must not overlap, and every frame must lie inside the message."""
    end = 0
    for header in headers(message):
        if isinstance(header, FrameError):
            assert header.resume is None or end < header.resume <= len(message)
            end = header.resume or len(message)
            continue
        assert header.start == end
        end = header.start + header.length
        assert end <= len(message)
        with contextlib.suppress(FrameError):
            assert len(columns(message, header, layout)) == header.count


@given(st.integers(1, 400), st.integers(1, 12), st.integers(200, 3000), st.randoms(use_true_random=False))
def test_grouping_many_reports_keeps_each_of_them(count: int, partitions: int, limit: int, random: Any) -> None:
    rng = np.random.default_rng(random.getrandbits(32))
    tokens = rng.integers(0, 256, (count, 16), dtype=np.uint8)
    answers, rungs = rng.integers(0, 3, count).astype("u1"), rng.integers(0, 3, count).astype("u1")
    messages = frames_of(ASKED, 60_000, 7, tokens, answers, rungs, partitions=partitions, limit_bytes=limit)
    expected = sorted(zip(map(bytes, tokens), answers.tolist(), rungs.tolist(), strict=True))
    assert sorted(unpack(ASKED, messages, partitions, limit)) == expected


def unpack(
    asked: Survey, messages: dict[int, list[bytes]], partitions: int, limit: int
) -> list[tuple[bytes, int, int]]:
    found = []
    for partition, packed in messages.items():
        for message in packed:
            assert len(message) <= limit
            for header in headers(message):
                assert isinstance(header, Header)
                assert (header.digest, header.window_ms, header.sent_ms) == (asked.digest, 60_000, 7)
                assert header.shard % partitions == partition
                read = columns(message, header, asked.layout)
                assert (shards_of(read.tokens, asked.shards) == header.shard).all()
                found += list(
                    zip(map(bytes, read.tokens), read.answers[:, 0].tolist(), read.rungs.tolist(), strict=True)
                )
    return found
