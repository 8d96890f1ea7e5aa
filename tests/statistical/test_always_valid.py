"""Bounds that are looked at on every tick of a window's life are wrong at some look no more often than they say.

All windows of a test have the same true share at every look, so a bound on the wrong side of it is an error. The number
of windows with an error is binomial; it may exceed alpha by chance with one share of the suite's budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from estimators.channels.response import REAL
from estimators.inference.pooling_bits import BitRungs, bits_pooled, bits_stratified
from estimators.intervals.always_valid import YesNo, confidence_sequence, log_e
from estimators.intervals.checkpoints import (
    GROWTH,
    Checkpoint,
    advance,
    bounds_now,
    checkpoint_alpha,
    reference_information,
)
from estimators.intervals.one_look import one_sided_z
from estimators.papers.gradual_release import step
from estimators.planning.widths import users_to_alarm
from tests.support.looks import Look, binary_chains, climbing_windows
from tests.support.stats import SHARE

WINDOWS = 4_000
SHARE_OF_ONES = 0.3
BLOCK = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
LADDER = (0.25, 0.5, 1.0, 2.0)


def climbing(ticks: int = 220, seed: int = 5) -> Iterable[Look]:
    """Ten users a tick, three of them ones; every 30 ticks a user climbs one rung."""
    generator = np.random.default_rng(seed)
    return climbing_windows([BLOCK] * ticks, LADDER, lambda _, age: min(age // 30, 3), WINDOWS, generator, ticks=ticks)


def most_errors(alpha: float) -> int:
    return int(stats.binom.isf(SHARE, WINDOWS, alpha))


def bit_rungs(tally: YesNo) -> BitRungs:
    return BitRungs(tally.truth, tally.lie, tally.ones, tally.users)


def pooled_bound(tally: YesNo, alpha: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The bound of a single look: right at that look, and only there."""
    found, _ = bits_pooled(bit_rungs(tally), "fleet")
    return np.asarray(found.shares - one_sided_z(alpha) * np.sqrt(found.variance))


@pytest.mark.statistical
def test_the_e_process_may_be_looked_at_on_every_tick_and_a_bound_for_one_look_may_not() -> None:
    alarmed = {alpha: np.zeros(WINDOWS, dtype=bool) for alpha in (0.01, 0.05)}
    fixed = {alpha: np.zeros(WINDOWS, dtype=bool) for alpha in (0.01, 0.05)}
    for tick, look in enumerate(climbing()):
        evidence = log_e(look.tally, SHARE_OF_ONES)
        for alpha, alarms in alarmed.items():
            alarms |= evidence >= math.log(1 / alpha)
            if tick >= 5:
                fixed[alpha] |= pooled_bound(look.tally, alpha) > SHARE_OF_ONES
    for alpha, alarms in alarmed.items():
        assert alarms.sum() <= most_errors(alpha), f"{alarms.mean():.3f} of windows alarmed at alpha {alpha}"
        assert fixed[alpha].mean() > 4 * alpha, f"only {fixed[alpha].mean():.3f} at alpha {alpha}: the test is blind"


@pytest.mark.statistical
def test_checkpoints_hold_at_every_look() -> None:
    alpha = 0.05
    wrong = np.zeros((2, WINDOWS), dtype=bool)
    state = Checkpoint.beginning(WINDOWS)
    for look in climbing(seed=6):
        state = advance(
            state,
            look.tally,
            threshold=SHARE_OF_ONES,
            alpha_at=lambda k: checkpoint_alpha(alpha, k),
            population="fleet",
        )
        lower, upper = bounds_now(state, int(look.tally.users[:, 0].sum()))
        wrong |= np.stack([lower > look.truth, upper < look.truth])
    assert state.number > 15
    for side in wrong:
        assert side.sum() <= most_errors(alpha)


