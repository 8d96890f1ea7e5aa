"""The wire format: golden bytes of every version ever shipped, and what bad bytes are called."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from producers.wire.frames import FrameError, Header, Reports, columns, encode, headers, pack_messages
from producers.wire.keys import key_chain, right_keys
from producers.wire.layout import (
    HEADER_BYTES,
    KEYED_VERSION,
    MAX_MESSAGE_BYTES,
    MAX_REPORTS,
    PACK_BYTES,
    PLAIN_VERSION,
    Layout,
)
from producers.wire.shards import shards_of
from tests.support.paths import ROOT

# Packed by hand from the documented layout, not by the code under test. Never edit: devices in the field send these.
GOLDEN = json.loads((ROOT / "tests" / "vectors" / "wire_v1.json").read_text())
GOLDEN_KEYED = json.loads((ROOT / "tests" / "vectors" / "wire_v2.json").read_text())


def rows(texts: list[str]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.array([list(bytes.fromhex(text)) for text in texts], dtype=np.uint8)


def reports_of(case: dict[str, Any]) -> Reports:
    groups = None if case["groups"] is None else np.array(case["groups"], dtype=np.uint16)
    return Reports(rows(case["tokens"]), rows(case["answers"]), np.array(case["rungs"], dtype=np.uint8), groups)


def one_frame(count: int = 3, shard: int = 0) -> bytes:
    tokens = np.zeros((count, 16), dtype=np.uint8)
    reports = Reports(tokens, np.ones((count, 1), dtype=np.uint8), np.zeros(count, dtype=np.uint8), None)
    return encode(b"12345678", 60_000, 61_000, shard, reports, Layout(1, False))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_golden_frames_are_written_and_read(case: dict[str, Any]) -> None:
    golden, layout = bytes.fromhex(case["frame"]), Layout(case["width"], case["groups"] is not None)
    reports = reports_of(case)
    digest = bytes.fromhex(case["digest"])
    assert encode(digest, case["window_ms"], case["sent_ms"], case["shard"], reports, layout) == golden
    (header,) = headers(golden)
    assert header == Header(
        PLAIN_VERSION, digest, case["window_ms"], case["sent_ms"], case["shard"], len(case["rungs"]), 0, len(golden)
    )
    assert isinstance(header, Header)
    read = columns(golden, header, layout)
    assert (read.tokens == reports.tokens).all()
    assert (read.answers == reports.answers).all()
    assert (read.rungs == reports.rungs).all()
    assert (read.groups is None) == (reports.groups is None)
    assert read.groups is None or np.array_equal(read.groups, case["groups"])
    assert (shards_of(read.tokens, 65_536) == case["shard"]).all()


@pytest.mark.parametrize("case", GOLDEN_KEYED, ids=lambda case: case["name"])
def test_golden_frames_with_keys_are_written_and_read(case: dict[str, Any]) -> None:
    golden, layout = bytes.fromhex(case["frame"]), Layout(case["width"], case["groups"] is not None, keyed=True)
    digest, window_ms = bytes.fromhex(case["digest"]), case["window_ms"]
    chains = [key_chain(bytes.fromhex(secret), case["ladder_rungs"], digest, window_ms) for secret in case["secrets"]]
    assert [chain[0].hex() for chain in chains] == case["tokens"]
    assert [chain[rung + 1].hex() for chain, rung in zip(chains, case["rungs"], strict=True)] == case["keys"]
    reports = replace(reports_of(case), keys=rows(case["keys"]))
    assert encode(digest, window_ms, case["sent_ms"], case["shard"], reports, layout) == golden
    (header,) = headers(golden)
    assert isinstance(header, Header)
    assert (header.version, header.count) == (KEYED_VERSION, len(case["rungs"]))
    read = columns(golden, header, layout)
    assert read.keys is not None
    assert [key.tobytes().hex() for key in read.keys] == case["keys"]
    assert [token.tobytes().hex() for token in read.tokens] == case["tokens"]
    assert (shards_of(read.tokens, case["shards"]) == case["shard"]).all()
    assert right_keys(read.tokens, case["rungs"], read.keys, digest, window_ms).all()
    assert not right_keys(read.tokens, case["rungs"], read.keys, digest, window_ms + 1).any()
    with pytest.raises(FrameError, match="cannot be withdrawn: its frames have version 1 and no keys"):
        columns(golden, header, Layout(case["width"], layout.grouped))


def damaged(**changes: Any) -> bytes:
    """Return a good frame whose header was changed."""
    frame = one_frame()
    fields = dict(
        zip(
            ("magic", "version", "length", "digest", "window", "sent", "shard", "count"),
            struct.unpack_from("<3sBI8sqqHI", frame),
            strict=True,
        )
    )
    fields.update(changes)
    return struct.pack("<3sBI8sqqHI2x", *fields.values()) + frame[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("bad", "reason", "message", "goes_on"),
    [
        (b"", "empty", "no bytes", False),
        (damaged(version=3), "version", "this worker reads version 1, 2; got 3", True),
        (b"THW", "length", "3 bytes left; a frame has at least 40", False),
        (damaged(magic=b"XYZ"), "magic", "a frame starts with b'THW'; got b'XYZ'", False),
        (damaged(length=39), "length", "a frame of 39 bytes does not fit", False),
        (damaged(length=41), "length", "a frame of 41 bytes does not fit", False),
        (damaged(length=1 << 31), "length", "does not fit the 104 bytes left", False),
        (damaged(count=0), "count", "a frame holds 1 to 65536 reports; got 0", True),
        (damaged(count=MAX_REPORTS + 1), "count", "got 65537", True),
    ],
)
def test_bad_frames_are_named_and_skipped_where_their_length_is_sane(
    bad: bytes, reason: str, message: str, goes_on: bool
) -> None:
    # The good frame before is read in any case; the one after only if the bad one says where it ends.
    before = one_frame(shard=1) if bad else b""
    after = one_frame(shard=2) if goes_on else b""
    walked = list(headers(before + bad + after))
    errors = [part for part in walked if isinstance(part, FrameError)]
    assert [error.reason for error in errors] == [reason]
    assert message in str(errors[0])
    assert (errors[0].resume is not None) == goes_on
    shards = [part.shard for part in walked if isinstance(part, Header)]
    assert shards == ([1] if before else []) + ([2] if after else [])
    if goes_on:
        assert errors[0].resume == len(before) + len(bad)


def test_a_frame_whose_length_contradicts_the_survey_is_refused() -> None:
    frame = one_frame()
    (header,) = headers(frame)
    assert isinstance(header, Header)
    with pytest.raises(FrameError, match="3 reports of this survey take 112 bytes; the frame says 104") as refused:
        columns(frame, header, Layout(4, False))
    assert refused.value.reason == "length"
    with pytest.raises(FrameError, match="take 112 bytes"):
        columns(frame, header, Layout(1, True))


def test_what_cannot_be_a_frame_is_not_written() -> None:
    with pytest.raises(ValueError, match="keys must be given exactly when"):
        encode(
            b"12345678",
            0,
            0,
            0,
            reports_of(GOLDEN[0]),
            Layout(GOLDEN[0]["width"], GOLDEN[0]["groups"] is not None, keyed=True),
        )
    none = Reports(np.zeros((0, 16), np.uint8), np.zeros((0, 1), np.uint8), np.zeros(0, np.uint8), None)
    with pytest.raises(ValueError, match="1 to 65536 reports; got 0; split them"):
        encode(b"12345678", 0, 0, 0, none, Layout(1, False))
    one = Reports(np.zeros((1, 16), np.uint8), np.zeros((1, 1), np.uint8), np.zeros(1, np.uint8), None)
    with pytest.raises(ValueError, match=r"answers must have shape \(1, 2\); got \(1, 1\)"):
        encode(b"12345678", 0, 0, 0, one, Layout(2, False))
    with pytest.raises(ValueError, match="groups must be given exactly when"):
        encode(b"12345678", 0, 0, 0, one, Layout(1, True))


def test_the_number_of_reports_that_fit_is_the_largest() -> None:
    for width in (1, 2, 4, 16, 1600):
        for grouped in (False, True):
            layout = Layout(width, grouped)
            for limit_bytes in (0, 40, 100, 10_000, PACK_BYTES):
                count = layout.fitting(limit_bytes)
                assert count == 0 or layout.frame_bytes(count) <= limit_bytes
                assert count == MAX_REPORTS or layout.frame_bytes(count + 1) > limit_bytes


def test_frames_are_packed_in_order_into_messages_below_the_limit() -> None:
    frames = [one_frame(count, shard) for shard, count in enumerate([1, 50, 3, 3, 3, 70])]
    messages = pack_messages(frames, limit_bytes=1000)
    assert b"".join(messages) == b"".join(frames)
    assert len(messages) == 4
    assert [len(message) <= 1000 for message in messages] == [True, True, True, False], "one frame alone is too long"
    assert pack_messages([]) == []
    assert PACK_BYTES < MAX_MESSAGE_BYTES == 1 << 20
