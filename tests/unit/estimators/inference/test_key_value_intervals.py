"""Intervals of key-value means: laws of rare signs, judged by drawing what the laws give."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from estimators.estimates import Method
from estimators.inference.key_value import KeyValueParameters
from estimators.inference.key_value_pooling import KeyValueCounts, pool_key_values
from estimators.intervals.one_look import skewed_tail

DULL, SHARP = KeyValueParameters(0.5128, 0.5128, 0.525), KeyValueParameters(0.9951, 0.9951, 0.9975)
"""Levels 0.1 and 6."""


def ends(
    users: tuple[int, ...], plus: tuple[int, ...], minus: tuple[int, ...], alpha: float, method: Method = "pooled"
) -> tuple[float, float]:
    """The interval of the mean of the only key."""
    asked, up, down = (np.array(part)[:, None] for part in (users, plus, minus))
    counts = KeyValueCounts.of([DULL, SHARP][-len(users) :], asked, up, down, np.array(users))
    found = pool_key_values(("share", "mean"), counts, method=method, population="sampling", alpha=alpha)
    return float(found.lower[1]), float(found.upper[1])


@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_one_stray_sign_on_a_sharp_rung_does_not_exclude_a_mean_at_the_end(alpha: float) -> None:
    """Of 20 people on the sharp rung 4 told a sign, one of them +1: seen in 5 % of windows if all are -1.

    The normal law gave it a thousandth, so that -1 was excluded whenever it happened.
    """
    lower, upper = ends((2056, 20), (467, 1), (542, 3), alpha, "mle")
    assert lower == -1.0
    assert upper < 1.0


def test_many_signs_get_the_interval_of_the_normal_law() -> None:
    lower, upper = ends((100_000,), (12_000,), (8_000,), 0.05)
    rate, difference = 0.2, 0.04
    share, total = (rate - (1 - SHARP.p1)) / SHARP.presence, difference / SHARP.sign
    mean = total / share
    spread = rate / SHARP.sign**2 - total**2 - 2 * mean * total * (SHARP.p1 / SHARP.presence - share)
    spread += mean**2 * rate * (1 - rate) / SHARP.presence**2
    half = 1.96 * np.sqrt(spread / 100_000) / share
    assert (lower + upper) / 2 == pytest.approx(mean, abs=0.02 * half)
    assert (upper - lower) / 2 == pytest.approx(half, rel=0.02)


def test_a_mean_at_the_end_of_many_people_has_a_short_interval() -> None:
    """Ends are found between candidates: a band is not as wide as the step from one to the next."""
    lower, upper = ends((1_000_000,), (897_550,), (2_450,), 0.05, "mle")
    assert upper == 1.0
    assert 0.0 < upper - lower < 0.001


@pytest.mark.parametrize("minus", [348_500, 348_000, 347_500, 347_000])
def test_a_mean_between_two_candidates_gets_the_interval_of_the_normal_law(minus: int) -> None:
    """A million people tell a mean to 0.001, and the candidates of few people are 0.005 apart."""
    lower, upper = ends((1_000_000,), (651_000,), (minus,), 0.05)
    mean, difference = (lower + upper) / 2, (651_000 - minus) / 1_000_000
    assert (upper - lower) / 2 == pytest.approx(1.96e-3 * np.sqrt(1 - difference**2) / SHARP.sign, rel=0.03)
    assert mean == pytest.approx(difference / SHARP.sign, abs=2e-3)


def test_the_tail_of_rare_events_is_that_of_their_law() -> None:
    """Half an event nearer, the gamma law has at least the tails of Poisson's law, and not three times as much."""
    for mean in (0.05, 0.5, 3.0, 20.0):
        deviation = np.sqrt(mean)
        counts = np.arange(np.ceil(mean) + 1, stats.poisson.isf(1e-4, mean) + 1)
        found = skewed_tail((counts - 0.5 - mean) / deviation, np.full(counts.shape, 1.0 / deviation))
        ratio = found / stats.poisson.sf(counts - 1, mean)
        assert np.all((ratio > 0.95) & (ratio < 3.0)), f"mean {mean}: {ratio}"
