"""Weighted sums of rare counts on several rungs, judged by exact enumeration: no error of few answers goes unseen."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.estimates import Population
from estimators.inference.pooling_bits import pool_bits
from estimators.intervals.always_valid import YesNo
from estimators.intervals.rung_shares import weighted_ends
from estimators.intervals.weighted_sums import sum_ends

Floats = NDArray[np.float64]
Pair = tuple[float, float]

NEVER_LIED: tuple[Pair, ...] = ((0.235, 0.0), (0.408, 0.0), (0.631, 0.0))
SENSITIVE: tuple[Pair, ...] = ((0.596, 0.472), (0.646, 0.402), (0.730, 0.268))
"""Bits of uRAP at levels 0.5, 1 and 2 among five values: of one that is never lied about, and of a sensitive one."""


def count_law(users: int, having: float, pair: Pair, population: Population) -> Floats:
    """Return the exact law of one rung's count; having: people of a fleet, or the share in a population."""
    truth, lie = pair
    if population == "sampling":
        return np.asarray(stats.binom.pmf(np.arange(users + 1), users, lie + (truth - lie) * having))
    holders = int(having)
    ones = stats.binom.pmf(np.arange(holders + 1), holders, truth)
    return np.convolve(ones, stats.binom.pmf(np.arange(users - holders + 1), users - holders, lie))


def enumerated(laws: list[Floats], least: float = 1e-10) -> tuple[Floats, Floats]:
    """Return all outcomes [rung, outcome] that happen at all, and their chances."""
    likely = [np.flatnonzero(law > least) for law in laws]
    grid = np.array(list(product(*likely)), dtype=np.int64).T
    chances = np.prod([law[counts] for law, counts in zip(laws, grid, strict=True)], axis=0)
    kept = chances > least
    return grid[:, kept].astype(np.float64), chances[kept]


def questions_of(pairs: tuple[Pair, ...], counts: Floats, users: tuple[int, ...]) -> YesNo:
    return YesNo.of([pair[0] for pair in pairs], [pair[1] for pair in pairs], counts, users)


def missed(
    users: tuple[int, ...],
    pairs: tuple[Pair, ...],
    having: tuple[float, ...],
    alpha: float,
    population: Population,
) -> float:
    """Return the probability that the interval of the mean share misses it."""
    laws = [count_law(n, part, pair, population) for n, part, pair in zip(users, having, pairs, strict=True)]
    counts, chances = enumerated(laws)
    sizes = np.array(users, dtype=np.float64)
    weights = np.broadcast_to((sizes / sizes.sum())[:, None], counts.shape)
    lower, upper = weighted_ends(questions_of(pairs, counts, users), weights, alpha=alpha, population=population)
    target = float(np.sum(having) if population == "fleet" else sizes @ np.array(having)) / sizes.sum()
    return float(chances[(lower > target + 1e-12) | (upper < target - 1e-12)].sum())


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("pairs", [NEVER_LIED, SENSITIVE])
@pytest.mark.parametrize("having", [(1, 1, 2), (2, 1, 1), (0, 0, 4), (4, 0, 0), (3, 3, 4), (0, 0, 0), (6, 6, 8)])
def test_a_fleet_of_few_on_three_rungs_is_covered(
    having: tuple[int, ...], pairs: tuple[Pair, ...], alpha: float
) -> None:
    """If all holders say so, each rung's count is its number of holders: squares of distances missed that in 3.8 %."""
    assert missed((6, 6, 8), pairs, having, alpha, "fleet") <= alpha


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("pairs", [NEVER_LIED, SENSITIVE])
@pytest.mark.parametrize("shares", [(0.02, 0.02, 0.02), (0.2, 0.2, 0.2), (0.0, 0.0, 0.5), (0.9, 0.5, 0.1)])
def test_a_sample_of_few_on_three_rungs_is_covered(
    shares: tuple[float, ...], pairs: tuple[Pair, ...], alpha: float
) -> None:
    assert missed((6, 6, 8), pairs, shares, alpha, "sampling") <= alpha


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("having", [(2, 2), (9, 9), (10, 0), (0, 10)])
@pytest.mark.parametrize("levels", [(1.0, 4.0), (0.1, 6.0), (4.0, 4.0)])
def test_a_fleet_of_few_on_two_rungs_is_covered(
    levels: tuple[float, float], having: tuple[int, int], alpha: float
) -> None:
    grown = np.exp(levels)
    pairs = tuple((float(e / (e + 1)), float(1 / (e + 1))) for e in grown)
    assert missed((10, 10), pairs, having, alpha, "fleet") <= alpha


