"""From noisy Bloom bits back to shares of strings: regression on the known strings (server side).

Every cohort and bit gives one unbiased number, the share of its people whose filter has the bit. Each known string
contributes to it with its share where its filter has the bit. Weighted least squares inverts that exactly unbiased,
with standard errors; non-negative least squares is the labelled view, and picks strings when there are more of them
than equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special

from estimators.estimates import Estimates, Method, Population, Unexplained
from estimators.inference.homogeneity import bits_homogeneity
from estimators.inference.pooling_bits import BitRungs
from estimators.inference.pooling_result import Combined, choose_method, finish, no_estimate
from estimators.intervals.one_look import two_sided_z

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_RANK_TOLERANCE = 1e-9
_STEPS = 12
"""Fixed-point steps of the ends of an interval."""


@dataclass(frozen=True)
class BloomData:
    """What a tally says: ones [rung, cohort, bit], users [rung, cohort], and Pr(1|1), Pr(1|0) of a bit per rung."""

    ones: Counts
    users: Counts
    truth: Floats
    lie: Floats

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Which rungs carry information."""
        return np.asarray(self.truth > self.lie)

    @property
    def noise(self) -> Floats:
        """Variance of one debiased bit per rung, the same for ones and zeros; inf without information."""
        slope = self.truth - self.lie
        spread = (self.truth * (1 - self.truth) + self.lie * (1 - self.lie)) / 2
        return np.asarray(np.divide(spread, slope**2, out=np.full_like(spread, np.inf), where=self.informative))


@dataclass(frozen=True)
class _Weighted:
    """One number per cohort and bit, its weight, and the two parts of its variance times the weight squared."""

    target: Floats
    weight: Floats
    noise: Floats
    draw: Floats


def decode(
    labels: tuple[str, ...],
    design: Floats,
    data: BloomData,
    *,
    fill: float,
    open_list: bool,
    method: Method,
    population: Population,
    alpha: float,
) -> Estimates:
    """Estimate the share of every known string from a design [cohort, bit, string].

    fill: chance that a string outside the list sets a bit; with open_list such strings get a column of their own, so
    that they do not pass for known ones. method mle is the non-negative regression.
    """
    users = np.where(data.informative[:, None], data.users, 0)
    total = int(users.sum())
    if total == 0:
        return no_estimate(labels, method, population, alpha, ())
    homogeneity_p = cohort_homogeneity(data)
    rungs = int((users.sum(axis=1) > 0).sum())
    chosen, notes = choose_method(method, homogeneity_p, rungs, ())
    # Of so few answers that rungs cannot be compared, a sharp one must not decide the band alone.
    unsure = rungs > 1 and homogeneity_p is None
    combined = _combine(data, users, fill, "stratified" if unsure else chosen)
    columns = np.concatenate([design, np.full((*design.shape[:2], 1), fill)], axis=2) if open_list else design
    rows = combined.weight > 0
    if not _full_rank(columns[rows], combined.weight[rows]):
        picked = _non_negative(columns[rows], combined) > 0
        notes = (*notes, f"more strings than equations: {int(picked[: len(labels)].sum())} picked by regression")
    else:
        picked = np.ones(columns.shape[2], dtype=np.bool_)
    fitted = _Fit.unknown(columns.shape[2])
    together = np.nan
    if picked.any():
        candidates = np.arange(columns.shape[2])[picked] < len(labels)
        few, together = _least_squares(columns[rows][:, :, picked], combined, total, population, candidates)
        fitted = fitted.put(picked, few)
    fitted = fitted.first(len(labels))
    found = Combined(fitted.shares, fitted.variance_at(np.clip(fitted.shares, 0, 1)), fitted.ends)
    left = _unexplained(fitted.shares, together, alpha) if open_list else None
    if chosen == "mle":
        found = found.inside(_non_negative(columns[rows], combined)[: len(labels)])
        notes = (*notes, "non-negative regression on bit counts, not the full likelihood")
    finished = finish(
        labels,
        found,
        users=total,
        method=chosen,
        population=population,
        alpha=alpha,
        homogeneity_p=homogeneity_p,
        notes=notes,
    )
    return replace(finished, unexplained=left)


