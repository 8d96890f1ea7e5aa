"""Checking messages: good reports are grouped by log, everything else is a dead letter with a reason, or expired."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.layout import MAX_REPORTS
from streams.kafka.messages import FetchBatch
from streams.store.contract import NO_STAMP
from streams.store.counters import REASONS, UNKNOWN_SURVEY, Counters
from streams.store.log_content import Loaded
from streams.store.shape import DAY_MS, Key, Shape
from streams.worker.fold import Cached, Checked, check, fold
from streams.worker.table import Table
from tests.support.reports import (
    BITS_IN_GROUPS,
    CATEGORICAL,
    KEY_VALUE_PLANES,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WIDE_INDEX,
    WINDOW,
    WINDOW_MS,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    packed,
    random_reports,
    token_in,
)

PARTITIONS = 2


def look(*batches: FetchBatch, now_ms: int = NOW_MS) -> Checked:
    return check(batches, SurveyDict(*SURVEYS), PARTITIONS, now_ms)


def report(shard: int = 0, rung: int = 0, answer: bytes = b"\1", group: int = 0) -> Report:
    return Report(token_in(shard, 1, CATEGORICAL), rung, answer, group)


def test_a_good_frame_is_packed_under_its_log() -> None:
    some = [report(rung=2), report(rung=1, answer=b"\4")]
    checked = look(batch_of(frame_of(CATEGORICAL, some, sent_ms=77)))
    assert list(checked.reports) == [Key(CATEGORICAL.id, WINDOW, 0)]
    assert checked.reports[Key(CATEGORICAL.id, WINDOW, 0)].tobytes() == packed(CATEGORICAL, some).tobytes()
    assert checked.shapes == {CATEGORICAL.id: Shape.of(CATEGORICAL)}
    assert checked.sent_ms == {(CATEGORICAL.id, WINDOW): 77}
    assert checked.dead_letters == []
    assert checked.refused == {}


@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_reports_of_all_forms_are_packed_as_the_log_holds_them(survey: Survey) -> None:
    reports = random_reports(survey, 50, 101, random.Random(1), shard=2)
    checked = look(batch_of(frame_of(survey, reports)))
    assert checked.reports[Key(survey.id, WINDOW, 2)].tobytes() == packed(survey, reports).tobytes()


def test_frames_of_many_messages_are_grouped_by_survey_window_and_shard_in_their_order() -> None:
    earlier = WINDOW - WINDOW_MS
    first, second, third = report(rung=0), report(rung=1), report(rung=2)
    other_shard = Report(token_in(2, 5, CATEGORICAL), 0, b"\0")
    wide = Report(token_in(0, 9, WIDE_INDEX), 1, b"\1\0\1\0")
    checked = look(
        batch_of(
            frame_of(CATEGORICAL, [first]) + frame_of(CATEGORICAL, [other_shard]) + frame_of(WIDE_INDEX, [wide]),
            frame_of(CATEGORICAL, [second], window_ms=earlier, sent_ms=3) + frame_of(CATEGORICAL, [second], sent_ms=5),
            frame_of(CATEGORICAL, [third], sent_ms=4),
        )
    )
    assert {key: rows.tobytes() for key, rows in checked.reports.items()} == {
        Key(CATEGORICAL.id, WINDOW, 0): packed(CATEGORICAL, [first, second, third]).tobytes(),
        Key(CATEGORICAL.id, WINDOW, 2): packed(CATEGORICAL, [other_shard]).tobytes(),
        Key(CATEGORICAL.id, earlier, 0): packed(CATEGORICAL, [second]).tobytes(),
        Key(WIDE_INDEX.id, WINDOW, 0): packed(WIDE_INDEX, [wide]).tobytes(),
    }
    assert checked.sent_ms[CATEGORICAL.id, earlier] == 3
    assert checked.sent_ms[CATEGORICAL.id, WINDOW] == NOW_MS


def changed(frame: bytes, position: int, form: str, value: object) -> bytes:
    raw = bytearray(frame)
    struct.pack_into(form, raw, position, value)
    return bytes(raw)


OPEN = WINDOW + WINDOW_MS
"""The window that is open at NOW_MS."""
GOOD = frame_of(CATEGORICAL, [report()])
PLANES = frame_of(KEY_VALUE_PLANES, [Report(token_in(0, 1, KEY_VALUE_PLANES), 0, b"\0\4\0")])
GROUPED = [Report(token_in(0, 1, BITS_IN_GROUPS), 0, bytes(16), group) for group in (0, 1, 2)]

BAD: dict[str, tuple[str, bytes]] = {
    "wrong version": ("version", changed(GOOD, 3, "<B", 9)),
    "no reports": ("count", changed(GOOD, 34, "<I", 0)),
    "too many reports": ("count", changed(GOOD, 34, "<I", 65_537)),
    "unknown survey": ("survey", changed(GOOD, 8, "<8s", b"nobodyis")),
    "longer than its reports": ("length", changed(GOOD, 34, "<I", 200)),
    "shard that does not exist": ("shard", changed(GOOD, 32, "<H", 4)),
    "shard of another partition": ("partition", frame_of(CATEGORICAL, [report(shard=1)])),
    "window that starts nowhere": ("window", changed(GOOD, 16, "<q", WINDOW + 1)),
    "window in the future": ("future", changed(GOOD, 16, "<q", WINDOW + 2 * WINDOW_MS)),
    "last window there is": ("future", changed(GOOD, 16, "<q", (2**63 - 1) // WINDOW_MS * WINDOW_MS)),
    "rung outside the ladder": ("rung", frame_of(CATEGORICAL, [report(), report(rung=4)])),
    "highest rung a byte can hold": ("rung", frame_of(CATEGORICAL, [report(rung=255)])),
    "rung that has not opened": ("early", frame_of(CATEGORICAL, [report(), report(rung=1)], window_ms=OPEN)),
    "token of another shard": ("token", frame_of(CATEGORICAL, [report(), report(shard=2)])),
    "answer outside the domain": ("answer", frame_of(CATEGORICAL, [report(), report(answer=b"\5")])),
    "answer that no device gives": ("answer", PLANES),
    "keys of a survey that has none": ("key", changed(GOOD, 3, "<B", 2)),
    "group that does not exist": ("group", frame_of(BITS_IN_GROUPS, GROUPED)),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_frame_is_a_dead_letter_with_reason_and_bytes_and_its_neighbours_are_read(case: str) -> None:
    reason, frame = BAD[case]
    before, after = frame_of(CATEGORICAL, [report(rung=1)]), frame_of(CATEGORICAL, [report(rung=3)])
    checked = look(batch_of(b"?", before + frame + after, start=40))
    assert [letter[2:5] for letter in checked.dead_letters] == [(40, "length", b"?"), (41, reason, frame)]
    assert {letter[:2] for letter in checked.dead_letters} == {(TOPIC, 0)}
    assert checked.reports[Key(CATEGORICAL.id, WINDOW, 0)].tobytes() == (
        packed(CATEGORICAL, [report(rung=1), report(rung=3)]).tobytes()
    )


@pytest.mark.parametrize(
    ("reason", "rest"),
    [
        ("magic", changed(GOOD, 0, "<3s", b"TWH") + GOOD),
        ("length", changed(GOOD, 4, "<I", 2**32 - 1) + GOOD),
        ("length", changed(GOOD, 4, "<I", 32) + GOOD),
        ("length", changed(GOOD, 4, "<I", len(GOOD) + 1) + GOOD),
        ("length", GOOD[:39]),
    ],
)
def test_where_a_frame_cannot_be_delimited_the_rest_of_the_message_is_the_dead_letter(reason: str, rest: bytes) -> None:
    checked = look(batch_of(GOOD + rest))
    assert [(letter.reason, letter.frame) for letter in checked.dead_letters] == [(reason, rest)]
    assert checked.refused == {(UNKNOWN_SURVEY, None): Counters(rejected={reason: 1})}
    assert len(checked.reports[Key(CATEGORICAL.id, WINDOW, 0)]) == 1


@pytest.mark.parametrize("value", [b"", None])
def test_an_empty_message_is_a_dead_letter(value: bytes | None) -> None:
    checked = look(batch_of(value))
    assert [(letter.reason, letter.frame) for letter in checked.dead_letters] == [("empty", b"")]


def test_every_reason_has_a_case() -> None:
    assert {*REASONS} == {"empty", "magic", *(reason for reason, _ in BAD.values())}


def test_no_messages_are_no_work() -> None:
    assert look() == Checked()
    assert look(batch_of()) == Checked()


def test_rejected_reports_are_counted_by_window_only_where_the_window_can_be_trusted() -> None:
    many = [report(), report(rung=4), report()]
    checked = look(
        batch_of(frame_of(CATEGORICAL, many) + changed(GOOD, 16, "<q", WINDOW + 1) + BAD["unknown survey"][1])
    )
    assert checked.refused == {
        (CATEGORICAL.id, WINDOW): Counters(rejected={"rung": 3}),
        (CATEGORICAL.id, None): Counters(rejected={"window": 1}),
        (UNKNOWN_SURVEY, None): Counters(rejected={"survey": 1}),
    }


END = WINDOW + WINDOW_MS
LAST_IN_TIME = END + CATEGORICAL.retention_ms - 1


@pytest.mark.parametrize(
    ("timestamp_ms", "now_ms", "taken"),
    [
        (LAST_IN_TIME, LAST_IN_TIME, True),
        (LAST_IN_TIME + 1, LAST_IN_TIME + 1, False),
        # A worker that lags still counts what came in time, until the keys are gone.
        (LAST_IN_TIME, LAST_IN_TIME + DAY_MS, True),
        (LAST_IN_TIME, LAST_IN_TIME + DAY_MS + 1, False),
        # The broker's time judges, not the worker's.
        (LAST_IN_TIME + 1, WINDOW, False),
    ],
)
def test_a_report_is_expired_by_the_time_of_its_record(timestamp_ms: int, now_ms: int, taken: bool) -> None:
    checked = look(batch_of(frame_of(CATEGORICAL, [report(), report()]), timestamp_ms=timestamp_ms), now_ms=now_ms)
    assert bool(checked.reports) == taken
    assert checked.dead_letters == []
    assert checked.refused == ({} if taken else {(CATEGORICAL.id, WINDOW): Counters(expired=2)})


def test_the_oldest_window_there_is_has_expired() -> None:
    oldest = -(2**63 // WINDOW_MS) * WINDOW_MS
    checked = look(batch_of(changed(GOOD, 16, "<q", oldest)))
    assert checked.refused == {(CATEGORICAL.id, oldest): Counters(expired=1)}


@pytest.mark.parametrize(("timestamp_ms", "reason"), [(WINDOW - 5_000, None), (WINDOW - 5_001, "future")])
def test_a_clock_may_be_ahead_by_the_allowance_and_no_more(timestamp_ms: int, reason: str | None) -> None:
    checked = look(batch_of(GOOD, timestamp_ms=timestamp_ms))
    assert [letter.reason for letter in checked.dead_letters] == ([reason] if reason else [])


OPENING = replace(CATEGORICAL, opens_ms=(0, 0, 10_000, 30_000))


@pytest.mark.parametrize(
    ("rung", "accepted_ms"),
    [(0, WINDOW - 5_000), (1, END), (2, END + 5_000), (3, END + 25_000)],
    ids=lambda number: str(number),
)
def test_a_rung_is_taken_once_it_has_opened_by_the_brokers_time_and_the_skew(rung: int, accepted_ms: int) -> None:
    """No rung counts before its window starts, and none above the first before it opens."""
    frame = frame_of(OPENING, [report(), report(rung=rung)])
    for timestamp_ms, reason in ((accepted_ms, None), (accepted_ms - 1, "early" if rung else "future")):
        checked = check([batch_of(frame, timestamp_ms=timestamp_ms)], SurveyDict(OPENING), PARTITIONS, NOW_MS)
        assert [letter.reason for letter in checked.dead_letters] == ([reason] if reason else [])
        assert bool(checked.reports) == (reason is None)


@pytest.mark.parametrize("rung", [1, 3])
def test_rungs_on_demand_are_taken_from_their_common_opening_on(rung: int) -> None:
    asked = replace(CATEGORICAL, opens_ms=(0, 20_000, 20_000, 20_000), on_demand=True)
    frame = frame_of(asked, [report(), report(rung=rung)])
    for timestamp_ms, reasons in ((END + 15_000, []), (END + 14_999, ["early"])):
        checked = check([batch_of(frame, timestamp_ms=timestamp_ms)], SurveyDict(asked), PARTITIONS, NOW_MS)
        assert [letter.reason for letter in checked.dead_letters] == reasons


def test_frames_of_one_batch_are_judged_each_by_its_own_record_and_window() -> None:
    top, earlier = [report(rung=3)], WINDOW - WINDOW_MS
    frames = [frame_of(OPENING, top, window_ms=window_ms) for window_ms in (WINDOW, earlier)]
    before, after = END + 24_999, END + 25_000
    batches = [
        batch_of(frames[0] + frames[1], timestamp_ms=before),
        batch_of(frames[1] + frames[0], start=1, timestamp_ms=after),
    ]
    checked = check(batches, SurveyDict(OPENING), PARTITIONS, NOW_MS)
    assert [letter[2:5] for letter in checked.dead_letters] == [(0, "early", frames[0])]
    assert {key.window_ms: len(rows) for key, rows in checked.reports.items()} == {WINDOW: 1, earlier: 2}
    assert checked.refused == {(OPENING.id, WINDOW): Counters(rejected={"early": 1})}


def test_an_unknown_digest_is_looked_up_once_a_batch() -> None:
    asked: list[bytes] = []

    class Asking(SurveyDict):
        def get(self, digest: bytes, now_ms: int) -> Survey | None:
            asked.append(digest)
            return super().get(digest, now_ms)

    frame = BAD["unknown survey"][1]
    check([batch_of(frame + frame, GOOD, frame)], Asking(CATEGORICAL), PARTITIONS, NOW_MS)
    assert sorted(asked) == sorted([b"nobodyis", CATEGORICAL.digest])


def empty(survey: Survey, *, make: Callable[[Shape], Table] = Table) -> Cached:
    return Cached.of(Loaded(NO_STAMP, 0, 0, make(Shape.of(survey))))


KEY = Key(CATEGORICAL.id, WINDOW, 0)


def test_a_new_log_gets_its_whole_tally() -> None:
    cached = empty(CATEGORICAL)
    rows = packed(CATEGORICAL, [report(), report(), report(rung=1)])
    change = fold(KEY, cached, rows, Shape.of(CATEGORICAL))
    assert change.patches == [(0, cached.table.tally().to_bytes())]
    assert change.entries == rows[[0, 2]].tobytes()
    assert (change.log_entries, change.rewrite) == (2, False)
    assert change.counters == Counters(applied=2, duplicate=1)


def test_a_batch_of_duplicates_only_checks_the_stamp() -> None:
    cached = empty(CATEGORICAL)
    rows = packed(CATEGORICAL, [report()])
    cached.applied(fold(KEY, cached, rows, Shape.of(CATEGORICAL)), b"s")
    change = fold(KEY, cached, rows, Shape.of(CATEGORICAL))
    assert (change.stamp, change.entries, change.patches) == (b"s", b"", [])
    assert change.counters == Counters(duplicate=1)
    cached.applied(change, b"s")
    assert (cached.segments, cached.log_entries) == (1, 1)


def test_a_log_of_more_than_twice_its_live_size_is_rewritten() -> None:
    cached = empty(CATEGORICAL)
    tokens = [token_in(0, user, CATEGORICAL) for user in range(200)]
    rewrites = []
    for rung in range(4):
        rows = packed(CATEGORICAL, [Report(token, rung, b"\1") for token in tokens])
        change = fold(KEY, cached, rows, Shape.of(CATEGORICAL))
        cached.applied(change, b"s%d" % rung)
        rewrites.append((change.rewrite, change.log_entries, cached.segments))
    assert rewrites == [(False, 200, 1), (False, 400, 2), (True, 200, 1), (False, 400, 2)]
    again = Table(Shape.of(CATEGORICAL))
    again.fold_log(cached.table.live())
    assert np.array_equal(again.numbers, cached.table.numbers)


def test_frames_may_hold_as_many_reports_as_the_wire_allows() -> None:
    tail = np.zeros((MAX_REPORTS, 3), dtype=np.uint8)
    heads = np.arange(MAX_REPORTS, dtype="<u8")[:, None].view(np.uint8)
    tokens = np.concatenate([heads, np.zeros((MAX_REPORTS, 5), np.uint8), tail], axis=1)
    columns = wire.Reports(tokens, np.full((MAX_REPORTS, 1), 3, np.uint8), np.zeros(MAX_REPORTS, np.uint8), None)
    frame = wire.encode(CATEGORICAL.digest, WINDOW, NOW_MS, 0, columns, CATEGORICAL.layout)
    rows = look(batch_of(frame)).reports[KEY]
    cached = empty(CATEGORICAL)
    fold(KEY, cached, rows, Shape.of(CATEGORICAL))
    assert cached.table.tally().counts[0, 0].tolist() == [0, 0, 0, MAX_REPORTS, 0]
