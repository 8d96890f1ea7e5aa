"""Any channels on mixed rungs, given by their matrices: the reference path, and the only one for odd channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.channels.channel import Channel
from estimators.estimates import Estimates, Method, Population
from estimators.inference.em import dense_mle
from estimators.inference.inversion import RANK_TOLERANCE, check_tally, clip_to_simplex, dense_inverse
from estimators.inference.pooling_result import (
    choose_method,
    finish,
    merged_chi_square,
    no_estimate,
    uninformative_notes,
)
from estimators.intervals.one_look import check_alpha

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_PILOT_FLOOR = 1e-4
_SCORING_STEPS = 50
_SCORING_TOLERANCE = 1e-6


def pool_dense(
    labels: Sequence[str],
    channels: Sequence[Channel],
    counts: Counts,
    users: Counts,
    *,
    method: Method = "pooled",
    population: Population = "fleet",
    alpha: float = 0.05,
) -> Estimates:
    """Estimate shares from counts [rung, answer] and users [rung] of any channels with the same values and answers.

    Channels may differ in kind from rung to rung. `stratified` needs every rung with users to be invertible; `pooled`
    and `mle` need only that all rungs together tell the values apart.
    """
    check_alpha(alpha)
    labels = tuple(labels)
    counts, users = np.asarray(counts), np.asarray(users)
    check_tally(len(channels), channels[0].outputs if channels else 0, counts, users)
    if not np.array_equal(counts.sum(axis=1), users):
        raise ValueError("every user gives one answer, so counts must add up to users on every rung")
    if any(channel.inputs != len(labels) or channel.outputs != counts.shape[1] for channel in channels):
        raise ValueError(f"every channel must take {len(labels)} values to {counts.shape[1]} answers")
    informative = np.array(
        [bool(np.ptp(channel.matrix, axis=0).max() > 0) or channel.inputs == 1 for channel in channels]
    )
    used = [int(g) for g in np.flatnonzero(informative & (users > 0))]
    notes = uninformative_notes(int(users[~informative].sum()))
    if not used:
        return no_estimate(labels, method, population, alpha, notes)
    return _pool(
        labels,
        np.stack([channels[g].matrix for g in used]),
        counts[used].astype(np.float64),
        method=method,
        population=population,
        alpha=alpha,
        notes=notes,
    )


@dataclass(frozen=True)
class DenseFit:
    """Shares with their covariance [value, value]; NaN where a share has none."""

    shares: Floats
    covariance: Floats


def dense_information(matrices: Floats, users: Floats, shares: Floats) -> Floats:
    """Return the Fisher information [rung, value, value] about the shares at `shares`: n Q diag(1/lambda) Q'."""
    answers = shares @ matrices
    weighted = np.divide(matrices, answers[:, None, :], out=np.zeros_like(matrices), where=answers[:, None, :] > 0)
    return np.asarray(users[:, None, None] * (weighted @ matrices.transpose(0, 2, 1)))


def simplex_inverse(information: Floats) -> Floats | None:
    """Return T (T' I T)^-1 T' with T a basis of the vectors that sum to zero; None if that is singular."""
    size = len(information)
    if size == 1:
        return np.zeros((1, 1))
    basis = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
    basis, _ = np.linalg.qr(basis)
    inner = basis.T @ information @ basis
    singular = np.linalg.svd(inner, compute_uv=False)
    if not np.all(np.isfinite(singular)) or singular[-1] <= RANK_TOLERANCE * singular[0]:
        return None
    return np.asarray(basis @ np.linalg.solve(inner, basis.T))


def dense_covariance_fit(matrices: Floats, users: Floats, shares: Floats, population: Population) -> Floats | None:
    """Return the covariance of the efficient estimate at `shares`, under either population model."""
    parts = dense_information(matrices, users, shares)
    inverse = simplex_inverse(parts.sum(axis=0))
    if inverse is None or population == "sampling" or users.sum() <= 1:
        return inverse
    spread = np.diag(shares) - np.outer(shares, shares)
    weights = inverse @ parts
    between = np.einsum("gij,jk,glk,g->il", weights, spread, weights, 1.0 / users)
    return np.asarray(inverse - (spread - between) / (users.sum() - 1.0))


def dense_gls(matrices: Floats, counts: Floats, pilot: Floats, population: Population) -> DenseFit | None:
    """Iterate Fisher scoring from a pilot until it stands still; None where the shares are not identified."""
    users = counts.sum(axis=1)
    floor = min(_PILOT_FLOOR, 0.1 / matrices.shape[1])
    shares, inside = pilot, pilot
    for _ in range(_SCORING_STEPS):
        inside = clip_to_simplex(shares, floor)
        inverse = simplex_inverse(dense_information(matrices, users, inside).sum(axis=0))
        if inverse is None:
            return None
        answers = inside @ matrices
        ratio = np.divide(counts, answers, out=np.zeros_like(counts), where=answers > 0)
        following = inside + inverse @ np.einsum("gxy,gy->x", matrices, ratio)
        sd = np.sqrt(np.maximum(np.diag(inverse), 0.0))
        settled = np.all(np.abs(following - shares) <= _SCORING_TOLERANCE * sd + 1e-15)
        shares = following
        if settled:
            break
    covariance = dense_covariance_fit(matrices, users, inside, population)
    return None if covariance is None else DenseFit(shares, covariance)