@pytest.mark.statistical
def test_checkpoints_hold_for_a_window_whose_users_are_all_present() -> None:
    alpha = 0.05
    generator = np.random.default_rng(7)
    # Everybody is there from the first tick and climbs in groups: no newcomers, so the information only grows.
    cohorts = [BLOCK * 10] * 20
    looks = list(
        climbing_windows(cohorts, LADDER, lambda a, age: min(max((a + age) // 20 - a // 7, 0), 3), WINDOWS, generator,
                         ticks=100)
    )[19:]  # fmt: skip
    wrong = np.zeros(WINDOWS, dtype=bool)
    state = Checkpoint.beginning(WINDOWS)
    for look in looks:
        state = advance(
            state,
            look.tally,
            threshold=SHARE_OF_ONES,
            alpha_at=lambda k: checkpoint_alpha(alpha, k),
            population="fleet",
        )
        lower, _ = bounds_now(state, int(look.tally.users[:, 0].sum()))
        wrong |= lower > look.truth
    assert state.number > 3
    assert wrong.sum() <= most_errors(alpha)


@pytest.mark.statistical
def test_checkpoints_hold_when_all_ones_come_first() -> None:
    alpha = 0.05
    generator = np.random.default_rng(8)
    cohorts = [[1] * 100] * 20 + [[0] * 100] * 40
    looks = climbing_windows(cohorts, (1.0, 4.0), lambda _, age: min(age, 1), WINDOWS, generator, ticks=60)
    wrong, without_growth = np.zeros((2, WINDOWS), dtype=bool), np.zeros(WINDOWS, dtype=bool)
    state = Checkpoint.beginning(WINDOWS)
    for look in looks:
        state = advance(
            state,
            look.tally,
            threshold=SHARE_OF_ONES,
            alpha_at=lambda k: checkpoint_alpha(alpha, k),
            population="fleet",
        )
        lower, upper = bounds_now(state, int(look.tally.users[:, 0].sum()))
        wrong |= np.stack([lower > look.truth, upper < look.truth])
        without_growth |= np.array(state.lower) > look.truth
    for side in wrong:
        assert side.sum() <= most_errors(alpha)
    assert without_growth.mean() > 0.5, "the rule for newcomers is not needed here: the test is blind"


@pytest.mark.statistical
def test_newcomers_on_a_low_rung_with_another_share_do_not_break_checkpoints() -> None:
    alpha = 0.05
    generator = np.random.default_rng(9)
    first = [1] * 500 + [0] * 500
    cohorts = [first] + [[1] * 10 + [0] * 90] * 40
    looks = climbing_windows(
        cohorts, (0.25, 2.0), lambda a, _: 1 if a == 0 else 0, WINDOWS, generator, ticks=len(cohorts)
    )
    wrong, stale, pooled = (np.zeros(WINDOWS, dtype=bool) for _ in range(3))
    state = slow = Checkpoint.beginning(WINDOWS)
    for look in looks:
        state = advance(
            state,
            look.tally,
            threshold=SHARE_OF_ONES,
            alpha_at=lambda k: checkpoint_alpha(alpha, k),
            population="fleet",
        )
        lower, _ = bounds_now(state, int(look.tally.users[:, 0].sum()))
        wrong |= lower > look.truth
        # A clock that waits for information alone stands still, since newcomers on a low rung lower it.
        if reference_information(look.tally, SHARE_OF_ONES) >= GROWTH * slow.information:
            slow = state
        stale |= np.array(slow.lower) > look.truth
        pooled |= pooled_bound(look.tally, checkpoint_alpha(alpha, state.number)) > look.truth
    assert wrong.sum() <= most_errors(alpha)
    assert stale.mean() > 0.9, "without the rule for newcomers these windows go wrong"
    assert pooled.mean() > 0.9, "pooling rungs with different shares goes wrong"


@pytest.mark.statistical
def test_the_e_process_holds_when_rungs_depend_on_answers() -> None:
    # Whoever answered no climbs, whoever answered yes stays: moment estimates are badly biased, the likelihood is not.
    alpha, lower, upper = 0.05, 0.5, 2.0
    generator = np.random.default_rng(10)
    moves, chances = step(lower, upper, 2), [REAL.grr(epsilon, 2) for epsilon in (lower, upper)]
    assert moves.truth_to_lie is not None
    assert moves.lie_to_truth is not None
    counts, users = np.zeros((2, WINDOWS)), np.zeros((2, WINDOWS))
    alarmed, biased = np.zeros(WINDOWS, dtype=bool), np.zeros(WINDOWS, dtype=bool)
    for _ in range(100):
        values = (generator.random((10, WINDOWS)) < SHARE_OF_ONES).astype(np.int64)
        first = binary_chains(values, [lower], generator)[0]
        to_one = np.where(values == 1, moves.lie_to_truth, moves.truth_to_lie)
        second = (generator.random(values.shape) < to_one) & (first == 0)
        counts += np.stack([(first == 1).sum(axis=0), second.sum(axis=0)])
        users += np.stack([(first == 1).sum(axis=0), (first == 0).sum(axis=0)])
        tally = YesNo.of([chance.truth for chance in chances], [chance.lie for chance in chances], counts, users)
        alarmed |= log_e(tally, SHARE_OF_ONES) >= math.log(1 / alpha)
        found = bits_stratified(bit_rungs(tally), "sampling")
        biased |= found.shares - 4 * np.sqrt(found.variance) > SHARE_OF_ONES
    assert alarmed.sum() <= most_errors(alpha)
    assert biased.mean() > 0.99, "the moment estimate should be wrong here: the test is blind"


@pytest.mark.statistical
def test_confidence_sequences_hold_for_a_rare_value_and_few_users() -> None:
    # No normal approximation: a value that one person in fifty has, from the first user on.
    alpha, share, values = 0.05, 0.02, 10
    generator = np.random.default_rng(11)
    chance = REAL.grr(2.0, values)
    named = np.zeros(WINDOWS)
    wrong = np.zeros((2, WINDOWS), dtype=bool)
    for users in range(1, 61):
        has = generator.random(WINDOWS) < share
        named += generator.random(WINDOWS) < np.where(has, chance.truth, chance.lie)
        tally = YesNo.of([chance.truth], [chance.lie], named[None, :], [users])
        if users in (1, 2, 5, 15, 30, 60):
            lower = confidence_sequence(tally, alpha)
            upper = confidence_sequence(tally, alpha, side="below")
            wrong |= np.stack([lower > share, upper < share])
    for side in wrong:
        assert side.sum() <= most_errors(alpha)


@pytest.mark.statistical
def test_the_e_process_finds_a_share_above_its_threshold() -> None:
    # Planned for a power of 0.9 on the third rung alone; 2,200 users on rungs up to the fourth carry more than that.
    needed = users_to_alarm(REAL.grr(1.0, 2), SHARE_OF_ONES, 0.15, alpha=0.01)
    assert needed is not None
    assert needed < 2_200
    last = None
    for last in climbing(seed=12):  # noqa: B007  # only the last look matters
        pass
    assert last is not None
    assert np.mean(log_e(last.tally, 0.15) >= math.log(100)) > 0.9
