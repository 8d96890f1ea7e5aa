"""Bounds from counts that hold for every number of people: lower bounds on epsilon, and tails of sums and counts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from estimators.intervals.one_look import clopper_pearson_array

Floats = NDArray[np.float64]


def epsilon_lower_bounds(
    hits: ArrayLike, trials: int, other_hits: ArrayLike, other_trials: int, alpha: float
) -> Floats:
    """Return lower bounds on epsilon from how often events happen under one value and under another one.

    Every event E satisfies Pr(E | x) <= e^epsilon Pr(E | x'). Clopper and Pearson's lower bound of the one probability
    and upper bound of the other, each wrong with probability at most alpha / 2, give a bound that is wrong with
    probability at most alpha. The other value may be a mixture of values: the inequality holds for its average.

    >>> epsilon_lower_bounds([900], 1000, [100], 1000, 1e-6).round(3).tolist()
    [1.708]
    """
    if trials == 0 or other_trials == 0:
        return np.zeros(np.shape(np.asarray(hits)))
    lower, _ = clopper_pearson_array(np.asarray(hits, dtype=np.float64), float(trials), alpha / 2)
    _, upper = clopper_pearson_array(np.asarray(other_hits, dtype=np.float64), float(other_trials), alpha / 2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(lower) - np.log(upper), 0.0))


def count_p_values(counts: ArrayLike, trials: ArrayLike, chances: ArrayLike) -> Floats:
    """Return the exact two-sided p-values of binomial counts; arrays broadcast; 0 where the impossible was counted.

    >>> count_p_values([5, 0, 1], 10, [0.5, 0.5, 0.0]).round(4).tolist()
    [1.0, 0.002, 0.0]
    """
    k, n, p = np.broadcast_arrays(np.asarray(counts), np.asarray(trials), np.asarray(chances, dtype=np.float64))
    p = np.clip(p, 0.0, 1.0)
    k, n = k.astype(np.float64), n.astype(np.float64)
    # Pr(X >= k) and Pr(X <= k) by the incomplete beta function, which also knows p = 0 and p = 1.
    above = np.where(k > 0, special.betainc(np.maximum(k, 1.0), n - k + 1.0, p), 1.0)
    below = np.where(k < n, special.betaincc(k + 1.0, np.maximum(n - k, 1.0), p), 1.0)
    return np.asarray(np.minimum(2.0 * np.minimum(above, below), 1.0))


def sum_p_value(successes: int, trials: int, mean: float) -> float:
    """Return a bound on the two-sided p-value of a sum of independent trials whose chances have this mean.

    Chernoff's bound in Hoeffding's form, exp(-n KL(successes / n, mean)) a side: it holds whatever the single chances.

    >>> sum_p_value(50, 100, 0.5), sum_p_value(80, 100, 0.5) < 1e-8
    (1.0, True)
    """
    if trials == 0:
        return 1.0
    share = successes / trials
    mean = min(max(mean, 0.0), 1.0)
    distance = float(special.rel_entr(share, mean) + special.rel_entr(1.0 - share, 1.0 - mean))
    return min(1.0, 2.0 * math.exp(-trials * distance))
