"""Labelled views of an estimate, never the estimate itself: significant values only, or the nearest distribution.

Unbiased shares may be negative and need not look like a distribution. These views do, at the price of a bias; they are
for drawing, and where a distribution is required.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.inference.ascent import project
from estimators.inference.inversion import Rungs
from estimators.intervals.one_look import bonferroni_z

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Significant:
    """emp+thr of Murakami & Kawamoto: kept values, what they leave of the mass, and the shares that result."""

    kept: NDArray[np.bool_]
    remaining: float
    shares: Floats


def zero_deviation(sigma: ArrayLike, lie: ArrayLike, users: float) -> Floats:
    """Return the standard deviation of a share's linear estimate when the share is zero: sqrt(q (1 - q) / n) / sigma.

    For categories sigma is the retention, for bits Pr(1|1) - Pr(1|0). Zero where no other value gives this answer.
    """
    q = np.asarray(lie, dtype=np.float64)
    return np.asarray(np.sqrt(q * (1.0 - q) / users) / np.asarray(sigma, dtype=np.float64))


def stratified_zero_deviation(rungs: Rungs) -> Floats:
    """Return the same for the stratified estimate over several rungs."""
    own = np.stack(
        [zero_deviation(s, q, float(n)) for s, q, n in zip(rungs.sigma, rungs.base, rungs.users, strict=True)]
    )
    return np.asarray(np.sqrt(((rungs.users / rungs.total) ** 2) @ own**2))


def significance_threshold(deviation: ArrayLike, alpha: float, values: int) -> Floats:
    """Return Phi^-1(1 - alpha / values) * deviation: shares above it are not noise, with error rate alpha for all."""
    return np.asarray(bonferroni_z(alpha, values) * np.asarray(deviation, dtype=np.float64))


def keep_significant(shares: ArrayLike, threshold: ArrayLike) -> Significant:
    """Keep shares above their threshold and give the others what is left, equally.

    Where nothing is left (the kept ones exceed one) or no value is below, the others get nothing and the kept ones are
    scaled to one. Nothing kept: uniform.

    >>> keep_significant([0.7, 0.2, 0.05, -0.05], 0.1).shares.round(3).tolist()
    [0.7, 0.2, 0.05, 0.05]
    """
    estimated = np.asarray(shares, dtype=np.float64)
    kept = estimated > np.asarray(threshold, dtype=np.float64)
    remaining = 1.0 - float(estimated[kept].sum())
    below = int((~kept).sum())
    if remaining >= 0 and below:
        return Significant(kept, remaining, np.where(kept, estimated, remaining / below))
    scaled = np.where(kept, estimated, 0.0)
    return Significant(kept, remaining, np.asarray(scaled / scaled.sum()))


def simplex_projection(shares: ArrayLike) -> Floats:
    """Return the nearest distribution in Euclidean distance (Norm-Sub).

    For bit counts this equals shifting all shares until they sum to one, which is the least-squares estimate of basic
    RAPPOR, and then projecting. It is not the maximum likelihood.

    >>> simplex_projection([0.1, 0.1, 0.1]).round(4).tolist()
    [0.3333, 0.3333, 0.3333]
    """
    point = np.asarray(shares, dtype=np.float64)
    return project(point, np.ones(len(point)))
