"""Any channels on mixed rungs, given by their matrices: the reference path, and the only one for odd channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from estimators.channels.channel import Channel
from estimators.estimates import Estimates, Method, Population
from estimators.inference.em import dense_mle
from estimators.inference.homogeneity import dense_homogeneity
from estimators.inference.inversion import RANK_TOLERANCE, check_tally, clip_to_simplex, dense_inverse
from estimators.inference.pooling_result import (
    PILOT_FLOOR,
    SCORING_STEPS,
    SCORING_TOLERANCE,
    Combined,
    Ends,
    choose_method,
    finish,
    no_estimate,
    normal_ends,
    uninformative_notes,
)
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import check_alpha, two_sided_z
from estimators.intervals.rung_shares import pooled_ends, stratified_ends

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


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
        YesNo.dense([channels[g] for g in used], counts[used], users[used]),
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

    @property
    def variance(self) -> Floats:
        """The diagonal, never negative."""
        return np.maximum(np.diag(self.covariance), 0.0)


def dense_information(matrices: Floats, users: Floats, shares: Floats) -> Floats:
    """Return the Fisher information [rung, value, value] about the shares at `shares`: n Q diag(1/lambda) Q'."""
    answers = shares @ matrices
    weighted = np.divide(matrices, answers[:, None, :], out=np.zeros_like(matrices), where=answers[:, None, :] > 0)
    return np.asarray(users[:, None, None] * (weighted @ matrices.transpose(0, 2, 1)))


@lru_cache(maxsize=64)
def _differences(size: int) -> Floats:
    """Return an orthonormal basis of the vectors that sum to zero, as columns."""
    basis, _ = np.linalg.qr(np.vstack([np.eye(size - 1), -np.ones(size - 1)]))
    return np.asarray(basis)


def simplex_inverse(information: Floats) -> Floats | None:
    """Return T (T' I T)^-1 T' with T a basis of the vectors that sum to zero; None if that is singular."""
    size = len(information)
    if size == 1:
        return np.zeros((1, 1))
    basis = _differences(size)
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
    floor = min(PILOT_FLOOR, 0.1 / matrices.shape[1])
    shares, inside = pilot, pilot
    for _ in range(SCORING_STEPS):
        inside = clip_to_simplex(shares, floor)
        inverse = simplex_inverse(dense_information(matrices, users, inside).sum(axis=0))
        if inverse is None:
            return None
        answers = inside @ matrices
        ratio = np.divide(counts, answers, out=np.zeros_like(counts), where=answers > 0)
        following = inside + inverse @ np.einsum("gxy,gy->x", matrices, ratio)
        sd = np.sqrt(np.maximum(np.diag(inverse), 0.0))
        settled = np.all(np.abs(following - shares) <= SCORING_TOLERANCE * sd + 1e-15)
        shares = following
        if settled:
            break
    covariance = dense_covariance_fit(matrices, users, inside, population)
    return None if covariance is None else DenseFit(shares, covariance)


def dense_stratified(
    matrices: Floats, counts: Floats, population: Population, *, drawn: float = 0.0
) -> DenseFit | None:
    """Return the user-weighted mean of all rungs' inverses; None if some rung cannot be inverted.

    Covariances are taken at each rung's own shares, cut to what is possible and drawn to the middle by `drawn` answers.
    """
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
        inside = (count * clip_to_simplex(own) + drawn / size) / (count + drawn)
        spread = np.diag(inside) if population == "fleet" else np.outer(inside, inside)
        covariance += weight**2 * ((inverse.T * (inside @ matrix)) @ inverse - spread) / count
    return DenseFit(shares, covariance)


