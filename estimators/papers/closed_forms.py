"""Estimates and variances at real levels in closed form (Pan), for comparison with the exact channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.channels.moments import (
    Floats,
    binary_variance,
    retention_covariance,
)
from estimators.channels.response import REAL, Response
from estimators.estimates import Population


def grr_estimate(counts: ArrayLike, epsilon: float) -> Floats | None:
    """Return unbiased shares from the counts of generalised randomized response (Pan, Eq. 7); None: no information."""
    tallied = np.asarray(counts, dtype=np.float64)
    users, size = tallied.sum(), len(tallied)
    if users == 0 or (epsilon == 0 and size > 1):
        return None
    if size == 1:
        return np.ones(1)
    return np.asarray((tallied / users - REAL.grr(epsilon, size).lie) / REAL.grr(epsilon, size).slope)


def clip_and_renormalize(shares: ArrayLike) -> Floats:
    """Return max(shares, 0) scaled to sum 1: a view for drawing, biased."""
    positive = np.maximum(np.asarray(shares, dtype=np.float64), 0.0)
    return np.asarray(positive / positive.sum())


def binary_estimate(count: int, users: int, epsilon: float) -> float | None:
    """Return the unbiased share of ones from binary randomized response (Pan, Eq. 6); None: no information."""
    if users == 0 or epsilon == 0:
        return None
    return (count / users - REAL.grr(epsilon, 2).lie) / REAL.grr(epsilon, 2).slope


def mean_estimate(count: int, users: int, epsilon: float, low: float, high: float) -> float | None:
    """Return the unbiased mean of numbers in [low, high] rounded to an end and randomized (Pan, Eq. 70, corrected)."""
    share = binary_estimate(count, users, epsilon)
    return None if share is None else low + (high - low) * share


def rounding_variance(values: ArrayLike, low: float, high: float) -> float:
    """Return the variance of the mean that stochastic rounding adds: a floor that no level of epsilon removes."""
    numbers = np.asarray(values, dtype=np.float64)
    return float(((numbers - low) * (high - numbers)).sum() / len(numbers) ** 2)


def mean_variance(values: ArrayLike, epsilon: float, low: float, high: float) -> float:
    """Return the variance of `mean_estimate` for these numbers."""
    users = len(np.asarray(values))
    return (high - low) ** 2 * binary_variance(epsilon, users) + rounding_variance(values, low, high)


def grr_covariance(shares: ArrayLike, users: int, epsilon: float, *, population: Population) -> Floats:
    """Return the covariance of `grr_estimate` at a real level."""
    response = grr_response(epsilon, len(np.asarray(shares)))
    return retention_covariance(shares, users, response, population=population)


def grr_response(epsilon: float, size: int) -> Response[Floats]:
    """Return generalised randomized response at a real level, one entry per value."""
    one, every = REAL.grr(epsilon, size), np.ones(size)
    return Response(every * one.truth, every * one.lie, np.asarray(one.slope), every * one.miss)
