"""Intervals of shares seen through one or several rungs, judged by exact enumeration wherever the law is small."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.estimates import Population
from estimators.intervals.always_valid import YesNo
from estimators.intervals.exact_shares import exact_limits
from estimators.intervals.rung_shares import RARE, answer_variance, pooled_ends, spans, weighted_ends

Floats = NDArray[np.float64]

SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0)
LEAST = 0.935
"""What the suite of all bands promises; single rungs with rare counts promise 0.95."""


def probabilities(epsilon: float, values: int) -> tuple[float, float]:
    weight = np.exp(epsilon)
    return float(weight / (weight + values - 1)), float(1 / (weight + values - 1))


def law(users: int, share: float, truth: float, lie: float, population: Population) -> tuple[float, Floats]:
    """Return the true share and the exact law of the count."""
    if population == "sampling":
        return share, stats.binom.pmf(np.arange(users + 1), users, lie + (truth - lie) * share)
    having = round(share * users)
    ones = stats.binom.pmf(np.arange(having + 1), having, truth)
    others = stats.binom.pmf(np.arange(users - having + 1), users - having, lie)
    return having / users, np.convolve(ones, others)


def ends_of_one_rung(
    users: int, truth: float, lie: float, alpha: float, population: Population
) -> tuple[Floats, Floats]:
    counts = np.arange(users + 1.0)[None]
    questions = YesNo.of([truth], [lie], counts, [users])
    return spans(questions, alpha=alpha, population=population).weighted(np.ones((1, 1)))


@pytest.mark.parametrize("population", ["fleet", "sampling"])
@pytest.mark.parametrize(("epsilon", "values"), [(0.5, 2), (1.0, 2), (6.0, 2), (2.0, 6), (1.0, 50), (4.0, 50)])
@pytest.mark.parametrize("users", [20, 60, 300])
def test_one_rung_covers_every_share(users: int, epsilon: float, values: int, population: Population) -> None:
    truth, lie = probabilities(epsilon, values)
    lower, upper = ends_of_one_rung(users, truth, lie, 0.05, population)
    least = 0.95 if users <= 2 * RARE else LEAST
    for share in SHARES:
        target, chances = law(users, share, truth, lie, population)
        inside = (lower <= target + 1e-12) & (target <= upper + 1e-12)
        covered = float(chances[inside].sum())
        assert covered >= least - 1e-9, f"share {target}: {covered:.4f}"


@pytest.mark.parametrize("population", ["fleet", "sampling"])
def test_the_bound_for_many_values_holds_where_the_normal_one_fails(population: Population) -> None:
    # GRR with 50 values at epsilon 4, 30 users: a value that occurs nowhere, asked at the level for 50 values at once.
    truth, lie = probabilities(4.0, 50)
    lower, upper = ends_of_one_rung(30, truth, lie, 0.001, population)
    target, chances = law(30, 0.0, truth, lie, population)
    assert float(chances[(lower <= target) & (target <= upper)].sum()) >= 0.999
    plug_in = np.sqrt(np.arange(31) / 30 * (1 - np.arange(31) / 30) / 30) / (truth - lie)
    estimate = (np.arange(31) / 30 - lie) / (truth - lie)
    assert float(chances[np.abs(estimate) <= 3.29 * plug_in].sum()) < 0.9


def test_two_rungs_with_shares_of_their_own_are_covered_exactly_enumerated() -> None:
    for (first, second), shares in product([(5.0, 6.0), (2.0, 6.0), (3.0, 3.0)], [(0.1, 0.1), (0.0, 0.2), (0.0, 0.0)]):
        users = np.array([20, 30])
        pairs = [probabilities(first, 2), probabilities(second, 2)]
        laws = [law(int(n), share, *pair, "fleet") for n, share, pair in zip(users, shares, pairs, strict=True)]
        target = float(sum(n * found[0] for n, found in zip(users, laws, strict=True)) / users.sum())
        grid = np.array(list(product(range(21), range(31))), dtype=np.float64).T
        chances = laws[0][1][grid[0].astype(int)] * laws[1][1][grid[1].astype(int)]
        questions = YesNo.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], grid, users)
        weights = np.broadcast_to((users / users.sum())[:, None], grid.shape)
        lower, upper = weighted_ends(questions, weights, alpha=0.05, population="fleet")
        covered = float(chances[(lower <= target + 1e-12) & (target <= upper + 1e-12)].sum())
        assert covered >= LEAST, f"levels {first}, {second}, shares {shares}: {covered:.4f}"


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("users", [(1, 19), (2, 18), (10, 10), (19, 1)])
@pytest.mark.parametrize("levels", [(0.1, 6.0), (1.0, 4.0), (6.0, 6.0)])
def test_a_sample_of_few_on_two_rungs_is_covered_exactly_enumerated(
    levels: tuple[float, float], users: tuple[int, int], alpha: float
) -> None:
    """Distances added as squares missed up to 17 % of outcomes at either level: one device cannot go as far as 2 sd."""
    pairs = [probabilities(level, 2) for level in levels]
    for shares in ((0.02, 0.02), (0.5, 0.5), (0.97, 0.97), (0.9, 0.1), (0.0, 1.0)):
        assert missed_by_two_rungs(users, pairs, shares, alpha) <= alpha, f"shares {shares}"


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_rare_counts_that_are_never_lies_are_covered_at_the_level_for_many_values(alpha: float) -> None:
    """Two rungs of 50 users, truth 0.46 and 0.96, share 0.02: the lower end stopped above 0 in 0.8 % at level 0.001."""
    pairs = [(0.46, 0.0), (0.96, 0.0)]
    for shares in ((0.02, 0.02), (0.0, 0.04), (0.1, 0.0)):
        assert missed_by_two_rungs((52, 48), pairs, shares, alpha) <= alpha, f"shares {shares}"


def missed_by_two_rungs(
    users: tuple[int, int], pairs: list[tuple[float, float]], shares: tuple[float, float], alpha: float
) -> float:
    """The probability, over all outcomes of a sample, that the interval of the mean share misses it."""
    rungs = list(zip(users, shares, pairs, strict=True))
    first, second = (law(size, share, *pair, "sampling")[1] for size, share, pair in rungs)
    # Outcomes that never happen take no time.
    likely = [np.flatnonzero(chances > 1e-12) for chances in (first, second)]
    grid = np.array(list(product(*likely)), dtype=np.int64).T
    sizes = np.array(users)
    questions = YesNo.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], grid, sizes)
    weights = np.broadcast_to((sizes / sizes.sum())[:, None], grid.shape)
    lower, upper = weighted_ends(questions, weights, alpha=alpha, population="sampling")
    target = float(sizes @ np.array(shares) / sizes.sum())
    chances = first[grid[0]] * second[grid[1]]
    return float(chances[(lower > target + 1e-12) | (upper < target - 1e-12)].sum())


@pytest.mark.parametrize("population", ["fleet", "sampling"])
def test_no_interval_has_width_zero_and_each_holds_its_estimate(population: Population) -> None:
    for users, epsilon in product((1, 2, 20, 500), (0.1, 6.0, 20.0)):
        truth, lie = probabilities(epsilon, 2)
        lower, upper = ends_of_one_rung(users, truth, lie, 0.05, population)
        estimate = (np.arange(users + 1) / users - lie) / (truth - lie)
        assert np.all(upper - lower > 1e-6)
        possible = (estimate >= 0) & (estimate <= 1)
        assert np.all((lower <= estimate + 0.5 / users) & (estimate <= upper + 0.5 / users) | ~possible)


def test_a_value_that_is_never_lied_about_and_never_named_keeps_an_upper_end() -> None:
    lower, upper = ends_of_one_rung(50, 0.7, 0.0, 0.05, "sampling")
    assert lower[0] == 0.0
    assert 0.025 < upper[0] * 0.7 / (1 - 0.05 ** (1 / 50)) < 1.3


def test_rare_and_common_counts_meet_without_a_jump() -> None:
    lower, upper = ends_of_one_rung(2_000, 0.9, 0.001, 0.05, "sampling")
    width = upper - lower
    assert abs(width[RARE] / width[RARE - 1] - 1) < 0.06


def test_a_mirrored_question_has_the_mirrored_interval() -> None:
    for population in ("fleet", "sampling"):
        lower, upper = ends_of_one_rung(40, 0.8, 0.3, 0.05, population)
        back_lower, back_upper = ends_of_one_rung(40, 0.7, 0.2, 0.05, population)
        np.testing.assert_allclose(lower, 1 - back_upper[::-1], atol=0.005)
        np.testing.assert_allclose(upper, 1 - back_lower[::-1], atol=0.005)


def test_variances_never_use_shares_that_are_impossible() -> None:
    truth, lie, shares = np.array([0.6]), np.array([0.1]), np.array([-3.0])
    assert answer_variance(truth, lie, shares, "sampling")[0] == pytest.approx(0.09)
    assert answer_variance(truth, lie, shares, "fleet")[0] == pytest.approx(0.09)
    assert answer_variance(truth, lie, np.array([2.0]), "fleet")[0] == pytest.approx(0.24)


def test_a_pooled_interval_does_not_collapse_on_a_sharp_rung_with_few_users() -> None:
    """Levels 0.1 and 6, 2,000 and 20 users, share 0.02: the normal interval covers 62 to 69 %."""
    rng = np.random.default_rng(20)
    users, windows, share = np.array([2_000, 20]), 2_000, 0.02
    truth, lie = (np.array([probabilities(level, 2)[i] for level in (0.1, 6.0)])[:, None] for i in (0, 1))
    ones = rng.binomial(users[:, None], lie + (truth - lie) * share, (2, windows)).astype(np.float64)
    answers = lie + (truth - lie) * share
    information = users[:, None] * (truth - lie) ** 2 / (answers * (1 - answers))
    estimate = np.sum(information * (ones / users[:, None] - lie) / (truth - lie), axis=0) / information.sum()
    deviation = np.full(windows, 1 / np.sqrt(information.sum()))
    questions = YesNo.of(truth, lie, ones, users)
    lower, upper = pooled_ends(questions, estimate=estimate, deviation=deviation, alpha=0.05, population="sampling")
    covered = int(np.sum((lower <= share) & (share <= upper)))
    # Binomial with 2,000 windows: below 1,860 has probability under 1e-4 at a coverage of 0.95.
    assert covered >= 1_860


def test_limits_are_monotone_in_the_count() -> None:
    for population in ("fleet", "sampling"):
        found = exact_limits(200, 0.7, 0.05, RARE - 1, 0.05, population)
        assert np.all(np.diff(found.lower) >= -1e-12)
        assert np.all(np.diff(found.upper) >= -1e-12)
