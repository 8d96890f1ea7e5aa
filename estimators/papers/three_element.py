"""Three-element responses of Ma & Wang in closed form, corrected: EWRR_n, RR3-dagger, RR3-double-dagger, RR3-club.

Symbol 0 is "nothing" (no edge, no key), symbols 1 and 2 are the two signs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.response import REAL
from estimators.channels.rows import club_rows

Floats = NDArray[np.float64]


def equal_weights_rows(p: float, size: int = 3) -> Floats:
    """EWRR_n: the truth with probability p, each other value with (1 - p) / (n - 1)."""
    rows = np.full((size, size), (1.0 - p) / (size - 1))
    np.fill_diagonal(rows, p)
    return rows


def dagger_rows(p1: float, p2: float) -> Floats:
    """RR3-dagger: 0 is kept with p1, 1 and 2 with p2; lies are uniform."""
    a, b = (1.0 - p1) / 2.0, (1.0 - p2) / 2.0
    return np.array([[p1, a, a], [b, p2, b], [b, b, p2]])


def ddagger_rows(p1: float, p2: float) -> Floats:
    """RR3-double-dagger: the club with one probability p1 for "is it zero", and p2 for the sign."""
    return club_rows(p1, p1, p2)


def determinant(rows: ArrayLike) -> float:
    """Return the determinant: 0 where the shares cannot be estimated."""
    return float(np.linalg.det(np.asarray(rows, dtype=np.float64)))


@dataclass(frozen=True)
class LinearEstimate:
    """Unbiased shares and the unbiased estimate of their covariance for independent respondents."""

    shares: Floats
    covariance: Floats
    """NaN for fewer than two respondents."""


def linear_estimate(rows: ArrayLike, counts: Sequence[int]) -> LinearEstimate:
    """Invert a square channel: shares = counts / N times the inverse; they sum to 1 and may leave [0, 1]."""
    inverse = np.linalg.inv(np.asarray(rows, dtype=np.float64))
    total = sum(counts)
    rates = np.asarray(counts, dtype=np.float64) / total
    spread = np.diag(rates) - np.outer(rates, rates)
    divisor = total - 1 if total > 1 else math.nan
    return LinearEstimate(rates @ inverse, inverse.T @ spread @ inverse / divisor)


@dataclass(frozen=True)
class Covariances:
    """Covariance of the linear estimate under the two population models."""

    sampling: Floats
    fixed_population: Floats


def linear_covariances(rows: ArrayLike, shares: ArrayLike, total: int) -> Covariances:
    """Return the exact covariance of `linear_estimate` for true shares and N respondents.

    The rule that Ma & Wang print drops the covariance between answer counts; this keeps it.
    """
    matrix = np.asarray(rows, dtype=np.float64)
    truth = np.asarray(shares, dtype=np.float64)
    inverse = np.linalg.inv(matrix)
    rates = truth @ matrix
    sampling = inverse.T @ (np.diag(rates) - np.outer(rates, rates)) @ inverse / total
    within = np.diag(rates) - np.einsum("x,xi,xj->ij", truth, matrix, matrix)
    return Covariances(sampling, inverse.T @ within @ inverse / total)


def equal_weights_variance(size: int, p: float, share: float, total: int) -> float:
    """Return the variance of one share under EWRR_n, independent respondents (Ma & Wang, Eq. 27, corrected)."""
    slope = size * p - 1.0
    return (1.0 - p + slope * share) * (size - 2.0 + p - slope * share) / (slope * slope * total)


def equal_weights_probability(size: int, epsilon: float) -> float:
    """Return the best p = e^eps / (e^eps + n - 1): the truth is the likeliest answer."""
    return REAL.grr(epsilon, size).truth


def unlikely_truth_probability(size: int, epsilon: float) -> float:
    """Return the other solution 1 / ((n - 1) e^eps + 1), which is never better."""
    return math.exp(-epsilon) / (size - 1 + math.exp(-epsilon))


def dagger_variance(p1: float, p2: float, share: float, total: int) -> float:
    """Return the variance of the share of symbol 0 under RR3-dagger, independent respondents (Eq. 29)."""
    slope = 2.0 * p1 + p2 - 1.0
    return (1.0 - p2 * p2 + 2.0 * p2 * slope * share - (slope * share) ** 2) / (slope * slope * total)


def dagger_gradient(p1: float, p2: float, share: float, total: int) -> tuple[float, float]:
    """Return the derivatives of `dagger_variance` by p1 and p2 (Eq. 40a; 40b corrected)."""
    slope = 2.0 * p1 + p2 - 1.0
    scale = slope**3 * total
    first = (-4.0 * (1.0 - p2 * p2) - 4.0 * p2 * slope * share) / scale
    second = (-2.0 * (1.0 - p2 * p2) - (2.0 * p2 + (2.0 - 4.0 * p1) * share) * slope) / scale
    return first, second


def dagger_partner(epsilon: float, p2: float) -> float:
    """Return the largest p1 that RR3-dagger may have at `epsilon` for a given p2 in [1/3, e^eps / (e^eps + 2)].

    At the upper end of p2 it is EWRR_3, the best choice when all three shares are wanted; at p2 = 1/3 the two signs
    can no longer be told apart.
    """
    growth = math.exp(epsilon)
    if not 1.0 / 3.0 <= p2 <= equal_weights_probability(3, epsilon) * (1.0 + 1e-15):
        raise ValueError(
            f"p2 must be in [1/3, {equal_weights_probability(3, epsilon):.6g}] at this epsilon; got {p2!r}"
        )
    return min(growth * (1.0 - p2) / 2.0, 1.0 - 2.0 * p2 / growth)


@dataclass(frozen=True)
class WeightTotal:
    """Estimated total weight of one item and its variance."""

    total: float
    variance: float


def half_step_weight(p: float, counts: Sequence[int]) -> WeightTotal:
    """Estimate the total of weights in {0, 1/2, 1} told through EWRR_3 (Ma & Wang, section 4.2.1).

    Which item is rated travels in clear there: only the weight is protected.
    """
    estimate, number = linear_estimate(equal_weights_rows(p), counts), sum(counts)
    weights = np.array([0.0, 0.5, 1.0])
    return WeightTotal(
        number * float(weights @ estimate.shares), number**2 * float(weights @ estimate.covariance @ weights)
    )