def _pool(
    labels: tuple[str, ...],
    matrices: Floats,
    counts: Floats,
    questions: YesNo | None,
    *,
    method: Method,
    population: Population,
    alpha: float,
    notes: tuple[str, ...],
) -> Estimates:
    users = counts.sum(axis=1)
    apart = dense_stratified(matrices, counts, population)
    near = None if apart is None else apart.shares
    maximum = dense_mle(matrices, counts, near) if apart is None or method == "mle" else None
    start = apart or maximum
    assert start is not None
    common = dense_gls(matrices, counts, start.shares, population)
    homogeneity_p = None if common is None else dense_homogeneity(matrices, counts, common.shares)
    chosen, notes = choose_method(method, homogeneity_p, len(users), notes)
    alone = len(users) == 1 and matrices.shape[1] == matrices.shape[2]
    # A normal interval of so few answers must not rest on one of them that a sharp rung happened to get.
    unsure = len(users) > 1 and homogeneity_p is None and questions is None
    found: Combined | None = None
    if apart is not None and (chosen == "stratified" or alone or unsure):
        found = Combined(apart.shares, apart.variance, _apart_ends(matrices, counts, questions, apart, population))
    elif common is not None and chosen != "stratified":
        found = Combined(common.shares, common.variance, _common_ends(matrices, counts, questions, common, population))
    if found is None:
        empty = no_estimate(labels, chosen, population, alpha, notes)
        reason = "the answers do not tell the values apart" if chosen != "stratified" else "a rung cannot be inverted"
        found = Combined(empty.value, empty.variance, normal_ends(empty.value, empty.variance))
        notes = (*notes, reason)
    elif chosen == "mle":
        assert maximum is not None
        found = found.inside(maximum.shares)
        notes = (*notes, f"likelihood search ended: {maximum.stopped}")
    fit = apart if chosen == "stratified" else common
    return finish(
        labels,
        replace(found, covariance=None if fit is None else fit.covariance),
        users=int(users.sum()),
        method=chosen,
        population=population,
        alpha=alpha,
        homogeneity_p=homogeneity_p,
        notes=notes,
    )


def _apart_ends(
    matrices: Floats, counts: Floats, questions: YesNo | None, fit: DenseFit, population: Population
) -> Ends:
    """Return intervals of the stratified estimate: normal ones at careful shares unless answers are yes or no."""

    def ends(alpha: float) -> tuple[Floats, Floats]:
        if questions is not None:
            return stratified_ends(questions, alpha=alpha, population=population)
        careful = dense_stratified(matrices, counts, population, drawn=two_sided_z(alpha) ** 2)
        assert careful is not None
        lower, upper = normal_ends(fit.shares, careful.variance)(alpha)
        half = _half_an_answer(matrices) / counts.sum()
        return lower - half, upper + half

    return ends


def _half_an_answer(matrices: Floats) -> Floats:
    """Return half of the most that one answer of any rung can move the sum of all debiased answers, per value.

    Answers are whole: of a few, the estimate comes in steps that a normal interval does not know.
    """
    inverses = [inverse for inverse in map(dense_inverse, matrices) if inverse is not None]
    return np.asarray(np.max([np.ptp(inverse, axis=0) for inverse in inverses], axis=0) / 2.0)


def _common_ends(
    matrices: Floats, counts: Floats, questions: YesNo | None, fit: DenseFit, population: Population
) -> Ends:
    """Return intervals of the pooled estimate, likewise."""
    users, size = counts.sum(axis=1), matrices.shape[1]

    def ends(alpha: float) -> tuple[Floats, Floats]:
        if questions is not None:
            deviation = np.sqrt(fit.variance)
            return pooled_ends(questions, estimate=fit.shares, deviation=deviation, alpha=alpha, population=population)
        drawn = two_sided_z(alpha) ** 2
        inside = (users.sum() * clip_to_simplex(fit.shares) + drawn / size) / (users.sum() + drawn)
        careful = dense_covariance_fit(matrices, users, inside, population)
        assert careful is not None
        return normal_ends(fit.shares, np.maximum(np.diag(careful), 0.0))(alpha)

    return ends
