"""Maximum likelihood over any channels: EM, made fast by extrapolation and exact by Newton's method at the end.

EM alone converges slowly: each step gains a fixed fraction of what is missing. Two steps show the direction and the
ratio, so the third point is extrapolated (squared extrapolation, on logarithms, so that shares stay positive); a point
that lowers the likelihood is dropped. The search says why it ended: the likelihood is concave, and the largest score
minus the number of users bounds what is left to gain, so "converged" is certified.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.inference.inversion import Rungs
from estimators.inference.likelihood import Maximum

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
"""A search ends when at most this much log-likelihood per user is left to gain, or a round gained less than this."""
MAX_EVALUATIONS = 2_000

_LOG_FLOOR = -650.0
_NEWTON_STEPS = 200
# From a start that is near: what takes longer is better begun by EM.
_FEW_STEPS = 20
_NEAR_EDGE = 1e-3
# Enough to bring Newton's method near; EM alone is slow where a share tends to zero.
_WARM_UP = 40

Evaluate = Callable[[Floats], tuple[Floats, float]]
"""Shares -> (score per value divided by the users, log-likelihood). An EM step is shares * score."""


def accelerated_em(
    evaluate: Evaluate,
    start: Floats,
    users: float,
    *,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
) -> Maximum:
    """Maximise a concave log-likelihood over the simplex from a strictly positive start.

    Maximum.stopped is "converged: certified" (no point gains more than tolerance per user), "converged: gain" (a whole
    round gained less than tolerance per user) or "iterations".
    """
    if np.any(start <= 0):
        raise ValueError("EM must start from strictly positive shares: a zero never becomes positive")
    current = start / start.sum()
    ratio, best = evaluate(current)
    evaluations = 1
    while evaluations < max_evaluations:
        if float(ratio.max()) - 1.0 <= tolerance:
            return Maximum(current, best, "converged: certified", evaluations)
        first = current * ratio
        ratio_first, _ = evaluate(first)
        second = first * ratio_first
        candidate = _extrapolate(current, ratio, ratio_first)
        ratio_new, value = evaluate(candidate)
        evaluations += 2
        if not value >= best:
            candidate = second / second.sum()
            ratio_new, value = evaluate(candidate)
            evaluations += 1
        gain, current, ratio, best = value - best, candidate, ratio_new, value
        if gain <= tolerance * users:
            return Maximum(current, best, "converged: gain", evaluations)
    return Maximum(current, best, "iterations", evaluations)


def uniform(values: int) -> Floats:
    """Return equal shares, the usual start."""
    return np.full(values, 1.0 / values)


def plain_em(evaluate: Evaluate, start: Floats, iterations: int) -> Floats:
    """Return the shares after exactly `iterations` EM steps (the iterative Bayesian update of Murakami & Kawamoto)."""
    shares = start
    for _ in range(iterations):
        ratio, _ = evaluate(shares)
        shares = shares * ratio
    return shares


def retention_evaluate(rungs: Rungs) -> Evaluate:
    """Return the likelihood of a retention family in O(rungs x values) per evaluation."""

    def evaluate(shares: Floats) -> tuple[Floats, float]:
        answers = rungs.answer_shares(shares)
        weights = np.divide(rungs.counts, answers, out=np.zeros_like(answers), where=rungs.counts > 0)
        spread = float((weights * rungs.base).sum())
        ratio = (spread + (rungs.sigma[:, None] * weights).sum(axis=0)) / rungs.total
        seen = rungs.counts > 0
        return ratio, float(np.sum(rungs.counts[seen] * np.log(answers[seen])))

    return evaluate


def dense_evaluate(matrices: Floats, counts: Floats) -> Evaluate:
    """Return the likelihood of counts [rung, answer] under matrices [rung, value, answer]."""
    users = float(counts.sum())
    seen = counts > 0

    def evaluate(shares: Floats) -> tuple[Floats, float]:
        answers = shares @ matrices
        weights = np.divide(counts, answers, out=np.zeros_like(answers), where=seen)
        ratio = np.einsum("gxy,gy->x", matrices, weights) / users
        return ratio, float(np.sum(counts[seen] * np.log(answers[seen])))

    return evaluate


def dense_mle(matrices: Floats, counts: Floats, near: Floats | None = None) -> Maximum:
    """Return the maximum for counts [rung, answer] under matrices [rung, value, answer], Newton-exact if regular.

    From shares that are near it, Newton's method needs no EM before; where it does not settle, EM begins as usual.
    """
    size = matrices.shape[1]
    users = float(counts.sum())
    if users <= 0:
        raise ValueError("a maximum likelihood needs at least one answer; got none")
    possible = counts.sum(axis=0) > 0
    if np.any(np.all(matrices[:, :, possible].max(axis=1) == 0, axis=0)):
        raise ValueError("some answers are impossible under every value; the counts belong to other channels")
    evaluate = dense_evaluate(matrices, counts)
    if near is not None:
        start = np.maximum(near, _NEAR_EDGE)
        settled = _active_set(matrices, counts, start / start.sum(), steps=_FEW_STEPS)
        if settled is not None:
            return Maximum(settled[0], evaluate(settled[0])[1], "converged: certified", settled[1])
    rough = accelerated_em(evaluate, uniform(size), users, max_evaluations=_WARM_UP)
    exact = _active_set(matrices, counts, rough.shares)
    if exact is None:
        return accelerated_em(evaluate, rough.shares, users)
    shares, steps = exact
    _, value = evaluate(shares)
    if not value >= rough.log_likelihood - 1e-12 * abs(rough.log_likelihood):
        return rough
    return Maximum(shares, value, "converged: certified", rough.iterations + steps)


def _extrapolate(current: Floats, ratio: Floats, ratio_first: Floats) -> Floats:
    # With r and v the first and second differences of the logarithms, the step length |r| / |v| is exact for a single
    # geometric rate. Values with hardly any share have large logarithmic steps but no weight, hence the weights.
    with np.errstate(divide="ignore"):
        r = np.maximum(np.log(ratio), _LOG_FLOOR)
        v = np.maximum(np.log(ratio_first), _LOG_FLOOR) - r
    weight = current
    length = float(np.sum(weight * v * v))
    alpha = max(1.0, float(np.sqrt(np.sum(weight * r * r) / length))) if length > 0 else 1.0
    logs = np.log(current) + 2.0 * alpha * r + alpha * alpha * v
    logs = np.maximum(logs - logs.max(), _LOG_FLOOR)
    shares = np.exp(logs)
    return np.asarray(shares / shares.sum())


def _active_set(
    matrices: Floats, counts: Floats, start: Floats, *, steps: int = _NEWTON_STEPS
) -> tuple[Floats, int] | None:
    """Climb to the exact maximum by Newton steps on the values with positive shares; None if that does not settle."""
    users = float(counts.sum())
    seen = counts > 0
    shares = np.where(start > 1e-7, start, 0.0)
    shares /= shares.sum()
    for step in range(1, steps + 1):
        answers = shares @ matrices
        if np.any(seen & (answers <= 0)):
            return None
        weights = np.divide(counts, answers, out=np.zeros_like(answers), where=seen)
        score = np.einsum("gxy,gy->x", matrices, weights)
        support = np.flatnonzero(shares > 0)
        curvature = np.divide(weights, answers, out=np.zeros_like(answers), where=seen)
        inner = matrices[:, support]
        hessian = np.einsum("gxy,gy,gzy->xz", inner, curvature, inner)
        move = _newton_move(hessian, score[support])
        if move is None:
            return None
        if float(np.abs(move).max()) <= 1e-14:
            lacking = np.flatnonzero((shares <= 0) & (score > users * (1.0 + 1e-12)))
            if len(lacking) == 0:
                return shares, step
            shares[lacking[np.argmax(score[lacking])]] = 1e-6
            shares /= shares.sum()
            continue
        shrinking = move < 0
        limits = -shares[support][shrinking] / move[shrinking]
        length = min(1.0, float(limits.min(initial=np.inf)))
        moved = shares[support] + length * move
        if length < 1.0:
            moved[np.flatnonzero(shrinking)[np.argmin(limits)]] = 0.0
        shares[support] = np.maximum(moved, 0.0)
        shares /= shares.sum()
    return None


def _newton_move(hessian: Floats, score: Floats) -> Floats | None:
    """Solve the Newton system under sum(move) = 0; None if it is singular."""
    size = len(score)
    if size == 1:
        return np.zeros(1)
    system = np.zeros((size + 1, size + 1))
    scale = float(np.trace(hessian)) / size
    if not scale > 0:
        return None
    system[:size, :size] = hessian / scale
    system[size, :size] = system[:size, size] = 1.0
    if np.linalg.cond(system) > 1e13:
        return None
    right = np.append(score / scale, 0.0)
    return np.asarray(np.linalg.solve(system, right)[:size])
