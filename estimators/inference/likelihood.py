"""Maximum likelihood inside the simplex for retention families: water-filling, no iteration over users.

The log-likelihood sum_g sum_v h_gv ln(sigma_g pi_v + q_gv) is separable and concave in pi. At the maximum the slope
sum_g h_gv / (pi_v + q_gv / sigma_g) is one number mu for all values with pi_v > 0 and at most mu for the others. For
one rung this gives a closed form (sort and fill); for several rungs mu is the root of one convex function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.inference.inversion import Rungs

Floats = NDArray[np.float64]

_OUTER_STEPS = 200
_INNER_STEPS = 100


@dataclass(frozen=True)
class Maximum:
    """A maximum-likelihood estimate, and why the search for it ended.

    stopped is "closed form", "converged", "converged: certified" (a bound shows that nothing that matters is left to
    gain), "converged: gain" (the last round gained nothing that matters) or "iterations" (the limit was reached first;
    the estimate is then a regularised one, not the maximum).
    """

    shares: Floats
    log_likelihood: float
    stopped: str
    iterations: int


def retention_mle(rungs: Rungs) -> Maximum | None:
    """Return the exact maximum over all rungs of a retention family; None without users."""
    if rungs.total == 0:
        return None
    if len(rungs.users) == 1:
        shares = water_fill(rungs.counts[0], rungs.base[0] / rungs.sigma[0])
        return None if shares is None else Maximum(shares, log_likelihood(rungs, shares), "closed form", 0)
    return _dual_newton(rungs)


def water_fill(counts: Floats, floor: Floats) -> Floats | None:
    """Maximise sum_v counts_v ln(pi_v + floor_v) over the simplex (Murakami & Kawamoto's EM limit in closed form).

    pi_v = max(counts_v * tau - floor_v, 0) with tau such that the shares add up to one. Values are filled in the order
    of counts_v / floor_v: O(m log m). None without counts.

    >>> np.asarray(water_fill(np.array([50.0, 30.0, 20.0]), np.full(3, 1 / (np.e - 1)))).round(4).tolist()
    [0.7705, 0.2295, 0.0]
    """
    counts = np.asarray(counts, dtype=np.float64)
    floor = np.asarray(floor, dtype=np.float64)
    if counts.sum() <= 0:
        return None
    # 1 / tau is the slope at which a value leaves zero: a value is active iff counts_v / floor_v > 1 / tau.
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(counts > 0, counts / floor, 0.0)
    order = np.argsort(-slope, kind="stable")
    tau = (1.0 + np.cumsum(floor[order])) / np.maximum(np.cumsum(counts[order]), np.finfo(float).tiny)
    active = slope[order] * tau > 1.0
    last = int(np.flatnonzero(active)[-1])
    shares = np.zeros(len(counts))
    chosen = order[: last + 1]
    shares[chosen] = counts[chosen] * tau[last] - floor[chosen]
    return np.maximum(shares, 0.0)


def log_likelihood(rungs: Rungs, shares: Floats) -> float:
    """Return sum of counts * ln Pr(answer), without the multinomial coefficients; 0 ln 0 = 0."""
    answers = rungs.answer_shares(shares)
    seen = rungs.counts > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(rungs.counts[seen] * np.log(answers[seen])))


def is_linear(rungs: Rungs, shares: Floats) -> bool:
    """Tell whether the maximum is the linear estimate itself: then no share had to be cut at zero."""
    linear = (rungs.users / rungs.total) @ rungs.inverted
    return len(rungs.users) == 1 and bool(np.allclose(shares, linear, rtol=1e-9, atol=1e-12))


def active(shares: Floats, values: int) -> int:
    """Return how many of the first `values` shares are positive."""
    return int(np.count_nonzero(shares[:values] > 0))


def score(rungs: Rungs, shares: Floats) -> Floats:
    """Return sum_g sum_y h_gy Q_g(y|x) / lambda_gy per value x: equal to the users where pi_x > 0, below elsewhere."""
    answers = rungs.answer_shares(shares)
    weights = np.divide(rungs.counts, answers, out=np.zeros_like(answers), where=rungs.counts > 0)
    return np.asarray((weights * rungs.base).sum() + (rungs.sigma[:, None] * weights).sum(axis=0))


def _dual_newton(rungs: Rungs) -> Maximum:
    floor = rungs.base / rungs.sigma[:, None]
    total = rungs.total
    # mu lies in (0, n]; at mu = n the shares add up to at most one. Their sum is convex and falls in mu, so Newton's
    # step from any side lands left of the root, and from there it climbs to it without overshooting.
    mu, stopped, steps = total, "iterations", 0
    shares = np.zeros(rungs.size)
    while steps < _OUTER_STEPS:
        steps += 1
        shares = _shares_at(mu, rungs.counts, floor)
        excess = float(shares.sum()) - 1.0
        fall = _fall(shares, rungs.counts, floor)
        target = mu + excess / fall if fall > 0 else mu / 2
        following = target if target > 0 else mu / 2
        if abs(following - mu) <= 4e-16 * mu or abs(excess) <= 4e-16:
            stopped = "converged"
            break
        mu = following
    if stopped != "converged" and abs(float(shares.sum()) - 1.0) < 1e-12:
        stopped = "converged"
    shares = shares / shares.sum()
    return Maximum(shares, log_likelihood(rungs, shares), stopped, steps)


def _shares_at(mu: float, counts: Floats, floor: Floats) -> Floats:
    """Solve sum_g counts / (pi + floor) = mu for every value at once; 0 where the slope at 0 is below mu."""
    # Any single rung alone gives a lower bound of the root, all together with the largest floor another one; Newton
    # on a convex falling function climbs from below without overshooting.
    start = np.maximum(np.max(counts / mu - floor, axis=0), counts.sum(axis=0) / mu - floor.max(axis=0))
    shares = np.maximum(start, 0.0)
    for _ in range(_INNER_STEPS):
        reach = shares + floor
        terms = np.divide(counts, reach, out=np.zeros_like(reach), where=counts > 0)
        slopes = np.divide(terms, reach, out=np.zeros_like(reach), where=counts > 0).sum(axis=0)
        gain = np.divide(terms.sum(axis=0) - mu, slopes, out=np.zeros_like(shares), where=slopes > 0)
        following = np.maximum(shares + np.maximum(gain, 0.0), 0.0)
        if np.all(following - shares <= 1e-16 + 2e-16 * shares):
            return np.asarray(following)
        shares = following
    return np.asarray(shares)


def _fall(shares: Floats, counts: Floats, floor: Floats) -> float:
    """Return how fast the sum of shares falls in mu: the sum over active values of 1 / |slope'|."""
    reach = shares + floor
    slopes = np.divide(counts, reach**2, out=np.zeros_like(reach), where=counts > 0).sum(axis=0)
    active = (shares > 0) & (slopes > 0)
    return float(np.sum(1.0 / slopes[active]))
