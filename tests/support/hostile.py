"""Messages as an attacker or a broken device sends them, a corpus of them, and a plain judge of each.

The judge keeps its own numbers and arithmetic: it is what the readers are compared with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import strategies as st

from producers.survey.survey import Survey
from producers.wire import frames as wire
from tests.support.keys import is_key
from tests.support.reports import NOW_MS, SURVEYS, WINDOW, WINDOW_MS, Report, frame_of, shard_of, token_in

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus"


def corpus(kind: str) -> list[Path]:
    """Return the files of one kind of corpus; never none."""
    files = sorted(path for path in (CORPUS / kind).iterdir() if path.is_file())
    assert files, f"the corpus of {kind} is gone"
    return files


def valid_answer(survey: Survey, number: int) -> bytes:
    """Return an answer that a correct device could send."""
    answer = survey.mechanism.answer
    if answer.kind == "index":
        return (number % answer.size).to_bytes(answer.width, "little")
    return (number % (1 << answer.size // 2)).to_bytes(answer.width, "little")


_INTERESTING = [0, 1, 2, 7, 8, 39, 40, 41, 48, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]
_TIMES = [
    0,
    -1,
    1,
    WINDOW,
    WINDOW + 1,
    WINDOW - WINDOW_MS,
    WINDOW + WINDOW_MS,
    WINDOW + 2 * WINDOW_MS,
    2**63 - 1,
    -(2**63),
    NOW_MS,
]
_FIELDS = [(0, "<B"), (3, "<B"), (4, "<I"), (8, "<Q"), (16, "<q"), (24, "<q"), (32, "<H"), (34, "<I"), (38, "<H")]


@st.composite
def good_frames(draw: st.DrawFn) -> bytes:
    """Frames that are right, of any survey."""
    survey = draw(st.sampled_from(SURVEYS))
    shard = draw(st.integers(0, survey.shards - 1))
    users = draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    reports = [
        Report(
            token_in(shard, user, survey),
            draw(st.integers(0, survey.mechanism.rungs - 1)),
            valid_answer(survey, draw(st.integers(0, 1 << 30))),
            draw(st.integers(0, survey.mechanism.groups - 1)),
        )
        for user in users
    ]
    return frame_of(survey, reports)


@st.composite
def hostile_frames(draw: st.DrawFn) -> bytes:
    """Frames with one or two fields set to something interesting, or bytes flipped, or the end cut off, or noise."""
    raw = bytearray(draw(good_frames()))
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["field", "byte", "cut", "noise"]))
        if kind == "field":
            position, form = draw(st.sampled_from(_FIELDS))
            if form == "<q":
                value = draw(st.sampled_from(_TIMES) | st.integers(-(2**63), 2**63 - 1))
            else:
                most = (1 << 8 * struct.calcsize(form)) - 1
                value = min(draw(st.sampled_from(_INTERESTING) | st.integers(0, most)), most)
            if position + struct.calcsize(form) <= len(raw):
                struct.pack_into(form, raw, position, value)
        elif kind == "byte" and raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
        elif kind == "cut":
            del raw[draw(st.integers(0, len(raw))) :]
        else:
            raw += draw(st.binary(max_size=60))
    return bytes(raw)


hostile_messages = st.lists(hostile_frames() | good_frames() | st.binary(max_size=100), max_size=3).map(b"".join)


def verdicts(message: bytes, surveys: Sequence[Survey], partition: int, partitions: int) -> Iterator[tuple[str, bytes]]:
    """Judge every frame of a message that came at NOW_MS, slowly and plainly: (reason, frame); good ones have ''."""
    known = {survey.digest: survey for survey in surveys}
    if not message:
        yield "empty", b""
    while message:
        fault = _delimit(message)
        if fault:
            yield fault, message
            return
        length = int.from_bytes(message[4:8], "little")
        frame, message = message[:length], message[length:]
        yield _judge(frame, known, partition, partitions), frame


def _delimit(rest: bytes) -> str:
    if len(rest) < 40:
        return "length"
    if rest[:3] != b"THW":
        return "magic"
    length = int.from_bytes(rest[4:8], "little")
    return "length" if not 40 <= length <= len(rest) or length % 8 else ""


def _judge(frame: bytes, known: dict[bytes, Survey], partition: int, partitions: int) -> str:
    window_ms, _, shard, count = struct.unpack_from("<qqHI", frame, 16)
    survey = known.get(frame[8:16])
    if frame[3] not in (1, 2):
        return "version"
    if not 1 <= count <= 65_536:
        return "count"
    if survey is None:
        return "survey"
    life_ms = survey.windows.size_ms + survey.retention_ms
    checks = [
        (len(frame) != survey.layout.frame_bytes(count), "length"),
        (shard >= survey.shards, "shard"),
        (shard % partitions != partition, "partition"),
        (window_ms % survey.windows.step_ms != 0, "window"),
        (window_ms > NOW_MS + survey.skew_ms, "future"),
        (frame[3] != 1 + survey.withdrawable, "key"),
        (window_ms + life_ms <= NOW_MS, "expired"),
    ]
    for wrong, reason in checks:
        if wrong:
            return reason
    end_ms = window_ms + survey.windows.size_ms
    opened = [True, *(end_ms + accepted_ms <= NOW_MS for accepted_ms in survey.accepted_ms)]
    return _judge_reports(frame, survey, shard, count, opened)


def _judge_reports(frame: bytes, survey: Survey, shard: int, count: int, opened: Sequence[bool]) -> str:
    """Return the first fault of the first report that has one; an impossible answer only if nothing else is wrong."""
    header = wire.Header(frame[3], frame[8:16], 0, 0, shard, count, 0, len(frame))
    columns = wire.columns(frame, header, survey.layout)
    for row in range(count):
        if shard_of(columns.tokens[row].tobytes(), survey) != shard:
            return "token"
        withdraws = survey.withdrawable and columns.rungs[row] == survey.mechanism.rungs
        if columns.rungs[row] >= survey.mechanism.rungs and not withdraws:
            return "rung"
        if not withdraws and not opened[columns.rungs[row]]:
            return "early"
        if columns.groups is not None and columns.groups[row] >= (1 if withdraws else survey.mechanism.groups):
            return "group"
    for answer, rung in zip(columns.answers, columns.rungs, strict=True):
        if survey.withdrawable and rung == survey.mechanism.rungs:
            valid = not any(answer.tolist())
        elif survey.mechanism.answer.kind == "index":
            valid = int.from_bytes(answer.tobytes(), "little") < survey.mechanism.answer.size
        else:
            valid = bool(survey.mechanism.valid(answer.reshape(1, -1)).all())
        if not valid:
            return "answer"
    window_ms = int.from_bytes(frame[16:24], "little", signed=True)
    for row, key in enumerate([] if columns.keys is None else columns.keys):
        token, rung = columns.tokens[row].tobytes(), int(columns.rungs[row])
        if not is_key(key.tobytes(), token, rung, survey.digest, window_ms):
            return "key"
    return ""
