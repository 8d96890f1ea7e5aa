"""Randomised checks with a common budget: the whole suite may fail by chance once in a million runs.

Every check takes one share of the budget, 1e-6 / 10,000 = 1e-10; checks are counted as they run, and the one after the
last share fails. Bounds are exact binomial tails: a bound of so many standard deviations would be wrong far out in the
tails, where these checks live.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

SUITE_FALSE_ALARM = 1e-6
SHARES = 10_000
SHARE = SUITE_FALSE_ALARM / SHARES


class Budget:
    """Counts the shares that the checks of this run have taken."""

    def __init__(self, shares: int) -> None:
        self.shares, self.spent = shares, 0.0

    def take(self, part: float = 1.0) -> None:
        """Take a share, or a part of one."""
        self.spent += part
        if self.spent > self.shares:
            raise RuntimeError(f"all {self.shares} shares of the false-alarm budget are spent; make fewer checks")


BUDGET = Budget(SHARES)


def assert_binomial(successes: int, trials: int, probability: float, *, share: float = SHARE) -> None:
    """Fail if so many successes, or so few, have a probability below the share (exact, both tails together)."""
    BUDGET.take(share / SHARE)
    lower = int(stats.binom.ppf(share / 2, trials, probability))
    upper = int(stats.binom.isf(share / 2, trials, probability))
    assert lower <= successes <= upper, (
        f"{successes} of {trials} at probability {probability:.6g}: expected {trials * probability:.1f}, "
        f"allowed {lower} to {upper}, false alarm {share:.1e}"
    )


def assert_law(counts: Sequence[int] | np.ndarray[Any, Any], law: Sequence[float] | np.ndarray[Any, Any]) -> None:
    """Fail if a histogram does not follow a law: every cell by its exact binomial, one share for all cells together."""
    total = int(np.sum(counts))
    assert len(counts) == len(law), f"{len(counts)} counts for {len(law)} probabilities"
    assert math.isclose(float(np.sum(law)), 1.0, abs_tol=1e-9), "the law must sum to 1"
    for count, probability in zip(counts, law, strict=True):
        assert_binomial(int(count), total, float(min(probability, 1.0)), share=SHARE / len(counts))


def assert_chi_square(statistic: float, degrees: int) -> None:
    """Fail if a chi-square statistic is larger than its exact quantile at one share."""
    BUDGET.take()
    bound = float(stats.chi2.isf(SHARE, degrees))
    assert statistic <= bound, f"chi-square {statistic:.2f} on {degrees} degrees: allowed {bound:.2f} at {SHARE:.1e}"


def assert_normal(observed: float, expected: float, deviation: float) -> None:
    """Fail if a nearly normal statistic is further from its mean than one share allows (6.5 deviations).

    Only for sums of many bounded terms, whose tails are lighter than the normal's at this distance or as light.
    """
    BUDGET.take()
    bound = float(stats.norm.isf(SHARE / 2)) * deviation
    assert abs(observed - expected) <= bound, (
        f"observed {observed:.6g}, expected {expected:.6g}, allowed distance {bound:.3g} at {SHARE:.1e}"
    )


def sample_size(probability: float, wrong: float, *, power: float = 0.999) -> int:
    """Return how many trials `assert_binomial` needs to see that the probability is `wrong` instead.

    >>> 1000 < sample_size(0.5, 0.6) < 3000
    True
    """
    reach = stats.norm.isf(SHARE / 2) * math.sqrt(probability * (1 - probability))
    reach += stats.norm.isf(1 - power) * math.sqrt(wrong * (1 - wrong))
    return math.ceil(float(reach / (probability - wrong)) ** 2)
