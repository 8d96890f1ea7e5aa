"""Utility-optimised local privacy as published (Murakami & Kawamoto): composition, Mangat, tags, error bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.response import REAL
from estimators.inference.inversion import retention_estimate
from estimators.inference.likelihood import water_fill
from estimators.inference.personal import personal_matrix

Floats = NDArray[np.float64]


def rappor_covariance(shares: ArrayLike, epsilon: float, *, theta: float | None = None) -> Floats:
    """Return n times the covariance of the per-bit linear estimates of one-hot RAPPOR, users drawn from `shares`.

    Bits of one report are independent given the value, but the value makes them compete: off the diagonal stands
    -p_j p_l. The estimates therefore do not sum to one.
    """
    p = np.asarray(shares, dtype=np.float64)
    bit = REAL.urap(epsilon, theta).sensitive
    ones = bit.lie + bit.slope * p
    covariance = -np.outer(p, p)
    np.fill_diagonal(covariance, ones * (1 - ones) / bit.slope**2)
    return covariance


@dataclass(frozen=True)
class MangatEstimate:
    """Share of the sensitive value, its estimated sampling variance, and the level that its protected answer has."""

    share: float
    variance: float
    epsilon: float


def mangat_estimate(yes: int, users: int, lie: float) -> MangatEstimate:
    """Estimate from Mangat's rule: who has the sensitive value says yes, others say yes with probability `lie`.

    It is uRR with two values of which one is sensitive, at level -ln(lie).
    """
    if not 0 < lie < 1:
        raise ValueError(f"the chance of a lie must lie between 0 and 1; got {lie!r}")
    said = yes / users
    return MangatEstimate(
        share=(said - lie) / (1 - lie),
        variance=said * (1 - said) / ((users - 1) * (1 - lie) ** 2) if users > 1 else math.nan,
        epsilon=-math.log(lie),
    )


def composed_epsilon(epsilons: Sequence[float]) -> float:
    """Return the level of several independent reports on one value (Prop. 1): the levels add up.

    The protected set is the product of theirs: one answer outside its set gives the value away.
    """
    return math.fsum(epsilons)


def personal_shares(combined: ArrayLike, sensitive: int, tags: int, backgrounds: Sequence[ArrayLike | None]) -> Floats:
    """Spread the shares of personal tags over the values they may stand for (Eq. 22).

    combined: shares in the order sensitive values, tags, other values. backgrounds: for each tag its distribution over
    the other values, or None where nothing is known: then it follows the estimated shares of the other values, so that
    they are scaled up and everything still sums to one. Returns sensitive values, then other values.
    """
    r = np.asarray(combined, dtype=np.float64)
    if len(backgrounds) != tags:
        raise ValueError(f"one background (or None) per tag is needed: {tags} tags; got {len(backgrounds)}")
    spread = personal_matrix(r, sensitive, tags, backgrounds)
    return np.asarray(spread @ r)


@dataclass(frozen=True)
class PersonalEstimate:
    """Shares over (sensitive, tags, other) and, with the tags spread, over (sensitive, other)."""

    combined: Floats
    shares: Floats


def personal_estimates(
    counts: ArrayLike, sensitive: int, tags: int, backgrounds: Sequence[ArrayLike | None], epsilon: float
) -> tuple[PersonalEstimate, PersonalEstimate]:
    """Return the linear and the maximum-likelihood estimate from answers of uRR over (sensitive, tags, other)."""
    seen = np.asarray(counts, dtype=np.float64)
    chance = REAL.grr(epsilon, sensitive + tags)
    base = np.zeros(seen.size)
    base[: sensitive + tags] = chance.lie
    linear = retention_estimate(chance.slope, base, seen)
    highest = water_fill(seen, base / chance.slope)
    if highest is None:
        raise ValueError("no answers, no estimate; count at least one")
    pair = [PersonalEstimate(r, personal_shares(r, sensitive, tags, backgrounds)) for r in (linear, highest)]
    return pair[0], pair[1]


@dataclass(frozen=True)
class PersonalErrorBound:
    """Theorem 1: error of the shares, and its bound; `printed` lacks the absolute value and can be wrong."""

    error: float
    bound: float
    printed: float


def personal_error_bound(
    truth: ArrayLike, estimate: ArrayLike, background: ArrayLike, assumed: ArrayLike
) -> PersonalErrorBound:
    """Compare the l1 error of spread shares with Theorem 1, for one tag that comes last and no sensitive values.

    truth and estimate: shares over (other values, tag); background: how the tag is really distributed over the other
    values; assumed: the background that the server used.
    """
    r, r_hat = np.asarray(truth, dtype=np.float64), np.asarray(estimate, dtype=np.float64)
    pi, pi_hat = np.asarray(background, dtype=np.float64), np.asarray(assumed, dtype=np.float64)
    first, second = float(np.abs(r_hat - r).sum()), float(np.abs(pi_hat - pi).sum())
    shares, spread = r[:-1] + r[-1] * pi, r_hat[:-1] + r_hat[-1] * pi_hat
    return PersonalErrorBound(
        error=float(np.abs(spread - shares).sum()),
        bound=first + abs(float(r_hat[-1])) * second,
        printed=first + float(r_hat[-1]) * second,
    )