def _unexplained(shares: Floats, variance: float, alpha: float) -> Unexplained | None:
    """Return what unbiased shares of the candidates leave over: as unbiased as they are, and with their errors."""
    if not np.isfinite(variance):
        return None
    rest = 1.0 - float(shares.sum())
    reach = two_sided_z(alpha) * math.sqrt(variance)
    return Unexplained(rest, variance, rest - reach, rest + reach)


def cohort_homogeneity(data: BloomData) -> float | None:
    """Return a p-value of the test that all rungs see the same bits in every cohort; None where nothing can be said."""
    found = []
    for cohort in range(data.users.shape[1]):
        shape = (len(data.truth), data.ones.shape[2])
        p, q = (np.broadcast_to(chance[:, None], shape) for chance in (data.truth, data.lie))
        bits = BitRungs.of(p, q, data.ones[:, cohort], data.users[:, cohort])
        if (bits.users.max(axis=1) > 0).sum() > 1:
            found.append(bits_homogeneity(bits.truth, bits.lie, bits.ones, bits.users))
    values = [value for value in found if value is not None]
    return min(1.0, min(values) * len(values)) if values else None


def significant(estimates: Estimates) -> NDArray[np.bool_]:
    """Tell which strings are there at all: one-sided tests, Holm's step-down, error rate `estimates.alpha` in all."""
    p_values = special.ndtr(-estimates.value / np.sqrt(estimates.variance))
    return holm(np.where(np.isfinite(p_values), p_values, 1.0), estimates.alpha)


def holm(p_values: Floats, alpha: float) -> NDArray[np.bool_]:
    """Reject hypotheses so that any false rejection has probability at most alpha, however they depend.

    >>> holm(np.array([0.01, 0.04, 0.03]), 0.05).tolist()
    [True, False, False]
    """
    order = np.argsort(p_values)
    left = np.arange(len(p_values), 0, -1)
    failed = np.flatnonzero(p_values[order] * left > alpha)
    count = int(failed[0]) if failed.size else len(p_values)
    rejected = np.zeros(len(p_values), dtype=np.bool_)
    rejected[order[:count]] = True
    return rejected


def _combine(data: BloomData, users: Counts, fill: float, method: str) -> _Weighted:
    slope = np.where(data.informative, data.truth - data.lie, 1.0)[:, None, None]
    seen = data.ones / np.maximum(users, 1)[:, :, None]
    debiased = (seen - data.lie[:, None, None]) / slope
    noise = np.where(data.informative, data.noise, 0.0)[:, None]
    # Weights use the expected filling of a filter in place of each bit's own share: they do not depend on the data,
    # so the estimate stays linear and unbiased.
    spread = fill * (1 - fill)
    per_cohort = users.sum(axis=0)
    if method == "stratified":
        portion = users / np.maximum(per_cohort, 1)
        weight = portion * (per_cohort / ((portion * noise).sum(axis=0) + spread))
        draw = weight.sum(axis=0) ** 2 / np.maximum(per_cohort, 1)
    else:
        weight = users / (noise + spread)
        draw = (weight**2 / np.maximum(users, 1)).sum(axis=0)
    total = weight.sum(axis=0)
    target = (weight[:, :, None] * debiased).sum(axis=0) / np.maximum(total, np.finfo(float).tiny)[:, None]
    return _Weighted(target, total, (weight**2 * noise / np.maximum(users, 1)).sum(axis=0), draw)


def _full_rank(columns: Floats, weight: Floats) -> bool:
    cohorts, bits, strings = columns.shape
    if cohorts * bits < strings:
        return False
    scale = np.linalg.eigvalsh(_normal(columns, weight))
    return bool(scale[0] > _RANK_TOLERANCE * scale[-1])


def _normal(columns: Floats, weight: Floats) -> Floats:
    flat = (np.sqrt(weight)[:, None, None] * columns).reshape(-1, columns.shape[2])
    return np.asarray(flat.T @ flat)


