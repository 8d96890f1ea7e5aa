"""What `thaw plan` predicts, held against simulated windows: widths, chances of alarms, and the ladder for a goal.

Devices of many windows are drawn by the mechanism itself; each window is looked at over its whole life. Numbers of
windows follow binomial laws; a check fails by chance with one share of the suite's budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.intervals.always_valid import YesNo, log_e
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.registry import randomizer_of
from estimators.tally import Tally
from producers.planning.draft import Draft, DraftAlert
from producers.planning.intervals import Expectation
from producers.planning.ladders import Goal, chance_of, cheapest_ladders, ladder_draft, stops_of
from producers.planning.noticing import chance_by, looks_at, parts_on_rungs, watch_of
from producers.survey.alert_ranges import bound_parts
from producers.survey.file import RungAssumption
from producers.survey.survey import Survey
from streams.windows.alert_bounds import alert_bounds
from tests.support.memory_store import MemoryStore
from tests.support.stats import BUDGET, SHARE
from tests.support.surveys import WEEK

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
VALUES = ("a", "b", "c", "d")
WATCHED = 0
THRESHOLD = 0.25
Counts = NDArray[np.int64]


def planned_survey(assume: RungAssumption, alpha: float = 0.01) -> Survey:
    draft = Draft(
        VALUES,
        "grr",
        (0.5, 1.0, 2.0),
        (0, DAY_MS, 2 * DAY_MS),
        jitter_ms=6 * HOUR_MS,
        assume=assume,
        alert=DraftAlert(VALUES[WATCHED], "above", THRESHOLD, alpha),
    )
    return draft.survey()


def answers_of(survey: Survey, share: float, users: int, windows: int, seed: int) -> NDArray[np.uint8]:
    """Return the answers [rung, window, device] of windows in each of which this share has the watched value."""
    rng, bits, randomizer = np.random.default_rng(seed), SeededBits(seed), randomizer_of(survey.mechanism)
    holders = round(share * users)
    values = np.concatenate([np.zeros(holders, dtype=np.int64), 1 + np.arange(users - holders) % (len(VALUES) - 1)])
    shuffled = np.concatenate([rng.permutation(values) for _ in range(windows)])
    drawn = randomizer.draw(randomizer.encode(np.array(VALUES, dtype=object)[shuffled].tolist(), bits), bits)
    return drawn.answers.reshape(survey.mechanism.rungs, windows, users)


def segments(survey: Survey, after_ms: int, users: int, stops: Sequence[float]) -> Iterator[tuple[int, slice]]:
    """Yield which devices have which rung at a look: those who stop at a rung are neighbours, the highest first."""
    ends = np.rint(np.cumsum(stops) * users).astype(int)
    for last, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        parts = parts_on_rungs(survey, after_ms, np.eye(len(stops))[last].tolist())
        places = begin + np.rint(np.cumsum(parts[::-1]) * (end - begin)).astype(int)
        for rung, (start, stop) in zip(
            reversed(range(len(stops))), zip([begin, *places[:-1]], places, strict=True), strict=True
        ):
            yield rung, slice(int(start), int(stop))


def alarms(
    survey: Survey, answers: NDArray[np.uint8], stops: Sequence[float], until_ms: int, every: int = 1
) -> NDArray[np.bool_]:
    """Return in which windows the survey's rule has raised an alarm at some look, as a worker decides it."""
    rungs, windows, users = answers.shape
    assert isinstance(survey.mechanism, GRR)
    [rule], watch = survey.alerts, watch_of(survey, survey.alerts[0], 0.01)
    ones = np.concatenate([np.zeros((rungs, windows, 1)), (answers == WATCHED).cumsum(axis=2)], axis=2)
    state, raised = Checkpoint.beginning(windows), np.zeros(windows, dtype=np.bool_)
    parts = bound_parts(survey)
    for look in looks_at(survey, users, stops)[::every]:
        if look.after_ms > until_ms:
            break
        counts, people = np.zeros((rungs, windows)), np.zeros(rungs)
        for rung, place in segments(survey, look.after_ms, users, stops):
            counts[rung] += ones[rung][:, place.stop] - ones[rung][:, place.start]
            people[rung] += place.stop - place.start
        if people.sum() == 0:
            continue
        seen = YesNo.of(watch.truth, watch.lie, counts, people)
        if parts.e_process:
            raised |= log_e(seen, THRESHOLD) >= math.log(1 / (rule.alpha * parts.e_process))
        else:
            spend = partial(checkpoint_alpha, rule.alpha)
            state = advance(state, seen, threshold=THRESHOLD, alpha_at=spend, population="fleet")
            raised |= bounds_now(state, int(people.sum()))[0] > THRESHOLD
    return raised


def at_least(number: int, trials: int, chance: float) -> None:
    """Fail if so few successes have a probability below the share when each comes with this chance or more."""
    BUDGET.take()
    assert number >= stats.binom.ppf(SHARE, trials, chance), (number, trials, chance)


