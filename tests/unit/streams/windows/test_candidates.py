"""Candidates that change while a survey runs: stored windows are decoded again, and the page never mixes two lists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from producers.survey.survey import Survey, load_survey
from streams.store.shape import Shape
from streams.windows.candidates import CandidateWatch, aligned
from streams.windows.history import decode_point
from streams.windows.recompute import Recomputer
from streams.windows.record import EstimateRecord, decode_estimate
from streams.windows.window_record import estimate_record
from tests.support.applier import Bench, batches_of
from tests.support.reports import WINDOW, Report, token_in
from tests.unit.producers.survey.test_candidates import TEXT, folder_with
from tests.unit.streams.windows.test_recompute import Known, Outbox, recomputing

DEVICES = 4_000
SHARES = {"red": 0.5, "green": 0.3, "blue": 0.2}


@pytest.fixture
def surveys(tmp_path: Path) -> tuple[Survey, Survey]:
    """One survey with the candidates of yesterday and of today: blue was missing, orange nobody has."""
    text = TEXT.replace('opens = ["0s", "10s", "30s"]', 'opens = ["0s", "4s", "8s"]')
    older = load_survey(folder_with(tmp_path, "red\ngreen\n", text))
    return older, load_survey(folder_with(tmp_path, "orange\nred\nblue\ngreen\n", text))


def counted(known: Survey) -> Bench:
    bench = Bench(surveys=[known])
    bits, rng = SeededBits(3), np.random.default_rng(3)
    values = rng.choice(list(SHARES), size=DEVICES, p=list(SHARES.values())).tolist()
    randomizer = randomizer_of(known.mechanism)
    drawn = randomizer.draw(randomizer.encode(values, bits), bits)
    reports = [
        Report(token_in(i % known.shards, i, known), 2, drawn.answers[2][i].tobytes(), int(drawn.groups[i]))
        for i in range(DEVICES)
    ]
    bench.process(*batches_of(known, reports))
    assert bench.letters == []
    return bench


def stored(bench: Bench, known: Survey) -> EstimateRecord:
    payload = bench.store.estimates.read(known.id, WINDOW)
    assert payload is not None
    return decode_estimate(payload)


def worker(bench: Bench, known: Survey) -> Recomputer:
    return recomputing(bench.store, Known(known), Outbox(), bench.clock)


def test_a_window_is_decoded_again_with_the_candidates_of_today(surveys: tuple[Survey, Survey]) -> None:
    older, newer = surveys
    bench = counted(older)
    assert worker(bench, older).tick() == 1
    before = stored(bench, older)
    assert before.unexplained is not None
    assert before.unexplained.lower > 0.15, "blue is explained by no candidate"
    assert worker(bench, newer).tick() == 1
    after = stored(bench, newer)
    assert [row.value for row in after.values] == ["orange", "red", "blue", "green"]
    for row in after.values:
        assert row.lower is not None
        assert row.upper is not None
        assert row.lower < SHARES.get(row.value, 0.0) < row.upper
    assert after.unexplained is not None
    assert after.unexplained.lower < 0 < after.unexplained.upper
    assert after.users == before.users == DEVICES
    alone = estimate_record(newer, WINDOW, bench.store.estimates.tally(newer.id, WINDOW, newer.shards, Shape.of(newer)))
    assert after.values == alone.values


def test_only_windows_with_other_candidates_are_queued_and_only_once(surveys: tuple[Survey, Survey]) -> None:
    older, newer = surveys
    bench = counted(older)
    worker(bench, older).tick()
    watch = CandidateWatch(bench.store)
    assert watch.queue_changed([older]) == 0
    assert watch.queue_changed([newer]) == 1
    assert watch.queue_changed([newer]) == 0
    assert watch.queue_changed([replace(older, candidates="")]) == 0, "fixed values are not watched"


def test_points_of_the_history_say_which_candidates_they_are_about(surveys: tuple[Survey, Survey]) -> None:
    older, newer = surveys
    bench = counted(older)
    for known in (older, newer):
        worker(bench, known).tick()
    points = [decode_point(raw) for raw in bench.store.estimates.history(newer.id, WINDOW)]
    assert [point.candidates for point in points if point] == [older.candidates_hash, newer.candidates_hash]


def test_an_estimate_of_yesterday_is_shown_in_the_order_of_today_without_inventing_numbers(
    surveys: tuple[Survey, Survey],
) -> None:
    older, newer = surveys
    bench = counted(older)
    worker(bench, older).tick()
    record = stored(bench, older)
    shown = aligned(newer, record)
    assert [row.value for row in shown] == ["orange", "red", "blue", "green"]
    assert [row.estimate is None for row in shown] == [True, False, True, False]
    assert aligned(older, record) == record.values
