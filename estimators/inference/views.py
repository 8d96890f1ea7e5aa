"""Labelled views of an estimate, never the estimate itself: significant values only, or the nearest distribution.

Unbiased shares may be negative and need not look like a distribution. These views do, at the price of a bias; they are
for drawing, and where a distribution is required. With many values and few answers a view may be far closer to the
truth as a whole; how much is simulated, at shares and errors like those of the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.estimates import Estimates, View, ViewName
from estimators.inference.ascent import project
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import bonferroni_z

Floats = NDArray[np.float64]

_DRAWS: Final = 8
"""Simulated estimates per view. A distance of two thousandths more or less decides nothing."""
_MOST_SIMULATED: Final = 2_000
"""Values up to which distances are simulated: a view must not cost more than the estimate."""


@dataclass(frozen=True)
class Significant:
    """emp+thr of Murakami & Kawamoto: kept values, what they leave of the mass, and the shares that result."""

    kept: NDArray[np.bool_]
    remaining: float
    shares: Floats


def zero_deviation(sigma: ArrayLike, lie: ArrayLike, users: ArrayLike) -> Floats:
    """Return the standard deviation of a share's linear estimate when the share is zero: sqrt(q (1 - q) / n) / sigma.

    For categories sigma is the retention, for bits Pr(1|1) - Pr(1|0). Zero where no other value gives this answer.
    """
    q = np.asarray(lie, dtype=np.float64)
    return np.asarray(
        np.sqrt(q * (1.0 - q) / np.asarray(users, dtype=np.float64)) / np.asarray(sigma, dtype=np.float64)
    )


def zero_share_deviation(questions: YesNo, method: str) -> Floats:
    """Return the same for the estimate over several rungs: weighted by users (stratified) or by information (pooled).

    Infinite for a value that no answer tells anything about.
    """
    sigma, users = questions.truth - questions.lie, questions.users
    live = (users > 0) & (sigma != 0)
    own = zero_deviation(np.where(live, sigma, 1.0), questions.lie, np.where(live, users, 1.0)) ** 2
    total = np.where(live, users, 0.0).sum(axis=0)
    if method == "stratified":
        variance = np.where(live, users**2 * own, 0.0).sum(axis=0) / np.maximum(total, 1.0) ** 2
    else:
        certain = np.any(live & (own == 0), axis=0)
        information = np.divide(1.0, own, out=np.zeros_like(own), where=live & (own > 0)).sum(axis=0)
        variance = np.where(certain, 0.0, 1.0 / np.maximum(information, np.finfo(float).tiny))
    return np.where(total > 0, np.sqrt(variance), np.inf)


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


def views_of(found: Estimates, questions: YesNo | None) -> tuple[View, ...]:
    """Return the views of the shares of all values, which sum to one: nearest distribution, significant values only.

    None of an estimate that is inside the simplex already (mle) or lacks a value. `questions` are the values as yes/no
    questions; without them it is not known which shares are significant.
    """
    if found.method == "mle" or len(found.labels) < 2 or not np.isfinite(found.value).all():
        return ()
    views: dict[ViewName, Callable[[Floats], Floats]] = {"simplex": simplex_projection}
    kept = None
    if questions is not None:
        deviation = zero_share_deviation(questions, found.method)
        limits = significance_threshold(deviation, found.alpha, len(found.labels))
        views["threshold"] = lambda shares: keep_significant(shares, limits).shares
        kept = keep_significant(found.value, limits).kept
    distances = _distances(found, views)
    return tuple(
        View(name, make(found.value), kept if name == "threshold" else None, distances.get(name), distances.get(""))
        for name, make in sorted(views.items())
    )


def _distances(found: Estimates, views: Mapping[ViewName, Callable[[Floats], Floats]]) -> dict[str, float]:
    """Return the mean distance in total variation from the truth: of every view, and of the estimate itself ("").

    Simulated: the mean of the views is taken for the truth, and estimates scatter about it with their variance. No view
    alone would do: each looks best where the truth is what it makes of an estimate.
    """
    deviation = np.sqrt(found.variance)
    if len(found.labels) > _MOST_SIMULATED or not np.isfinite(deviation).all():
        return {}
    truth = np.mean([make(found.value) for make in views.values()], axis=0)
    # Always the same numbers: a recount must give the same record.
    noise = np.random.default_rng(len(truth)).standard_normal((_DRAWS, len(truth))) * deviation
    if abs(float(found.value.sum()) - 1.0) < 1e-9:
        noise -= noise.mean(axis=1, keepdims=True)
    all_views: dict[str, Callable[[Floats], Floats]] = {"": lambda shares: shares}
    all_views |= {str(name): make for name, make in views.items()}
    return {
        name: float(np.mean([np.abs(make(truth + row) - truth).sum() / 2 for row in noise]))
        for name, make in all_views.items()
    }