def at_most(number: int, trials: int, chance: float) -> None:
    BUDGET.take()
    assert number <= stats.binom.isf(SHARE, trials, min(chance, 1.0)), (number, trials, chance)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("assume", "stops", "notice"),
    [
        ("any", (0.0, 0.0, 1.0), 0.09),
        ("any", (0.2, 0.1, 0.7), 0.22),
        ("independent", (0.0, 0.0, 1.0), 0.09),
        ("independent", (0.2, 0.1, 0.7), 0.1),
    ],
)
def test_the_planned_chance_of_an_alarm_is_reached_and_not_far_from_the_truth(
    assume: RungAssumption, stops: tuple[float, ...], notice: float
) -> None:
    """Detects: a bound or an alpha other than the rule's, a wrong variance of mixed rungs, a wrong schedule."""
    survey, users, windows = planned_survey(assume), 1_500, 800
    watch = watch_of(survey, survey.alerts[0], notice)
    until_ms = survey.opens_ms[-1] + survey.jitter_ms
    planned = chance_by(survey, watch, users, stops, until_ms)
    assert 0.3 < planned < 0.995, "the check would say nothing"
    answers = answers_of(survey, THRESHOLD + notice, users, windows, seed=5)
    found = int(alarms(survey, answers, stops, until_ms).sum())
    at_least(found, windows, planned)
    # Alarms at earlier looks that had gone by the last one come on top: less than 13 points.
    at_most(found, windows, planned + 0.13)


@pytest.mark.statistical
def test_the_cheapest_ladder_notices_the_change_in_time_and_keeps_its_alpha() -> None:
    goal = Goal("a", "above", THRESHOLD, 0.09, DAY_MS, 0.01, 0.9, 1_500, DAY_MS, "any")
    found = cheapest_ladders(goal, VALUES, [("grr", {}), ("sue", {})])
    assert {len(plan.ladder) for plan in found} == {1, 2, 3}
    assert [plan.epsilon for plan in found] == sorted(plan.epsilon for plan in found)
    best, windows = found[0], 800
    survey, stops = best.draft.survey(), stops_of(goal, len(best.ladder))
    noticed = alarms(survey, answers_of(survey, THRESHOLD + 0.09, goal.users, windows, 6), stops, goal.within_ms)
    at_least(int(noticed.sum()), windows, goal.power)
    quiet = alarms(survey, answers_of(survey, THRESHOLD, goal.users, windows, 7), stops, goal.within_ms)
    at_most(int(quiet.sum()), windows, goal.alpha)
    # A top that is a fifth lower does not reach the goal: neither planned nor simulated.
    lower = ladder_draft(goal, VALUES, "grr", {}, len(best.ladder), 0.8 * best.ladder[-1])
    assert chance_of(goal, lower) < 0.8
    missed = alarms(
        lower.survey(), answers_of(lower.survey(), THRESHOLD + 0.09, goal.users, windows, 8), stops, goal.within_ms
    )
    at_most(int(missed.sum()), windows, goal.power)


@pytest.mark.parametrize("assume", ["any", "independent"])
def test_simulated_alarms_are_those_of_the_worker(assume: RungAssumption) -> None:
    """The columns of `alarms` are windows; `alert_bounds` sees one window with the state that it stores."""
    survey, users, stops = planned_survey(assume, alpha=0.4), 900, (0.0, 0.0, 1.0)
    answers = answers_of(survey, THRESHOLD + 0.1, users, 3, seed=9)
    until_ms = survey.opens_ms[-1] + survey.jitter_ms
    for window, expected in enumerate(alarms(survey, answers, stops, until_ms, every=8)):
        store, raised = MemoryStore(), False
        for look in looks_at(survey, users, stops)[::8]:
            tally = Tally.empty(3, 1, len(VALUES))
            for rung, place in segments(survey, look.after_ms, users, stops):
                tally.counts[rung, 0] += np.bincount(answers[rung, window, place], minlength=len(VALUES))
                tally.users[rung, 0] += place.stop - place.start
            if tally.total_users:
                # The method while rungs agree: the planner does not look at the other bound.
                method = "stratified" if assume == "any" else "pooled"
                bound = alert_bounds(survey, WEEK, tally, method, store.states)[0].bound
                raised |= bound is not None and bound > THRESHOLD
        assert raised == expected


@pytest.mark.statistical
@pytest.mark.parametrize("assume", ["any", "independent"])
def test_planned_widths_are_those_of_simulated_windows_and_cover_the_truth(assume: RungAssumption) -> None:
    survey, users, windows, stops = planned_survey(assume), 4_000, 250, (0.2, 0.1, 0.7)
    shares = [0.4, 0.2, 0.2, 0.2]
    planned = Expectation(survey, shares=shares, stops=stops).planned(users, stops)
    answers = answers_of(survey, 0.4, users, windows, seed=10)
    ends, halves, covered = np.rint(np.cumsum(stops) * users).astype(int), [], 0
    for window in range(windows):
        tally = Tally.empty(3, 1, len(VALUES))
        for rung, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            tally.counts[rung, 0] = np.bincount(answers[rung, window, begin:end], minlength=len(VALUES))
            tally.users[rung, 0] = end - begin
        found = estimator_of(survey.mechanism).estimate(tally, method=survey.method, alpha=survey.alpha)
        halves.append((found.upper - found.lower) / 2)
        covered += bool(found.lower[WATCHED] <= 0.4 <= found.upper[WATCHED])
    # Widths of single windows differ by a few percent, means of 250 by a few tenths of one.
    assert np.mean(halves, axis=0) == pytest.approx(planned.half_widths, rel=0.01)
    at_least(covered, windows, 0.94)
