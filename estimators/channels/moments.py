"""Means and covariances of linear estimates, for any channel and in closed form for retention channels.

Both population models of the estimates: `fleet` is the spread around the true shares of the people who answered,
`sampling` adds that they are a random sample of a larger population.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.response import Response
from estimators.estimates import Population

Floats = NDArray[np.float64]


def most_values(epsilon: float) -> float:
    """Return 3 e^eps + 2: with more values, a rare value has the smaller variance under OUE than under GRR."""
    return 3.0 * math.exp(epsilon) + 2.0


def binary_variance(epsilon: float, users: int) -> float:
    """Return the variance of a share told as a bit, fixed fleet: e^eps / (N (e^eps - 1)^2) (Pan, Eq. 67, mended)."""
    if users == 0 or epsilon == 0:
        return math.inf
    return math.exp(-epsilon) / (users * math.expm1(-epsilon) ** 2)


def retention_variances(shares: ArrayLike, users: int, response: Response[Floats], *, population: Population) -> Floats:
    """Return the variance of every share estimated from a retention channel, in O(m) (Pan, appendix G)."""
    pi = np.asarray(shares, dtype=np.float64)
    scale = users * response.slope**2
    fixed = (pi * response.truth * response.miss + (1 - pi) * response.lie * (1 - response.lie)) / scale
    return np.asarray(fixed if population == "fleet" else fixed + pi * (1 - pi) / users)


def retention_covariance(
    shares: ArrayLike, users: int, response: Response[Floats], *, population: Population
) -> Floats:
    """Return the covariance of the shares estimated from a retention channel, in closed form (Pan, appendix G)."""
    pi = np.asarray(shares, dtype=np.float64)
    mine = np.outer(pi * response.truth, response.lie)
    neither = (1 - pi[:, None] - pi[None, :]) * np.outer(response.lie, response.lie)
    covariance = -(mine + mine.T + neither) / (users * response.slope**2)
    if population == "sampling":
        covariance -= np.outer(pi, pi) / users
    np.fill_diagonal(covariance, retention_variances(pi, users, response, population=population))
    return np.asarray(covariance)


def dense_covariance(
    matrix: Floats, inverse: Floats, shares: ArrayLike, users: int, *, population: Population
) -> Floats:
    """Return the covariance of the linear estimate of any channel, (1/n) inverse^T S inverse.

    S is the covariance of one answer: averaged over the fixed values for `fleet`, of the mixture for `sampling`.
    """
    pi = np.asarray(shares, dtype=np.float64)
    answers = pi @ matrix
    spread = matrix.T @ (pi[:, None] * matrix) if population == "fleet" else np.outer(answers, answers)
    return np.asarray(inverse.T @ (np.diag(answers) - spread) @ inverse / users)