def _non_negative(columns: Floats, combined: _Weighted) -> Floats:
    rows = combined.weight > 0
    root = np.sqrt(combined.weight[rows] / combined.weight.max())
    flat = (root[:, None, None] * columns).reshape(-1, columns.shape[2])
    target = (root[:, None] * combined.target[rows]).reshape(-1)
    return np.asarray(optimize.nnls(flat, target)[0])


@dataclass(frozen=True)
class _Fit:
    """Shares, and the variance of each as a polynomial of its true value: level + tilt share + bend share^2."""

    shares: Floats
    level: Floats
    tilt: Floats
    bend: Floats

    @classmethod
    def unknown(cls, size: int) -> _Fit:
        """Return shares of 0 about which nothing is known."""
        nothing = np.full(size, np.nan)
        return cls(np.zeros(size), nothing, nothing, nothing)

    def put(self, places: NDArray[np.bool_], other: _Fit) -> _Fit:
        """Return this fit with another one at some places."""
        found = []
        for own, new in zip(self._parts, other._parts, strict=True):
            filled = own.copy()
            filled[places] = new
            found.append(filled)
        return _Fit(*found)

    def first(self, number: int) -> _Fit:
        """Return the first shares."""
        return _Fit(*(part[:number] for part in self._parts))

    @property
    def _parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.shares, self.level, self.tilt, self.bend

    def variance_at(self, true: Floats) -> Floats:
        """Return the variances if these shares are true."""
        return np.asarray(np.maximum(self.level + self.tilt * true + self.bend * true**2, 0))

    def ends(self, alpha: float) -> tuple[Floats, Floats]:
        """Return score intervals: each end has the variance that it would have if it were true.

        With the variance of the estimate itself both would lean with it: a share that came out low would seem sure.
        """
        z = two_sided_z(alpha)
        found = []
        for side in (-1.0, 1.0):
            reach = z * np.sqrt(self.variance_at(np.clip(self.shares, 0, 1)))
            for _ in range(_STEPS):
                reach = z * np.sqrt(self.variance_at(np.clip(self.shares + side * reach, 0, 1)))
            found.append(self.shares + side * reach)
        return found[0], found[1]


def _least_squares(
    columns: Floats, combined: _Weighted, total: int, population: Population, candidates: NDArray[np.bool_]
) -> tuple[_Fit, float]:
    """Return shares with their variances, and the variance of the sum over the candidates.

    Two things scatter: the noise of the bits, and which people a cohort happens to hold. For the fleet at hand the
    cohorts' deviations cancel in the sum, which takes out the variance of a sample of the whole fleet.
    """
    rows = combined.weight > 0
    weight = combined.weight[rows]
    factor = linalg.cho_factor(_normal(columns, weight))
    back = linalg.cho_solve(factor, np.moveaxis(columns, 2, 0).reshape(columns.shape[2], -1))
    back = back.reshape(columns.shape[2], *columns.shape[:2])
    shares = np.einsum("vcj,c,cj->v", back, weight, combined.target[rows])
    back = np.concatenate([back, back[candidates].sum(axis=0)[None]])
    noise = np.einsum("scj,c->s", back**2, combined.noise[rows])
    inside = np.clip(shares, 0, 1)
    inside = inside / max(float(inside.sum()), 1.0)
    strings = np.arange(len(shares))
    level, tilt, bend, together = noise[:-1], np.zeros(len(shares)), np.zeros(len(shares)), float(noise[-1])
    for cohort, draw in enumerate(combined.draw[rows]):
        part = back[:, cohort] @ columns[cohort]
        own = part[strings, strings]
        squares, others = part[:-1] ** 2 @ inside - own**2 * inside, part[:-1] @ inside - own * inside
        level = level + draw * (squares - others**2)
        tilt, bend = tilt + draw * (own**2 - 2 * own * others), bend - draw * own**2
        together += float(draw * ((part[-1] ** 2) @ inside - (part[-1] @ inside) ** 2))
    if population == "fleet":
        tilt, bend = tilt - 1 / total, bend + 1 / total
        known = float(inside[candidates].sum())
        together -= known * (1 - known) / total
    return _Fit(shares, level, tilt, bend), max(together, 0.0)
