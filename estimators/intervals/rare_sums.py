"""Intervals for weighted sums of rare counts, which sums of the counts' own intervals do not give.

Distances from several centres to their ends, added as squares, fall short where the ends are limits: a share cannot be
below 0, so at small error rates the distance down stops growing at the centre itself, and the root of a sum of squares
never reaches the sum. The gamma interval of Fay & Feuer (1997) takes the weighted sum as one count with a scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.intervals.one_look import check_alpha

Floats = NDArray[np.float64]

_TINY = 1e-300


def gamma_distances(steps: Floats, counts: Floats, users: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the distances down and up from sum_g steps[g] counts[g] to the ends of the interval of its mean.

    Arrays are [rung, value]; a step of 0 leaves a rung out. The gamma law has the sum's mean and variance, for the
    upper end with one more count of the largest step. Counts are binomial: their variance is less than their mean.

    >>> down, up = gamma_distances(np.ones((1, 1)), np.array([[5.0]]), np.array([[1e9]]), 0.05)
    >>> round(5 - float(down[0]), 3), round(5 + float(up[0]), 3)
    (1.623, 11.668)
    """
    check_alpha(alpha)
    total = np.sum(steps * counts, axis=0)
    variance = np.sum(steps**2 * counts * (1.0 - counts / np.maximum(users, 1.0)), axis=0)
    largest = steps.max(axis=0)
    lower = _quantile(total, variance, special.gammaincinv, alpha / 2.0)
    upper = _quantile(total + largest, variance + largest**2, special.gammainccinv, alpha / 2.0)
    return np.asarray(np.maximum(total - lower, 0.0)), np.asarray(np.maximum(upper - total, 0.0))


def _quantile(mean: Floats, variance: Floats, inverse: np.ufunc, tail: float) -> Floats:
    scale = np.where(mean > 0, variance / np.maximum(mean, _TINY), 0.0)
    shape = np.where(scale > 0, mean / np.maximum(scale, _TINY), 1.0)
    return np.asarray(np.where(scale > 0, scale * inverse(shape, tail), mean))
