"""Dead letters: what they say, which would be counted now, and what is sent again."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from producers.wire.transport import Message
from streams.repair.dead_letters import FrameView, StoredDeadLetter, judge, look, replay
from streams.store.shape import DAY_MS
from tests.support.reports import CATEGORICAL, NOW_MS, WINDOW, WINDOW_MS, Report, SurveyDict, frame_of, token_in

PARTITIONS = 2
ALL = SurveyDict(CATEGORICAL)
GOOD = frame_of(CATEGORICAL, [Report(token_in(1, user, CATEGORICAL), 0, b"\1") for user in range(3)])
OTHER = frame_of(CATEGORICAL, [Report(token_in(2, 7, CATEGORICAL), 0, b"\2")])


def letter(frame: bytes, *, number: int = 5, reason: str = "survey") -> StoredDeadLetter:
    return StoredDeadLetter(number, NOW_MS, reason, "thaw.reports.v1[1]@17", frame)


def changed(position: int, raw: bytes) -> bytes:
    return GOOD[:position] + raw + GOOD[position + len(raw) :]


def test_a_dead_letter_has_its_partition_unless_another_program_wrote_it() -> None:
    assert letter(GOOD).partition == 1
    for place in ("", "thaw.reports.v1[x]@1", "[1]@2", "a[1]@2 and more", "a[99999999999]@1"):
        assert replace(letter(GOOD), place=place).partition is None


def test_headers_are_shown_as_claims() -> None:
    claims = FrameView("", 1, CATEGORICAL.digest.hex(), WINDOW, 1, 3)
    assert look(GOOD + GOOD) == [claims, claims]
    [newer] = look(changed(3, b"\3"))
    assert (newer.version, newer.fault) == (3, "this worker reads version 1, 2; got 3")
    assert [view.fault for view in look(b"")] == ["the message has no bytes"]


def test_every_frame_goes_where_its_shard_belongs() -> None:
    alive, dead = judge(letter(GOOD + OTHER), ALL, PARTITIONS, NOW_MS)
    assert alive == [Message(1, GOOD), Message(0, OTHER)]
    assert dead == []


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (changed(3, b"\3"), "version"),
        (changed(3, b"\2"), "key"),
        (changed(8, bytes(8)), "survey"),
        (changed(4, struct.pack("<I", 1 << 30)), "length"),
        (changed(32, struct.pack("<H", 3)), "token"),
        (changed(16, struct.pack("<q", WINDOW - 100 * WINDOW_MS)), "expired"),
        (changed(16, struct.pack("<q", WINDOW + 100 * WINDOW_MS)), "future"),
        (b"", "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_be_refused_again_stays_dead(frame: bytes, reason: str) -> None:
    assert judge(letter(frame), ALL, PARTITIONS, NOW_MS) == ([], [reason])


def test_a_replay_sends_what_is_alive_once_and_counts_the_rest() -> None:
    sent: list[Message] = []
    letters = [letter(GOOD), letter(changed(3, b"\3")), letter(GOOD, number=6), letter(OTHER + changed(8, bytes(8)))]
    done = replay(letters, ALL, sent.extend, partitions=PARTITIONS, now_ms=NOW_MS)
    assert sent == [Message(1, GOOD), Message(0, OTHER)]
    assert (done.sent, done.copies, done.still_dead) == (2, 1, {"version": 1, "survey": 1})


@pytest.mark.parametrize("days", [-3, 3])
def test_a_wrong_clock_here_keeps_no_letter_dead(days: int) -> None:
    here_ms = NOW_MS + days * DAY_MS
    assert judge(letter(GOOD), ALL, PARTITIONS, here_ms)[0] == []
    assert judge(letter(GOOD), ALL, PARTITIONS, here_ms, broker_ms=NOW_MS) == ([Message(1, GOOD)], [])
    far_ms = NOW_MS + 9 * DAY_MS
    assert judge(letter(GOOD), ALL, PARTITIONS, far_ms, broker_ms=far_ms) == ([], ["expired"])


def test_a_survey_that_became_known_and_a_window_that_began_bring_letters_back() -> None:
    assert judge(letter(GOOD), SurveyDict(), PARTITIONS, NOW_MS) == ([], ["survey"])
    early = changed(16, struct.pack("<q", WINDOW + 2 * WINDOW_MS))
    assert judge(letter(early), ALL, PARTITIONS, NOW_MS) == ([], ["future"])
    assert judge(letter(early), ALL, PARTITIONS, NOW_MS + WINDOW_MS) == ([Message(1, early)], [])


def test_a_rung_that_has_opened_brings_its_letter_back() -> None:
    early = frame_of(CATEGORICAL, [Report(token_in(1, 1, CATEGORICAL), 3, b"\1")], window_ms=WINDOW + WINDOW_MS)
    assert judge(letter(early), ALL, PARTITIONS, NOW_MS) == ([], ["early"])
    assert judge(letter(early), ALL, PARTITIONS, NOW_MS + WINDOW_MS) == ([Message(1, early)], [])