def dense_stratified(matrices: Floats, counts: Floats, population: Population) -> DenseFit | None:
    """Return the user-weighted mean of all rungs' inverses; None if some rung cannot be inverted."""
    users = counts.sum(axis=1)
    size = matrices.shape[1]
    shares, covariance = np.zeros(size), np.zeros((size, size))
    for matrix, seen, count in zip(matrices, counts, users, strict=True):
        inverse = dense_inverse(matrix)
        if inverse is None:
            return None
        weight = count / users.sum()
        own = seen / count @ inverse
        shares += weight * own
        covariance += weight**2 * _plug_in(matrix, inverse, seen / count, own, float(count), population)
    return DenseFit(shares, covariance)


def dense_pearson(matrices: Floats, counts: Floats, shares: Floats) -> tuple[float, int]:
    """Return the chi-square statistic against common shares and its degrees of freedom, small cells merged."""
    expected = counts.sum(axis=1)[:, None] * (shares @ matrices)
    statistic, cells = 0.0, 0
    for seen, wanted in zip(counts, expected, strict=True):
        part, merged = merged_chi_square(seen, wanted)
        statistic += part
        cells += merged - 1
    return statistic, max(cells - (matrices.shape[1] - 1), 0)


def _pool(
    labels: tuple[str, ...],
    matrices: Floats,
    counts: Floats,
    *,
    method: Method,
    population: Population,
    alpha: float,
    notes: tuple[str, ...],
) -> Estimates:
    users = counts.sum(axis=1)
    maximum = dense_mle(matrices, counts)
    homogeneity_p = None
    if len(users) > 1 and np.all(maximum.shares > 0):
        statistic, freedom = dense_pearson(matrices, counts, maximum.shares)
        homogeneity_p = float(special.chdtrc(freedom, statistic)) if freedom > 0 else None
    chosen, notes = choose_method(method, homogeneity_p, notes)
    fit: DenseFit | None
    if chosen == "mle":
        fit = _mle_fit(matrices, users, maximum.shares, population)
        notes = (*notes, f"likelihood search ended: {maximum.stopped}")
    else:
        fit = dense_stratified(matrices, counts, population)
        square = matrices.shape[1] == matrices.shape[2]
        if chosen == "pooled" and not (fit is not None and square and len(users) == 1):
            fit = dense_gls(matrices, counts, maximum.shares if fit is None else fit.shares, population)
    if fit is None:
        empty = no_estimate(labels, chosen, population, alpha, notes)
        reason = "the answers do not tell the values apart" if chosen != "stratified" else "a rung cannot be inverted"
        return finish(
            labels,
            empty.value,
            empty.variance,
            None,
            users=int(users.sum()),
            method=chosen,
            population=population,
            alpha=alpha,
            homogeneity_p=homogeneity_p,
            notes=(*notes, reason),
        )
    variance = np.diag(fit.covariance).copy()
    variance[variance < 0] = 0.0
    return finish(
        labels,
        fit.shares,
        variance,
        fit.covariance,
        users=int(users.sum()),
        method=chosen,
        population=population,
        alpha=alpha,
        homogeneity_p=homogeneity_p,
        notes=notes,
    )


def _mle_fit(matrices: Floats, users: Floats, shares: Floats, population: Population) -> DenseFit | None:
    support = np.flatnonzero(shares > 0)
    covariance = np.full((len(shares), len(shares)), np.nan)
    if len(support) > 1 or len(shares) == 1:
        inner = dense_covariance_fit(matrices[:, support], users, shares[support], population)
        if inner is None:
            return None
        covariance[np.ix_(support, support)] = inner
    return DenseFit(shares, covariance)


def _plug_in(
    matrix: Floats, inverse: Floats, observed: Floats, own: Floats, users: float, population: Population
) -> Floats:
    """Return the plug-in covariance of one rung: sum_y lambda_y R_y R_y' - diag(pi), plus the spread of a sample."""
    inside = clip_to_simplex(own)
    fleet = (inverse.T * observed) @ inverse - np.diag(own)
    safe = (inverse.T * (inside @ matrix)) @ inverse - np.diag(inside)
    # Where the unclipped plug-in is negative the clipped one is not.
    if np.any(np.diag(fleet) < 0):
        fleet = safe
    if population == "fleet":
        return np.asarray(fleet / users)
    spread = np.diag(inside) - np.outer(inside, inside)
    if users <= 1:
        return np.asarray(fleet + 0.25 * np.eye(len(own)))
    return np.asarray(fleet / users + spread / (users - 1.0))
