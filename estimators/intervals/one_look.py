"""Intervals at one look: per value, for all values at once, and exact ones for counts.

Bounds that may be looked at all the time are in always_valid.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]

_STRAIGHT = 1e-3
"""Skewness below which the normal law is as good, and the gamma law loses digits."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def check_alpha(alpha: float) -> None:
    """Refuse an error rate outside (0, 1)."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), the share of intervals that may miss; got {alpha!r}; try 0.05")


def two_sided_z(alpha: float) -> float:
    """Return z with Pr(|N(0,1)| > z) = alpha.

    >>> round(two_sided_z(0.05), 4)
    1.96
    """
    check_alpha(alpha)
    return float(-special.ndtri(alpha / 2))


def one_sided_z(alpha: float) -> float:
    """Return z with Pr(N(0,1) > z) = alpha."""
    check_alpha(alpha)
    return float(-special.ndtri(alpha))


def bonferroni_z(alpha: float, values: int) -> float:
    """Return the one-sided quantile Phi^-1(1 - alpha / values) of Murakami & Kawamoto's significance threshold."""
    return one_sided_z(alpha / values)


def sidak_z(alpha: float, values: int) -> float:
    """Return z such that |N(0,1)| <= z holds for `values` of them at once with probability at least 1 - alpha.

    Sidak's inequality holds for any correlation, so this is never worse than Bonferroni's two-sided quantile.
    """
    check_alpha(alpha)
    # 1 - (1 - alpha)^(1/values) without cancellation
    return two_sided_z(-math.expm1(math.log1p(-alpha) / values))


def simultaneous_z(alpha: float, values: int, covariance: Floats | None = None) -> float:
    """Return the smallest known z such that value +- z sd covers all values at once with probability 1 - alpha.

    Shares add up to one, so their errors add up to zero. With the covariance at hand the maximum of the correlated
    normal is solved exactly for two and three values; beyond that Sidak's quantile is used. It holds for any
    correlation and is a little too wide: under one percent for equal shares, up to four where two of four values hold
    nearly all.
    """
    sidak = sidak_z(alpha, values)
    if covariance is None or values > 3:
        return sidak
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    live = sd > 0
    if int(live.sum()) < 2:
        return two_sided_z(alpha)
    correlation = covariance[np.ix_(live, live)] / np.outer(sd[live], sd[live])
    rank = int(np.sum(np.linalg.eigvalsh(correlation) > 1e-9))
    if rank == 1:
        return two_sided_z(alpha)
    if len(correlation) == 3 and rank == 2:
        return min(sidak, _three_z(alpha, correlation))
    return sidak


def simultaneous_alpha(alpha: float, values: int, covariance: Floats | None = None) -> float:
    """Return the two-sided error rate per value at which all values hold at once with probability 1 - alpha."""
    return float(2.0 * special.ndtr(-simultaneous_z(alpha, values, covariance)))


def skewed_tail(distance: Floats, skewness: Floats) -> Floats:
    """Return Pr(X >= distance) for X of mean 0, variance 1 and this skewness: a shifted gamma law (Pearson's type III).

    >>> skewed_tail(np.array([1.96, 1.96, 1.96]), np.array([0.0, 1.0, -1.0])).round(4).tolist()
    [0.025, 0.0447, 0.0]
    """
    distance, skewness = np.broadcast_arrays(distance, skewness)
    found = np.asarray(special.ndtr(-distance))
    bent = np.abs(skewness) >= _STRAIGHT
    leaning, at = skewness[bent], distance[bent]
    shape = 4.0 / (leaning * leaning)
    along = np.where(leaning > 0, at, -at)
    tail = special.gammaincc(shape, np.maximum(shape + along * np.sqrt(shape), 0.0))
    found[bent] = np.where(leaning > 0, tail, 1.0 - tail)
    return found


def skewed_distance(alpha: float, skewness: float) -> float:
    """Return the distance that such an X passes with probability alpha: `skewed_tail` turned round.

    >>> [round(skewed_distance(0.025, skewness), 3) for skewness in (0.0, 1.0, -1.0)]
    [1.96, 2.384, 1.455]
    """
    if abs(skewness) < _STRAIGHT:
        return one_sided_z(alpha)
    shape = 4.0 / skewness**2
    if skewness > 0.0:
        return float((special.gammainccinv(shape, alpha) - shape) / math.sqrt(shape))
    return float((shape - special.gammaincinv(shape, alpha)) / math.sqrt(shape))


def clopper_pearson(successes: int, trials: int, alpha: float) -> tuple[float, float]:
    """Return exact one-sided bounds of a probability, each wrong with probability at most alpha.

    For a two-sided interval at level 1 - alpha ask for alpha / 2. Without trials: (0, 1).

    >>> [round(bound, 4) for bound in clopper_pearson(0, 10, 0.025)]
    [0.0, 0.3085]
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must be between 0 and trials; got {successes} of {trials}")
    lower, upper = clopper_pearson_array(np.array([float(successes)]), float(trials), alpha)
    return float(lower[0]), float(upper[0])


def clopper_pearson_array(successes: Floats, trials: float, alpha: float) -> tuple[Floats, Floats]:
    """Return the same for many counts of the same number of trials."""
    check_alpha(alpha)
    inner = np.clip(successes, 1.0, max(trials, 1.0))
    lower = np.where(successes > 0, special.betaincinv(inner, trials - inner + 1.0, alpha), 0.0)
    inner = np.clip(successes, 0.0, max(trials - 1.0, 0.0))
    rest = np.maximum(trials - inner, 1.0)
    upper = np.where(successes < trials, special.betainccinv(inner + 1.0, rest, alpha), 1.0)
    return np.asarray(lower), np.asarray(upper)


def _three_z(alpha: float, correlation: Floats) -> float:
    """Solve Pr(max |Z_i| <= z) = 1 - alpha for three normals of which two determine the third."""
    # Z_3 = a Z_1 + b Z_2 and Z_2 = r Z_1 + s E with E independent of Z_1: one integral over Z_1, the rest is a normal
    # interval in E.
    r = float(np.clip(correlation[0, 1], -1.0, 1.0))
    if abs(r) > 1.0 - 1e-9:
        correlation = correlation[np.ix_([0, 2, 1], [0, 2, 1])]
        r = float(np.clip(correlation[0, 1], -1.0, 1.0))
    a, b = np.linalg.solve(np.array([[1.0, r], [r, 1.0]]), correlation[2, :2])
    s = math.sqrt(1.0 - r * r)

    def missing(z: float) -> float:
        first = z * _NODES
        low, high = (-z - r * first) / s, (z - r * first) / s
        tilt, scale = (a + b * r) * first, b * s
        if abs(scale) > 1e-12:
            ends = np.sort(np.stack([(-z - tilt) / scale, (z - tilt) / scale]), axis=0)
            low, high = np.maximum(low, ends[0]), np.minimum(high, ends[1])
        inside = np.maximum(special.ndtr(high) - special.ndtr(low), 0.0)
        covered = float(np.sum(_WEIGHTS * z * np.exp(-0.5 * first**2) * inside) / math.sqrt(2 * math.pi))
        return 1.0 - alpha - covered

    lower, upper = two_sided_z(alpha), sidak_z(alpha, 3)
    if missing(lower) <= 0.0 or missing(upper) >= 0.0:
        return lower if missing(lower) <= 0.0 else upper
    return float(optimize.brentq(missing, lower, upper, xtol=1e-13))
