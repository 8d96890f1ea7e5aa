"""Bounds from counts: how often they are wrong is computed, not simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from estimators.auditing.bounds import count_p_values, epsilon_lower_bounds, sum_p_value


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("trials", "other_trials"), [(40, 40), (25, 60)])
@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_a_lower_bound_on_epsilon_exceeds_it_as_seldom_as_promised(
    epsilon: float, trials: int, other_trials: int, alpha: float
) -> None:
    """Exact over all pairs of counts, for the event at which randomized response is as private as it says."""
    truth = math.exp(epsilon) / (math.exp(epsilon) + 1)
    hits, others = np.arange(trials + 1), np.arange(other_trials + 1)
    chance = np.outer(stats.binom.pmf(hits, trials, truth), stats.binom.pmf(others, other_trials, 1 - truth))
    bounds = np.array([epsilon_lower_bounds(hits, trials, np.full_like(hits, k), other_trials, alpha) for k in others])
    assert chance.sum() == pytest.approx(1.0)
    assert chance[epsilon < bounds.T].sum() <= alpha


def test_bounds_grow_with_the_numbers_and_need_people_on_both_sides() -> None:
    few, many = (float(epsilon_lower_bounds([9 * n], 10 * n, [n], 10 * n, 1e-6)[0]) for n in (10, 1_000))
    assert 0 < few < many < math.log(9)
    assert epsilon_lower_bounds([0], 0, [0], 5, 0.05).tolist() == [0.0]
    # Nothing is concluded from an event that never happened.
    assert epsilon_lower_bounds([0], 50, [0], 50, 0.05).tolist() == [0.0]


@pytest.mark.parametrize("chance", [0.0, 0.01, 0.5, 1.0])
def test_p_values_of_counts_are_exact(chance: float) -> None:
    counts, trials = np.arange(31), 30
    law = stats.binom(trials, chance)
    expected = np.minimum(1.0, 2 * np.minimum(law.cdf(counts), law.sf(counts - 1)))
    assert count_p_values(counts, trials, chance) == pytest.approx(expected, abs=1e-12)
    for level in (0.1, 0.01):
        assert law.pmf(counts)[count_p_values(counts, trials, chance) <= level].sum() <= level + 1e-12


def test_p_values_of_sums_hold_for_unequal_chances() -> None:
    """The law of a sum of unequal trials, convolved exactly."""
    chances = np.concatenate([np.full(20, 0.05), np.full(20, 0.6), np.full(10, 0.95)])
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    p_values = np.array([sum_p_value(k, len(chances), float(chances.mean())) for k in range(len(chances) + 1)])
    for level in (0.2, 0.01, 1e-6):
        assert law[p_values <= level].sum() <= level
    assert sum_p_value(0, 0, 0.5) == 1.0
    assert sum_p_value(3, 3, 0.0) == 0.0
