"""Closed-form errors are those that estimates show."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from estimators.channels.response import REAL
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.intervals.one_look import bonferroni_z
from estimators.mechanisms.perturbation import perturb
from estimators.mechanisms.registry import build
from estimators.planning.coverage import coverage
from estimators.planning.errors import standard_errors
from estimators.planning.widths import deviation
from estimators.simulation.tallies import tally_of
from tests.support.stats import BUDGET, SHARE

LABELS = ("a", "b", "c", "d")
PEOPLE = ["a"] * 500 + ["b"] * 300 + ["c"] * 150 + ["d"] * 50
SHARES = (0.5, 0.3, 0.15, 0.05)
RUNS = 400


def test_the_closed_form_of_one_value_is_the_planners() -> None:
    for name, response in (("grr", REAL.grr(1.0, 4)), ("sue", REAL.sue(1.0)), ("oue", REAL.oue(1.0))):
        found = standard_errors(build(name, LABELS, 1.0), SHARES, 2_000)
        assert found == pytest.approx([deviation(response, share, 2_000) for share in SHARES], rel=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("grr", {}), ("urr", {"sensitive": ["a", "d"]}), ("urap", {"sensitive": ["a", "d"]})],
)
def test_estimates_scatter_as_the_closed_form_says(name: str, parameters: dict[str, object]) -> None:
    specification = build(name, LABELS, [0.5, 1.0], **parameters)
    simulated = coverage(specification, PEOPLE, runs=RUNS, rungs=0, method="stratified")
    assert simulated.truth.tolist() == list(SHARES)
    ratio = (simulated.deviation / standard_errors(specification, SHARES, len(PEOPLE), rung=0)) ** 2 * (RUNS - 1)
    # Sums of squares of nearly normal estimates; a share of the suite's false alarms for both sides of each label.
    BUDGET.take(len(LABELS))
    assert (ratio > chi2.ppf(SHARE / 2, RUNS - 1)).all(), ratio
    assert (ratio < chi2.isf(SHARE / 2, RUNS - 1)).all(), ratio
    BUDGET.take()
    off = np.abs(simulated.mean - SHARES) / simulated.deviation * np.sqrt(RUNS)
    assert off.max() < bonferroni_z(SHARE / 2, len(LABELS)), off


@pytest.mark.parametrize("name", ["simmons", "christofides", "rr3_dagger", "rr3_ddagger", "rr3_club"])
def test_mechanisms_of_a_few_values_have_the_error_that_estimates_show(name: str) -> None:
    labels = LABELS[:3] if name.startswith("rr3") else LABELS[:2]
    specification = build(name, labels, 1.0)
    people = [label for label in labels for _ in range(30_000)]
    shares = np.full(len(labels), 1 / len(labels))
    tally = tally_of(specification, perturb(specification, people, SeededBits(1)))
    estimates = estimator_of(specification).estimate(tally)
    errors = standard_errors(specification, shares, len(people))
    # Estimates plug in the shares that they find, which are off by some of these deviations.
    assert np.sqrt(estimates.variance) == pytest.approx(errors, rel=0.03)


def test_a_mean_has_the_error_of_its_unit() -> None:
    specification = build("mean", ["delay"], 1.0, low=-60.0, high=600.0)
    [error] = standard_errors(specification, [40.0], 10_000)
    drawn = perturb(specification, [40.0] * 10_000, SeededBits(1))
    estimates = estimator_of(specification).estimate(tally_of(specification, drawn))
    assert error == pytest.approx(np.sqrt(estimates.variance[0]), rel=0.05)


def test_sampling_adds_the_spread_of_people() -> None:
    specification = build("oue", LABELS, 1.0)
    fleet, sampling = (
        standard_errors(specification, SHARES, 1_000, population=population) for population in ("fleet", "sampling")
    )
    assert sampling**2 - fleet**2 == pytest.approx([share * (1 - share) / 1_000 for share in SHARES])


def test_a_level_without_information_has_no_finite_error() -> None:
    assert np.isinf(standard_errors(build("grr", LABELS, [0.0, 1.0]), SHARES, 1_000, rung=0)).all()


def test_a_truth_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one entry for each of 4 labels; got shape \(3,\)"):
        standard_errors(build("grr", LABELS, 1.0), SHARES[:3], 1_000)


def test_a_mechanism_without_a_closed_form_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"lpp has no closed form per value; simulate it with estimators\.coverage"):
        standard_errors(build("lpp", ["bread"], 1.0), [0.5, 0.0], 1_000)


def test_coverage_repeats_and_counts() -> None:
    specification = build("grr", LABELS, 1.0)
    first = coverage(specification, PEOPLE, runs=100)
    again = coverage(specification, PEOPLE, runs=100)
    assert first.inside.tolist() == again.inside.tolist()
    assert coverage(specification, PEOPLE, runs=100, seed=2).inside.tolist() != first.inside.tolist()
    BUDGET.take(2 * len(LABELS))
    lower, upper = first.bounds(SHARE)
    assert ((lower < 0.95) & (upper > 0.95)).all(), first.rate
    wrong = coverage(specification, PEOPLE, runs=100, alpha=0.9)
    assert (wrong.bounds(SHARE)[1] < 0.95).all(), "bands that promise little hold seldom"


def test_coverage_of_keys_and_values_counts_shares_and_means() -> None:
    specification = build("lpp", ["bread", "milk"], 4.0)
    people = [{"bread": 0.5}, {"milk": -0.5, "bread": 0.0}] * 500
    simulated = coverage(specification, people, runs=60)
    assert simulated.truth == pytest.approx([1.0, 0.25, 0.5, -0.5])
    BUDGET.take(2)
    assert (simulated.bounds(SHARE)[1] > 0.95).all(), simulated.rate


def test_one_run_is_refused() -> None:
    with pytest.raises(ValueError, match="runs must be at least 2; got 1"):
        coverage(build("grr", LABELS, 1.0), PEOPLE, runs=1)