@pytest.mark.parametrize("alpha", [0.05, 0.001, 0.0005])
@pytest.mark.parametrize("sharp", [1, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_one_stray_answer_on_a_sharp_rung_and_the_noise_of_a_dull_one_are_one_error(
    share: float, sharp: int, alpha: float
) -> None:
    """A key that nobody has: 200 people asked at level 0.1, a few at 6, of whom one lies. .18 % missed at .05 %."""
    users, pairs = (200, sharp), ((0.5125, 0.4875), (0.995, 0.005))
    laws = [count_law(n, share, pair, "sampling") for n, pair in zip(users, pairs, strict=True)]
    counts, chances = enumerated(laws, 1e-12)
    # By information, which is almost all on the sharp rung.
    slopes = np.array([p - q for p, q in pairs])[:, None]
    lies, sizes = np.array([q for _, q in pairs])[:, None], np.array(users)[:, None]
    answers = lies + 0.1 * slopes
    information = sizes * slopes**2 / (answers * (1 - answers))
    weights = np.broadcast_to(information / information.sum(), counts.shape)
    questions = questions_of(pairs, counts, users)
    estimate = np.sum(weights * (counts / sizes - lies) / slopes, axis=0)
    ends = weighted_ends(questions, weights, alpha=alpha, population="sampling", common=estimate)
    assert float(chances[(ends[0] > share + 1e-12) | (ends[1] < share - 1e-12)].sum()) <= alpha


def test_an_interval_of_many_answers_is_the_normal_one() -> None:
    users, pairs = (30_000, 20_000), ((0.6, 0.3), (0.8, 0.2))
    counts = np.array([[11_000.0], [7_000.0]])
    weights = np.array([[0.6], [0.4]])
    lower, upper = sum_ends(questions_of(pairs, counts, users), weights, alpha=0.05, population="sampling")
    slopes, observed = np.array([0.3, 0.6]), counts[:, 0] / users
    deviation = np.sqrt(np.sum((weights[:, 0] / slopes) ** 2 * observed * (1 - observed) / users))
    share = float(np.sum(weights[:, 0] * (observed - [0.3, 0.2]) / slopes))
    assert share - lower[0] == pytest.approx(1.96 * deviation, rel=0.03)
    assert upper[0] - share == pytest.approx(1.96 * deviation, rel=0.03)


def test_an_end_that_nothing_rejects_leaves_room_beyond_the_possible() -> None:
    # Two devices on a rung at level 0.1: any share explains any answer.
    lower, upper = sum_ends(
        questions_of(((0.525, 0.475), (0.525, 0.475)), np.array([[1.0, 0.0], [1.0, 0.0]]), (2, 2)),
        np.full((2, 2), 0.5),
        alpha=0.05,
        population="sampling",
    )
    assert np.all(lower <= 0.0)
    assert np.all(upper >= 1.0)


def test_a_question_asked_the_other_way_round_has_the_mirrored_interval() -> None:
    counts, users = np.array([[3.0, 9.0], [1.0, 0.0]]), (40, 12)
    pairs = ((0.7, 0.1), (0.95, 0.02))
    turned = tuple((1.0 - lie, 1.0 - truth) for truth, lie in pairs)
    weights = np.array([[0.4, 0.4], [0.6, 0.6]])
    for population in ("fleet", "sampling"):
        lower, upper = sum_ends(questions_of(pairs, counts, users), weights, alpha=0.01, population=population)
        absent = np.array(users)[:, None] - counts
        low, high = sum_ends(questions_of(turned, absent, users), weights, alpha=0.01, population=population)
        np.testing.assert_allclose((lower, upper), (1.0 - high, 1.0 - low), atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_cases_drawn_at_random_are_covered(seed: int) -> None:
    """Of 15,000 such cases the worst missed in 1.24 times alpha; the suite of all bands promises 93.5 % of windows."""
    rng = np.random.default_rng(seed)
    rungs = int(rng.choice([2, 3], p=[0.75, 0.25]))
    levels, values = (
        np.exp(np.sort(rng.choice([0.1, 0.5, 1, 2, 4, 6], rungs, replace=False))),
        int(rng.choice([2, 5, 50])),
    )
    pairs = {
        "retention": [(e / (e + values - 1), 1 / (e + values - 1)) for e in levels],
        "unary": [(0.5, 1 / (e + 1)) for e in levels],
        "never lied about": [((e - 1) / (e + values - 1), 0.0) for e in levels],
    }[str(rng.choice(["retention", "unary", "never lied about"]))]
    users = tuple(int(n) for n in rng.choice([1, 3, 6, 10, 20] if rungs == 3 else [1, 3, 6, 10, 20, 33, 60], rungs))
    shares = rng.choice([0.0, 0.02, 0.1, 0.2, 0.5, 0.9, 1.0], rungs if rng.random() < 0.5 else 1)
    shares = np.broadcast_to(shares, (rungs,))
    for population in ("fleet", "sampling"):
        having = tuple(np.round(shares * users) if population == "fleet" else shares)
        for alpha in (0.05, 0.01, 1e-4):
            assert missed(users, tuple(pairs), having, alpha, population) <= 1.3 * alpha, (population, users, having)


@pytest.mark.parametrize("users", [5_000, 6_500])
def test_far_out_counts_need_to_be_more_before_squares_of_distances_add_up(users: int) -> None:
    """One of fifty values at once, counts of 48 and 89 or more. By squares it was missed 1.6 times too often."""
    pairs, alpha = ((0.482, 0.0), (0.887, 0.0)), 0.05 / 50
    assert missed((users, users), pairs, (0.02, 0.02), alpha, "sampling") <= 1.2 * alpha


def test_a_pooled_share_far_out_needs_more_answers_before_it_is_normal() -> None:
    """One of fifty values at once, of 95 and 2 answers on two rungs. Normal ends missed 1.8 times too often."""
    pairs, users, alpha, share = ((0.482, 0.0), (0.887, 0.0)), (9_900, 100), 0.05 / 50, 0.02
    counts, chances = enumerated([count_law(n, share, pair, "sampling") for n, pair in zip(users, pairs, strict=True)])
    outcomes = counts.shape[1]
    truth, lie = (np.repeat([[pair[side]] for pair in pairs], outcomes, axis=1) for side in (0, 1))
    found = pool_bits(
        [str(outcome) for outcome in range(outcomes)],
        truth,
        lie,
        counts.astype(np.int64),
        np.array(users),
        method="mle",
        population="sampling",
        alpha=alpha,
    )
    assert float(chances[(found.lower > share) | (found.upper < share)].sum()) <= 1.2 * alpha
