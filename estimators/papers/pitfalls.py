"""What tempting shortcuts cost, in closed form: for planning, documentation and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.moments import binary_variance
from estimators.channels.response import REAL
from estimators.channels.rows import channel_matrix
from estimators.papers.gradual_release import step

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Averaging:
    """Variances of binary estimates that average the answers of all rungs, against using the last answer alone.

    The rungs of one chain are not independent: the covariance of two rounds is the variance of the later one. What
    the formula for independent rounds claims is therefore too small.
    """

    last: float
    covariance: Floats
    equal_true: float
    equal_claimed: float
    weighted_true: float
    weighted_claimed: float


def averaging_rounds(epsilons: Sequence[float], users: int) -> Averaging:
    """Return what averaging the rounds of one chain does to the variance (binary answers, fixed fleet)."""
    variances = np.array([binary_variance(epsilon, users) for epsilon in epsilons])
    order = np.arange(len(variances))
    covariance = variances[np.maximum(order[:, None], order[None, :])]
    inverse = (1.0 / variances) / np.sum(1.0 / variances)
    return Averaging(
        last=float(variances[-1]),
        covariance=covariance,
        equal_true=float(covariance.mean()),
        equal_claimed=float(variances.sum() / len(variances) ** 2),
        weighted_true=float(inverse @ covariance @ inverse),
        weighted_claimed=float(1.0 / np.sum(1.0 / variances)),
    )


def adaptive_expectation(share: float, lower: float, upper: float) -> float:
    """Return what the mean of debiased answers expects when only devices that answered 0 climb from lower to upper.

    The truth is `share`. Rungs must not depend on answers: moment estimates are biased then. The likelihood is not.
    """
    first, moves = channel_matrix(lower, 2), step(lower, upper, 2)
    debiased = [
        [(answer - REAL.grr(epsilon, 2).lie) / REAL.grr(epsilon, 2).slope for answer in (0, 1)]
        for epsilon in (lower, upper)
    ]
    # Pr(second answer is 1 | first answer 0): the truth appears for value 1, the lie replaces the truth for value 0.
    assert moves.truth_to_lie is not None  # two values have both
    assert moves.lie_to_truth is not None
    to_one = (moves.truth_to_lie, moves.lie_to_truth)
    expected = 0.0
    for value, weight in ((0, 1.0 - share), (1, share)):
        climbed = to_one[value] * debiased[1][1] + (1.0 - to_one[value]) * debiased[1][0]
        expected += weight * (first[value, 0] * climbed + first[value, 1] * debiased[0][1])
    return float(expected)
