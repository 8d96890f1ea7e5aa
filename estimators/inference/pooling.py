"""Users on different rungs, one estimate: generalised least squares, strata, or maximum likelihood.

Only each user's last answer is in the tally, and that is all there is to know: earlier answers are noisier copies of
the last one. `pooled` weighs rungs by their information and is best when the rung does not depend on the value;
`stratified` weighs them by their users and is unbiased whatever the rungs hold; `mle` stays inside the simplex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.nested import Retaining
from estimators.estimates import Estimates, Method, Population
from estimators.inference.homogeneity import retention_homogeneity
from estimators.inference.inversion import Rungs, clip_to_simplex, retention_covariance
from estimators.inference.likelihood import retention_mle
from estimators.inference.pooling_bits import pool_bits
from estimators.inference.pooling_dense import pool_dense
from estimators.inference.pooling_result import (
    PILOT_FLOOR,
    SCORING_STEPS,
    SCORING_TOLERANCE,
    Combined,
    Pool,
    choose_method,
    uninformative_notes,
)
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import check_alpha
from estimators.intervals.rung_shares import pooled_ends, stratified_ends, stratified_variance

__all__ = ["pool_bits", "pool_dense", "pool_retention"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# Full covariance matrices are only needed where the exact joint quantile is known.
_JOINT_VALUES = 3


def pool_retention(
    labels: Sequence[str],
    channels: Sequence[Retaining],
    counts: Counts,
    users: Counts,
    *,
    method: Method = "pooled",
    population: Population = "fleet",
    alpha: float = 0.05,
) -> Estimates:
    """Estimate shares from counts [rung, value] and users [rung] of a retention family (GRR, uRR) in O(rungs x values).

    A pooled estimate whose rungs disagree, or cannot be compared, comes back as `stratified`, with a note.
    """
    check_alpha(alpha)
    return combine_retention(labels, channels, counts, users, method=method, population=population).estimates(alpha)


def combine_retention(
    labels: Sequence[str],
    channels: Sequence[Retaining],
    counts: Counts,
    users: Counts,
    *,
    method: Method,
    population: Population,
) -> Pool:
    """Combine the rungs of a retention family, for intervals at any error rate."""
    labels = tuple(labels)
    rungs = Rungs.of(channels, counts, users)
    if rungs.size != len(labels):
        raise ValueError(f"{len(labels)} labels for {rungs.size} values; give one label per value")
    notes = uninformative_notes(rungs.uninformative)
    if rungs.total == 0:
        return Pool.empty(labels, method, population, notes)
    homogeneity_p = retention_homogeneity(rungs)
    chosen, notes = choose_method(method, homogeneity_p, len(rungs.users), notes)
    if chosen == "stratified" or len(rungs.users) == 1:
        found = _stratified(rungs, population)
    else:
        fit = gls(rungs)
        if not fit.converged:
            notes = (*notes, f"pooling stopped after {SCORING_STEPS} steps without settling")
        found = _pooled(rungs, fit, population)
    if chosen == "mle":
        maximum = retention_mle(rungs)
        assert maximum is not None
        found = found.inside(maximum.shares)
        notes = (*notes, f"likelihood search ended: {maximum.stopped}")
    return Pool(labels, found, int(rungs.total), chosen, population, homogeneity_p, notes)


@dataclass(frozen=True)
class Gls:
    """A generalised least squares fit: shares, and the inverse information 1/d per value at the last pilot.

    The pilot is the estimate before the last step, clipped at `floor` and renormalised.
    """

    shares: Floats
    inverse_information: Floats
    pilot: Floats
    floor: float
    converged: bool


def stratified(rungs: Rungs) -> Floats:
    """Return the user-weighted mean of the rungs' inverses: the mean of all debiased answers."""
    return np.asarray((rungs.users / rungs.total) @ rungs.inverted)


def stratified_covariance(sigma: Floats, base: Floats, shares: Floats, users: Floats, population: Population) -> Floats:
    """Return the covariance of the stratified estimate when the shares [rung, value] of each rung are known."""
    weights = np.asarray(users) / np.sum(users)
    parts = [
        weight**2 * retention_covariance(float(s), b, share, float(n), population)
        for weight, s, b, share, n in zip(weights, sigma, base, shares, users, strict=True)
    ]
    return np.asarray(np.sum(parts, axis=0))


def gls_step(rungs: Rungs, pilot: Floats) -> tuple[Floats, Floats]:
    """Take one Fisher-scoring step from a pilot inside the simplex; return shares that sum to one and 1/d per value."""
    answers = rungs.answer_shares(pilot)
    weight = rungs.sigma[:, None] / answers
    inverse = 1.0 / np.sum(rungs.users[:, None] * rungs.sigma[:, None] * weight, axis=0)
    raw = np.sum(weight * (rungs.counts - rungs.users[:, None] * rungs.base), axis=0) * inverse
    return np.asarray(raw - (raw.sum() - 1.0) * inverse / inverse.sum()), np.asarray(inverse)


