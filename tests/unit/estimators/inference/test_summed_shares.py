"""Bands of sums of shares: never without width, and their exact coverage."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.estimates import Method, Population
from estimators.inference.summed_shares import SummedBands, summed_bands
from estimators.intervals.always_valid import YesNo
from estimators.tally import Tally
from tests.support.mechanism import build

USERS = 40
POPULATIONS: tuple[Population, ...] = ("fleet", "sampling")
LABELS = ["a", "b", "c", "d"]


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("method", ["pooled", "stratified", "mle"])
def test_values_that_nobody_named_have_a_band_together(population: Population, method: Method) -> None:
    mechanism = build("urr", LABELS, (1.0, 4.0), {"sensitive": ["a", "b"]})
    tally = Tally.empty(2, 1, 4)
    tally.counts[1, 0, 0] = tally.users[1, 0] = 50
    found = mechanism.estimate(tally, method=method, population=population)
    sums = mechanism.estimator.sums(tally, [(2, 3)], found)
    assert sums.upper[0] >= (0.05 if population == "sampling" else 0.5 / 50)


def of_two(one_symbol: bool, truth: float, lie: float, ones: int, population: Population) -> SummedBands:
    """Return the band of two values that so many answers name, half of them each."""
    counts = np.array([[ones // 2, ones - ones // 2]])
    questions = YesNo.of([truth], [lie], counts, [USERS])
    return summed_bands(
        questions,
        [(0, 1)],
        np.full(2, (ones / USERS - (2 * lie)) / (truth - lie) / 2.0),
        one_symbol=one_symbol,
        method="stratified",
        population=population,
        alpha=0.05,
    )


def law(one_symbol: bool, truth: float, lie: float, having: int) -> NDArray[np.float64]:
    """Return the law of the answers that name either of two values which so many devices have, one each."""
    if one_symbol:
        trials, chances = (having, USERS - having), (truth + lie, 2.0 * lie)
    else:
        # Two bits of every device; of those who have a value one is set because of it.
        trials, chances = (having, 2 * USERS - having), (truth, lie)
    named, invented = (
        stats.binom.pmf(np.arange(number + 1), number, chance) for number, chance in zip(trials, chances, strict=True)
    )
    return np.convolve(named, invented)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("level", [1.0, 4.0])
@pytest.mark.parametrize("one_symbol", [True, False], ids=["symbols", "bits"])
def test_the_band_of_two_values_holds_their_share_as_often_as_it_says(
    population: Population, level: float, one_symbol: bool
) -> None:
    truth, lie = np.exp(level) / (np.exp(level) + 3), 1 / (np.exp(level) + 3)
    most = USERS if one_symbol else 2 * USERS
    found = [of_two(one_symbol, truth, lie, ones, population) for ones in range(most + 1)]
    lower, upper = (np.array([getattr(band, side)[0] for band in found]) for side in ("lower", "upper"))
    assert np.all(lower < upper)
    laws = np.stack([law(one_symbol, truth, lie, having) for having in range(USERS + 1)])
    shares = np.arange(USERS + 1) / USERS
    if population == "sampling":
        shares = np.linspace(0.0, 1.0, 101)
        laws = stats.binom.pmf(np.arange(USERS + 1), USERS, shares[:, None]) @ laws
    held = (lower - 1e-12 <= shares[:, None]) & (shares[:, None] <= upper + 1e-12)
    coverage = np.sum(laws * held, axis=1)
    assert coverage.min() >= 0.935, (shares[coverage.argmin()], coverage.min())


def test_bits_that_ask_differently_share_the_error_rate() -> None:
    truth, lie = np.array([[0.7, 0.7, 0.5]]), np.array([[0.2, 0.2, 0.0]])
    questions = YesNo.of(truth, lie, np.array([[30, 25, 4]]), [100])
    both, first, second = (
        summed_bands(
            questions, [cells], np.full(3, 0.1), one_symbol=False, method="pooled", population="fleet", alpha=alpha
        )
        for cells, alpha in (((0, 1, 2), 0.05), ((0, 1), 0.025), ((2,), 0.025))
    )
    assert both.lower[0] == pytest.approx(first.lower[0] + second.lower[0])
    assert both.upper[0] == pytest.approx(first.upper[0] + second.upper[0])


def test_shares_that_do_not_add_up_have_no_sums() -> None:
    mechanism = build("rappor", LABELS, (1.0,), {"bits": 16, "cohorts": 1, "hashes": 1})
    tally = Tally.empty(1, 1, 16)
    with pytest.raises(TypeError, match="no bands when they are added up"):
        mechanism.estimator.sums(tally, [(0, 1)], mechanism.estimate(tally))
