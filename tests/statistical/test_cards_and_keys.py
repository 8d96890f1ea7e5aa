"""Cards, three-element and key-value estimates scatter as much as they say, around the truth of the fleet.

Squared z-scores of independent fleets add up to a chi-square, which may be neither too large nor too small; one share
of the suite's budget per check. Errors are conservative for the means of key-value data (their spread within a fleet
cannot be known), so those may be too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.mechanism import Mechanism, build
from tests.support.simulate import simulated_tally, simulated_values
from tests.support.stats import SHARE, assert_binomial, assert_chi_square

FLEETS = 80
LADDER = (1.0, 2.0, 4.0)

CASES: list[tuple[str, list[str], tuple[float, ...], dict[str, Any], int]] = [
    ("warner", ["no", "yes"], LADDER, {}, 2000),
    ("simmons", ["no", "yes"], LADDER, {"coin": 0.3}, 2000),
    ("christofides", ["no", "yes"], LADDER, {"middle": 0.2}, 2000),
    ("christofides", ["no", "yes"], LADDER, {"cards": [2, 1, 1, 3, 9]}, 2000),
    ("improved_christofides", ["no", "yes"], (1.0,), {"block": 100, "blocks": 20}, 2000),
    ("improved_christofides", ["no", "yes"], (1.0,), {"block": 300, "blocks": 10}, 2000),
    ("ewrr", ["a", "b", "c", "d"], LADDER, {}, 2000),
    ("rr3_dagger", ["none", "plus", "minus"], LADDER, {"p1": 0.9, "p2": 0.8}, 2000),
    ("rr3_ddagger", ["none", "plus", "minus"], LADDER, {}, 2000),
    ("rr3_club", ["none", "plus", "minus"], LADDER, {"p1": 0.9, "p2": 0.8, "q": 0.9}, 2000),
    ("lpp", ["bread", "milk"], (2.0, 4.0), {}, 6000),
    ("pckv_ue", ["bread", "milk", "salt"], (2.0, 4.0), {"padding": 2}, 6000),
]


def fleets(mechanism: Mechanism, users: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """z-scores and whether intervals of 95 % held the truth, [fleet, label]."""
    scores, held = [], []
    for fleet in range(FLEETS):
        values = simulated_values(mechanism, users, fleet)
        found = mechanism.estimate(simulated_tally(mechanism, values, fleet))
        truth = mechanism.truth(values)
        scores.append((found.value - truth) / np.sqrt(found.variance))
        held.append((found.lower <= truth) & (truth <= found.upper))
    return np.array(scores), np.array(held)


@pytest.mark.statistical
@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_the_error_is_as_large_as_stated(case: tuple[Any, ...]) -> None:
    name, labels, ladder, parameters, users = case
    mechanism = build(name, labels, ladder, parameters)
    scores, held = fleets(mechanism, users)
    least = float(stats.chi2.ppf(SHARE, FLEETS))
    for label, column, inside in zip(mechanism.labels, scores.T, held.T, strict=True):
        total = float((column**2).sum())
        assert_chi_square(total, FLEETS)
        if not label.endswith("/mean"):
            assert total >= least, f"{label}: squared scores {total:.1f}, at least {least:.1f} expected"
        if int(inside.sum()) < 0.93 * FLEETS:
            assert_binomial(int(inside.sum()), FLEETS, 0.93)
