"""Projected ascent over the simplex for smooth concave likelihoods with many shares.

Where reports are mostly independent noise, the likelihood's curvature is nearly diagonal on the simplex. A gradient
step in that metric, followed by the exact projection in the same metric and a spectral step length (Barzilai &
Borwein), then needs tens of evaluations where EM needs thousands; and shares that tend to zero arrive there exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.inference.em import MAX_EVALUATIONS, TOLERANCE, Evaluate
from estimators.inference.likelihood import Maximum

Floats = NDArray[np.float64]

Told = Callable[[float], None]
"""Hears how much of the way to the maximum is done, by the logarithm of what a step could still gain: 0 to 1."""

# How far a step may fall behind the best of the last few values: strict ascent would shorten the spectral steps.
_MEMORY = 8
_SUFFICIENT = 1e-4
_SHORTEST = 1e-10
_METRIC_EVERY = 10
_STALLED = 6


def projected_ascent(
    evaluate: Evaluate,
    metric: Callable[[Floats], Floats],
    start: Floats,
    users: float,
    *,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
    told: Told | None = None,
) -> Maximum:
    """Maximise a concave log-likelihood over the simplex; metric(shares) is its curvature per value, divided by users.

    told is called before every step; what it raises ends the search.

    Maximum.stopped is "converged: certified" (no point of the simplex gains more than tolerance per user), "converged:
    gain" (the last rounds together gained less than that) or "iterations".
    """
    shares = start / start.sum()
    gradient, value = evaluate(shares)
    evaluations, length, recent = 1, 1.0, [value]
    scale = metric(shares)
    best = Maximum(shares, value, "iterations", evaluations)
    gap = float(gradient.max()) - float(gradient @ shares)
    rounds = 0
    first_gap = gap
    while gap > tolerance and evaluations < max_evaluations:
        rounds += 1
        if told is not None:
            told(1.0 - math.log(gap / tolerance) / max(math.log(first_gap / tolerance), math.log(gap / tolerance)))
        if rounds % _METRIC_EVERY == 0:
            scale, length = metric(shares), 1.0
        move = project(shares + length * gradient / scale, scale) - shares
        slope = float(gradient @ move) * users
        floor, part = min(recent[-_MEMORY:]), 1.0
        while True:
            trial = shares + part * move
            gradient_new, value_new = evaluate(trial)
            evaluations += 1
            if value_new >= floor + _SUFFICIENT * part * slope or part < _SHORTEST or evaluations >= max_evaluations:
                break
            part /= 4
        step, bend = trial - shares, gradient - gradient_new
        length = _spectral_length(step, bend, scale, odd=bool(rounds % 2))
        shares, gradient, value = trial, gradient_new, value_new
        recent.append(value)
        gap = float(gradient.max()) - float(gradient @ shares)
        if value > best.log_likelihood:
            best = Maximum(shares, value, "iterations", evaluations)
        if len(recent) > 2 * _STALLED and max(recent[-_STALLED:]) - max(recent[:-_STALLED]) <= tolerance * users * 1e-3:
            return Maximum(best.shares, best.log_likelihood, "converged: gain", evaluations)
    if gap <= tolerance:
        return Maximum(shares, value, "converged: certified", evaluations)
    return Maximum(best.shares, best.log_likelihood, "iterations", evaluations)


def project(point: Floats, scale: Floats) -> Floats:
    """Return the point of the simplex nearest to `point` in the metric sum scale * difference^2, in O(m log m).

    >>> project(np.array([0.5, 0.4, 0.3, -0.1]), np.ones(4)).round(3).tolist()
    [0.433, 0.333, 0.233, 0.0]
    """
    weight = 1.0 / scale
    break_points = point * scale
    order = np.argsort(-break_points, kind="stable")
    shift = (np.cumsum(point[order]) - 1.0) / np.cumsum(weight[order])
    last = int(np.flatnonzero(break_points[order] > shift)[-1])
    return np.asarray(np.maximum(point - shift[last] * weight, 0.0))


def _spectral_length(step: Floats, bend: Floats, scale: Floats, *, odd: bool) -> float:
    curvature = float(step @ bend)
    if curvature <= 0:
        return 1.0
    long, short = float(step @ (scale * step)) / curvature, curvature / float(np.sum(bend * bend / scale))
    return float(np.clip(long if odd else short, 1e-3, 1e3))
