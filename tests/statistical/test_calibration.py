"""Estimates of every mechanism here scatter around the truth of the fleet as much as they say.

The squared z-scores of independent fleets add up to a chi-square; it may be neither too large (intervals too narrow)
nor too small (too wide). One share of the budget per check; a variance that is wrong by half is seen almost surely.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from estimators.channels.bits import count_ones, pack
from estimators.estimates import Method
from estimators.exact.randomness import SeededBits
from estimators.papers.noisy_sampling import sampling_variance
from estimators.papers.permanent_response import PermanentResponse
from tests.support.mechanism import Mechanism, build
from tests.support.simulate import simulated_tally, simulated_values
from tests.support.stats import SHARE, assert_chi_square, assert_normal

LADDER = (1.0, 2.0, 4.0)
FLEETS = 100
USERS = 2_000

CASES: list[tuple[str, list[str], tuple[float, ...], dict[str, Any]]] = [
    ("sue", ["a", "b", "c", "d"], LADDER, {}),
    ("oue", ["a", "b", "c", "d"], LADDER, {}),
    ("rappor", ["a", "b", "c", "d"], (2.0, 4.0, 8.0), {"bits": 24, "cohorts": 2}),
    ("rappor", ["a", "b", "c", "d"], (2.0, 4.0, 8.0), {"bits": 24, "cohorts": 3, "hashes": 1, "open_list": False}),
    ("urr", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b", "d"]}),
    ("urap", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b", "d"]}),
    ("urap", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b", "d"], "theta": 0.5}),
    ("mangat", ["a", "b"], LADDER, {}),
    ("pum", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b"], "tags": ["home"]}),
    ("pum", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b"], "tags": ["home", "work"], "base": "urap"}),
    ("k_randomization", ["a", "b"], (1.0,), {"least_records": 1000}),
]


BEHIND: list[tuple[str, list[str], tuple[float, ...], dict[str, Any]]] = [
    ("oue", ["a", "b", "c", "d"], LADDER, {}),
    ("rappor", ["a", "b", "c", "d"], (2.0, 4.0, 8.0), {"bits": 24, "cohorts": 2}),
    ("urr", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b", "d"]}),
    ("pum", ["a", "b", "c", "d"], LADDER, {"sensitive": ["b"], "tags": ["home"]}),
]


def scores(mechanism: Mechanism, method: Method) -> np.ndarray[Any, Any]:
    rows = []
    for fleet in range(FLEETS):
        values = simulated_values(mechanism, USERS, fleet)
        found = mechanism.estimate(simulated_tally(mechanism, values, fleet), method=method)
        rows.append((found.value - mechanism.truth(values)) / np.sqrt(found.variance))
    return np.array(rows)


@pytest.mark.statistical
@pytest.mark.parametrize("method", ["pooled", "stratified"])
@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_the_error_is_as_large_as_stated(case: tuple[Any, ...], method: Method) -> None:
    name, labels, ladder, parameters = case
    z = scores(build(name, labels, ladder, parameters), method)
    # Labels of one fleet depend on each other, so each is checked on its own. A pooled estimate whose rungs disagree by
    # chance (one in a thousand) is a stratified one with its own variance: no harm to the law.
    for column in z.T:
        assert_chi_square(float((column**2).sum()), FLEETS)
        least = float(stats.chi2.ppf(SHARE, FLEETS))
        assert (column**2).sum() >= least, f"squared scores {(column**2).sum():.1f}, at least {least:.1f} expected"
        assert_normal(float(column.mean()), 0.0, 1 / np.sqrt(FLEETS))


@pytest.mark.statistical
@pytest.mark.parametrize("case", BEHIND, ids=[case[0] for case in BEHIND])
def test_the_error_about_the_population_behind_the_fleet_is_as_large_as_stated(case: tuple[Any, ...]) -> None:
    name, labels, ladder, parameters = case
    mechanism = build(name, labels, ladder, parameters)
    shares = np.arange(len(labels), 0, -1) / sum(range(len(labels) + 1))
    rows = []
    for fleet in range(FLEETS):
        tally = simulated_tally(mechanism, simulated_values(mechanism, USERS, fleet), fleet)
        found = mechanism.estimate(tally, population="sampling")
        rows.append((found.value - shares) / np.sqrt(found.variance))
    for column in np.array(rows).T:
        assert_chi_square(float((column**2).sum()), FLEETS)
        assert (column**2).sum() >= float(stats.chi2.ppf(SHARE, FLEETS))


@pytest.mark.statistical
def test_the_interval_of_a_mean_errs_on_the_safe_side() -> None:
    # Rounding scatters less than the two-point law that is charged; with numbers at the ends it scatters just so much.
    mean = build("mean", [], LADDER, {"low": -1.0, "high": 3.0})
    z = scores(mean, "pooled")
    assert_chi_square(float((z**2).sum()), FLEETS)
    assert_normal(float(z.mean()), 0.0, 1 / np.sqrt(FLEETS))


@pytest.mark.statistical
def test_noisy_sampling_scatters_as_pan_says_and_relaxation_less() -> None:
    users, reports, fleets = 500, 5, 300
    baseline = PermanentResponse.for_levels(1.0, 0.5, 8)
    truth = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    packed = pack(np.arange(users)[:, None] < truth * users)
    squares = np.zeros(8)
    for fleet in range(fleets):
        bits = SeededBits(fleet, "baseline")
        kept = baseline.keep(packed, bits)
        ones = sum(count_ones(baseline.report(kept, bits), 8) for _ in range(reports))
        squares += (baseline.shares(np.asarray(ones), users, reports) - truth) ** 2
    total = float(squares.sum()) / sampling_variance(1.0, 0.5, reports, users)
    assert_chi_square(total, 8 * fleets)
    assert total >= float(stats.chi2.ppf(SHARE, 8 * fleets))
