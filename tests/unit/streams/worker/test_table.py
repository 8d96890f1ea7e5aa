"""The compiled table and its plain twin keep the one report of every token that counts."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.store.shape import Key, Shape
from streams.worker import kernels
from streams.worker.fold import check
from streams.worker.table import Table, patches, tally_bytes, unpack
from tests.support.plain_table import PlainTable
from tests.support.precedence import tie_hash
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    WIDE_INDEX,
    WINDOW,
    AnyAnswer,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    oracle,
    packed,
    random_reports,
    survey_of,
    token_in,
)

Make = Callable[[Shape], Table]

both = pytest.mark.parametrize("make", [Table, PlainTable])
every_survey = pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)


def one(rung: int, answer: int, user: int = 7) -> Report:
    return Report(token_in(0, user, CATEGORICAL), rung, bytes([answer]))


@both
def test_a_higher_rung_replaces_a_lower_one_and_not_the_other_way_round(make: Make) -> None:
    table = make(Shape.of(CATEGORICAL))
    folded = table.fold(packed(CATEGORICAL, [one(0, 4), one(2, 1), one(1, 3)]))
    assert (len(folded.accepted), folded.duplicate, folded.outdated, folded.conflicting) == (2, 0, 1, 0)
    assert table.tally() == oracle(CATEGORICAL, [one(2, 1)])
    assert len(table) == 1


@both
def test_the_same_report_again_is_a_duplicate(make: Make) -> None:
    table = make(Shape.of(CATEGORICAL))
    table.fold(packed(CATEGORICAL, [one(1, 3)]))
    folded = table.fold(packed(CATEGORICAL, [one(1, 3), one(1, 3)]))
    assert (len(folded.accepted), folded.duplicate, folded.outdated, folded.conflicting) == (0, 2, 0, 0)


@both
@pytest.mark.parametrize("answers", [(1, 3), (3, 1)])
def test_of_two_answers_on_one_rung_the_greater_hash_is_held_and_a_conflict_counted(
    make: Make, answers: tuple[int, int]
) -> None:
    table = make(Shape.of(CATEGORICAL))
    folded = table.fold(packed(CATEGORICAL, [one(1, answer) for answer in answers]))
    assert folded.conflicting == 1
    held = max(answers, key=lambda answer: tie_hash(one(1, answer).token, bytes([answer])))
    assert table.tally() == oracle(CATEGORICAL, [one(1, held)])


@both
def test_accepted_records_are_exactly_those_that_changed_something(make: Make) -> None:
    table = make(Shape.of(CATEGORICAL))
    rows = packed(CATEGORICAL, [one(1, 3), one(0, 2), one(1, 3), one(2, 0), one(0, 0, user=8)])
    folded = table.fold(rows)
    assert folded.accepted.tobytes() == rows[[0, 3, 4]].tobytes()


@every_survey
def test_twins_agree_with_each_other_and_with_the_oracle(survey: Survey) -> None:
    rng = random.Random(survey.name)
    reports = random_reports(survey, users=150, count=900, rng=rng, shard=1)
    fast, plain = Table(Shape.of(survey)), PlainTable(Shape.of(survey))
    for start in range(0, len(reports), 250):
        rows = packed(survey, reports[start : start + 250])
        a, b = fast.fold(rows), plain.fold(rows)
        assert a.accepted.tobytes() == b.accepted.tobytes()
        assert (a.duplicate, a.outdated, a.conflicting) == (b.duplicate, b.outdated, b.conflicting)
    assert fast.tally() == plain.tally() == oracle(survey, reports)


@pytest.mark.parametrize("groups", [1, 2, 40])
@pytest.mark.parametrize("size", [1, 8, 15, 16, 17, 24, 63, 64, 79, 80, 81, 144, 145, 1_024])
def test_bit_vectors_of_any_length_are_packed_and_counted(size: int, groups: int) -> None:
    survey = survey_of(AnyAnswer("bits", size, rungs=3, groups=groups), name=f"bits-{size}-{groups}")
    reports = random_reports(survey, users=40, count=101, rng=random.Random(size), shard=1)
    checked = check([batch_of(frame_of(survey, reports), partition=1)], SurveyDict(survey), 2, NOW_MS)
    rows = checked.reports[Key(survey.id, WINDOW, 1)]
    assert rows.tobytes() == packed(survey, reports).tobytes()
    fast, plain = Table(Shape.of(survey)), PlainTable(Shape.of(survey))
    assert fast.fold(rows).accepted.tobytes() == plain.fold(rows).accepted.tobytes()
    assert fast.tally() == plain.tally() == oracle(survey, reports)


@both
@pytest.mark.parametrize("bit", [1_020, 1_023])
def test_a_bit_behind_the_last_of_a_long_vector_is_refused(make: Make, bit: int) -> None:
    shape = Shape("bits", 1_020, 128, 1, 1)
    raw = bytes(13) + b"\1" + (1 << bit).to_bytes(128, "little")
    rows = np.frombuffer(raw.ljust(shape.entry_bytes, b"\0"), dtype=np.uint64).reshape(1, shape.entry_words)
    with pytest.raises(ValueError, match="another version or another survey"):
        make(shape).fold(rows)


def test_the_loop_is_compiled_for_one_type_of_entries_whether_they_may_be_written_or_not() -> None:
    before = set(kernels.fold_entries.signatures)  # type: ignore[attr-defined]  # compiled
    table = Table(Shape.of(CATEGORICAL))
    table.fold(packed(CATEGORICAL, [one(1, 3)]).copy())
    table.fold_log(table.live())
    assert len(before | set(kernels.fold_entries.signatures)) == 1  # type: ignore[attr-defined]  # compiled


@both
@every_survey
def test_the_live_log_gives_the_same_table(make: Make, survey: Survey) -> None:
    reports = random_reports(survey, users=400, count=700, rng=random.Random(3), shard=2)
    table, again = make(Shape.of(survey)), make(Shape.of(survey))
    table.fold(packed(survey, reports))
    folded = again.fold_log(table.live())
    assert len(folded.accepted) == len(again) == len(table)
    assert again.tally() == table.tally()


def test_a_table_grows_and_loses_no_user() -> None:
    table = Table(Shape.of(CATEGORICAL))
    smallest = table.nbytes
    tokens = np.random.default_rng(1).integers(0, 256, size=(5_000, 13), dtype=np.uint8)
    rows = np.zeros((5_000, 16), dtype=np.uint8)
    rows[:, :13], rows[:, 13], rows[:, 14] = tokens, 1, np.arange(5_000) % 5
    folded = table.fold(rows.view(np.uint64))
    assert len(folded.accepted) == len(table) == 5_000
    assert table.tally().counts[0, 0].tolist() == [1_000] * 5
    assert table.nbytes > smallest
    assert {row.tobytes() for row in np.frombuffer(table.live(), np.uint8).reshape(-1, 16)} == {
        row.tobytes() for row in rows
    }


def test_tokens_that_all_hash_to_one_slot_are_still_told_apart() -> None:
    nowhere = np.zeros(4, dtype=np.uint64)
    table = Table(Shape.of(CATEGORICAL), seed=nowhere)
    reports = random_reports(CATEGORICAL, users=300, count=900, rng=random.Random(5), shard=1)
    table.fold(packed(CATEGORICAL, reports))
    assert table.tally() == oracle(CATEGORICAL, reports)


def test_tokens_that_differ_in_any_one_byte_are_different_users() -> None:
    token = bytes(13)
    others = [token[:i] + b"\1" + token[i + 1 :] for i in range(13)]
    rows = packed(CATEGORICAL, [Report(other + bytes(3), 0, b"\0") for other in [token, *others]])
    table = Table(Shape.of(CATEGORICAL))
    table.fold(rows)
    assert len(table) == 14


@both
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(bytes(13) + b"\0\0", id="rung of an empty slot"),
        pytest.param(bytes(13) + b"\5\0", id="rung above the ladder"),
        pytest.param(bytes(13) + b"\1\5", id="answer outside the domain"),
    ],
)
def test_a_record_of_another_survey_is_refused_with_its_bytes(make: Make, record: bytes) -> None:
    rows = np.frombuffer(record.ljust(16, b"\0"), dtype=np.uint64).reshape(1, 2)
    with pytest.raises(ValueError, match=rf"rung below 4.*size 5; got the bytes {record[13:].hex()}"):
        make(Shape.of(CATEGORICAL)).fold(rows)


@both
def test_spare_bits_and_strange_groups_are_refused(make: Make) -> None:
    bits = Shape("bits", 10, 2, 1, 2)
    for tail in (b"\1\0\4\0\0", b"\1\0\0\2\0"):
        rows = np.frombuffer((bytes(13) + tail).ljust(24, b"\0"), dtype=np.uint64).reshape(1, 3)
        with pytest.raises(ValueError, match="another version or another survey"):
            make(bits).fold(rows)


@both
def test_a_log_that_is_cut_off_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="multiple of 16 bytes; got 17"):
        make(Shape.of(CATEGORICAL)).fold_log(bytes(17))


@every_survey
def test_unpacking_gives_back_the_columns(survey: Survey) -> None:
    reports = random_reports(survey, users=50, count=60, rng=random.Random(9), shard=0)
    columns = unpack(packed(survey, reports).tobytes(), Shape.of(survey))
    assert [token.tobytes() for token in columns.tokens] == [report.token[:13] for report in reports]
    assert columns.rungs.tolist() == [report.rung for report in reports]
    assert [answer.tobytes() for answer in columns.answers] == [report.answer for report in reports]
    assert columns.groups.tolist() == [report.group for report in reports]


def apply(old: Tally, changes: object) -> bytes:
    raw = bytearray(old.to_bytes())
    for position, new in changes:  # type: ignore[attr-defined]  # pairs
        raw[position : position + len(new)] = new
    return bytes(raw)


@pytest.mark.parametrize("users", [1, 40, 3_000])
def test_patches_turn_the_old_tally_into_the_new_one(users: int) -> None:
    table = Table(Shape.of(WIDE_INDEX))
    reports = random_reports(WIDE_INDEX, users, 2 * users, random.Random(users), shard=0)
    table.fold(packed(WIDE_INDEX, reports[:users]))
    before, old = table.numbers.copy(), table.tally()
    table.fold(packed(WIDE_INDEX, reports[users:]))
    changes = patches(before, table.numbers)
    assert apply(old, changes) == table.tally().to_bytes()
    assert len(old.to_bytes()) == tally_bytes(Shape.of(WIDE_INDEX))


def test_a_small_tally_is_patched_in_one_piece_and_a_large_one_in_several() -> None:
    before = np.zeros(1_000, dtype=np.int64)
    after = before.copy()
    after[[3, 100, 900]] = 1
    assert [(position, len(raw)) for position, raw in patches(before, after)] == [(16 + 24, 8 * 98), (16 + 7_200, 8)]
    assert patches(after, after) == []


def test_a_ladder_has_at_most_255_rungs() -> None:
    with pytest.raises(ValueError, match="1 to 255 rungs; got 256; shorten it"):
        Shape("index", 2, 1, 256, 1)