def gls_covariance(inverse_information: Floats) -> Floats:
    """Return diag(1/d) - (1/d)(1/d)' / sum(1/d): the inverse information of shares that sum to one."""
    scaled = np.outer(inverse_information, inverse_information) / inverse_information.sum()
    return np.asarray(np.diag(inverse_information) - scaled)


def gls(rungs: Rungs) -> Gls:
    """Pool all rungs by generalised least squares, iterated from the stratified pilot until it stands still."""
    floor = min(PILOT_FLOOR, 0.1 / rungs.size)
    shares = stratified(rungs)
    converged = False
    inverse, pilot = np.zeros(0), shares
    for _ in range(SCORING_STEPS):
        pilot = clip_to_simplex(shares, floor)
        following, inverse = gls_step(rungs, pilot)
        sd = np.sqrt(inverse)
        converged = bool(np.all(np.abs(following - shares) <= SCORING_TOLERANCE * sd))
        shares = following
        if converged:
            break
    return Gls(shares, inverse, pilot, floor, converged)


def fleet_covariance(rungs: Rungs, inverse_information: Floats, shares: Floats) -> Floats:
    """Return the covariance of the pooled estimate around the shares of the devices that answered.

    The rungs' own variances added with squared weights would be too small: the devices of a rung are a random part of
    the fleet, and its shares differ from the fleet's. With C the inverse information, A_g = C D_g the weight of rung g
    and R = diag(pi) - pi pi', the sum of both effects is C - (R - sum_g A_g R A_g' / n_g) / (n - 1).
    """
    covariance = gls_covariance(inverse_information)
    total = rungs.total
    if total <= 1:
        return covariance
    spread = np.diag(shares) - np.outer(shares, shares)
    between = np.zeros_like(spread)
    for weight, users in zip(_weights(rungs, inverse_information, shares), rungs.users, strict=True):
        apply = np.diag(weight) - np.outer(inverse_information, weight) / inverse_information.sum()
        between += apply @ spread @ apply.T / users
    return np.asarray(covariance - (spread - between) / (total - 1.0))


def fleet_variance(rungs: Rungs, inverse_information: Floats, shares: Floats) -> Floats:
    """Return the diagonal of `fleet_covariance` in O(rungs x values)."""
    scale = inverse_information / inverse_information.sum()
    variance = inverse_information * (1.0 - scale)
    total = rungs.total
    if total <= 1:
        return np.asarray(variance)
    between = np.zeros_like(shares)
    for weight, users in zip(_weights(rungs, inverse_information, shares), rungs.users, strict=True):
        squares = shares * weight**2 * (1.0 - 2.0 * scale) + scale**2 * np.sum(shares * weight**2)
        means = weight * shares - scale * np.sum(weight * shares)
        between += (squares - means**2) / users
    return np.asarray(np.maximum(variance - (shares * (1.0 - shares) - between) / (total - 1.0), 0.0))


def _weights(rungs: Rungs, inverse_information: Floats, shares: Floats) -> Floats:
    # a_g = D_g / d: what share of a value's information comes from rung g
    answers = rungs.answer_shares(shares)
    information = np.divide(
        rungs.users[:, None] * rungs.sigma[:, None] ** 2, answers, out=np.zeros_like(answers), where=answers > 0
    )
    return np.asarray(information * inverse_information)


def _stratified(rungs: Rungs, population: Population) -> Combined:
    if rungs.size == 1:
        # The only value has share one.
        certain = np.ones(1)
        return Combined(certain, np.zeros(1), lambda alpha: (certain, certain))  # noqa: ARG005  # certain at any rate
    covariance = None
    if rungs.size <= _JOINT_VALUES:
        inside = np.stack([clip_to_simplex(share) for share in rungs.inverted])
        covariance = stratified_covariance(rungs.sigma, rungs.base, inside, rungs.users, population)
    questions = YesNo.of(rungs.sigma[:, None] + rungs.base, rungs.base, rungs.counts, rungs.users)

    def ends(alpha: float) -> tuple[Floats, Floats]:
        return stratified_ends(questions, alpha=alpha, population=population)

    return Combined(stratified(rungs), stratified_variance(questions, population), ends, covariance)


def _pooled(rungs: Rungs, fit: Gls, population: Population) -> Combined:
    small = rungs.size <= _JOINT_VALUES
    if population == "sampling":
        covariance = gls_covariance(fit.inverse_information) if small else None
        scale = fit.inverse_information / fit.inverse_information.sum()
        variance = np.asarray(fit.inverse_information * (1.0 - scale))
    else:
        covariance = fleet_covariance(rungs, fit.inverse_information, fit.pilot) if small else None
        variance = fleet_variance(rungs, fit.inverse_information, fit.pilot)
    questions = YesNo.of(rungs.sigma[:, None] + rungs.base, rungs.base, rungs.counts, rungs.users)

    def ends(alpha: float) -> tuple[Floats, Floats]:
        deviation = np.sqrt(variance)
        return pooled_ends(questions, estimate=fit.shares, deviation=deviation, alpha=alpha, population=population)

    return Combined(fit.shares, variance, ends, covariance)
