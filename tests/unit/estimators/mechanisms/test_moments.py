"""The mean mechanism asked for second moments: half of the devices answer about the square of their number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanism import ParameterError
from estimators.mechanisms.registry import build, randomizer_of
from tests.support.checks import Example, check_mechanism
from tests.support.mechanism import whole
from tests.support.simulate import simulated_tally
from tests.support.stats import assert_binomial

PARAMETERS = {"low": -10.0, "high": 40.0, "unit": "h", "moments": 2}


def test_it_keeps_all_that_a_mechanism_promises() -> None:
    strangers = ("old", None, [1.0], math.nan)
    check_mechanism(
        Example("mean", ("age",), parameters={"low": 0.0, "high": 100.0, "moments": 2}, strangers=strangers)
    )


def test_squares_have_their_own_range_and_unit_and_one_moment_is_what_it_was() -> None:
    both = build("mean", ["hours"], (1.0, 2.0), **PARAMETERS)
    first, second = both.quantities
    assert (first.label, first.low, first.high, first.unit) == ("hours", -10.0, 40.0, "h")
    assert (second.label, second.low, second.high, second.unit) == ("square of hours", 0.0, 1600.0, "h²")
    alone = build("mean", ["hours"], (1.0, 2.0), low=-10.0, high=40.0)
    assert alone.labels == ("hours",)
    assert "moments" not in alone.canonical(), "surveys keep their id"
    with pytest.raises(ParameterError):
        build("mean", ["hours"], (1.0,), low=0.0, high=1.0, moments=3)


def test_half_of_the_devices_answer_about_squares_whatever_their_number() -> None:
    both = build("mean", ["hours"], (1.0,), **PARAMETERS)
    randomizer, bits = randomizer_of(both), SeededBits(3)
    for number in (-10.0, 0.0, 40.0):
        groups = randomizer.draw(randomizer.encode([number] * 2_000, bits), bits).groups
        assert_binomial(int(groups.sum()), 2_000, 0.5)


@pytest.mark.statistical
def test_bands_of_moments_variance_and_deviation_hold_the_truth() -> None:
    both = build("mean", ["hours"], (1.0, 3.0), **PARAMETERS)
    windows, inside = 60, np.zeros(4, dtype=np.int64)
    rng = np.random.default_rng(5)
    for seed in range(windows):
        numbers = np.clip(rng.normal(12.0, 9.0, size=800), -10.0, 40.0)
        found = estimator_of(both).estimate(simulated_tally(whole(both), numbers.tolist(), seed), method="stratified")
        spread = [(one.lower, one.upper) for one in found.derived]
        bands = [*zip(found.lower, found.upper, strict=True), *spread]
        truths = [numbers.mean(), (numbers**2).mean(), numbers.var(), numbers.std()]
        inside += [lower <= truth <= upper for (lower, upper), truth in zip(bands, truths, strict=True)]
    for count in inside:
        assert_binomial(min(int(count), round(0.95 * windows)), windows, 0.95)
