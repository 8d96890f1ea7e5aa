"""Key-value data in closed form: shares of people with a key, means of their values (Ma & Wang; Gu et al.), corrected.

Each person has some keys, each with a value in [-1, 1] that is first rounded at random to -1 or +1, once. For one key
there are three answers: 0 (no such key), +1 and -1. p1 keeps "no key", p2 keeps "key", q keeps the sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.rows import club_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KeyValueParameters:
    """The three probabilities of a key-value response."""

    p1: float
    """Pr(answer 0 | no key)."""
    p2: float
    """Pr(answer not 0 | key)."""
    q: float
    """Pr(sign kept | answer not 0)."""

    @property
    def presence(self) -> float:
        """t = p1 + p2 - 1: how much the answer rate moves with the share of the key."""
        return self.p1 + self.p2 - 1.0

    @property
    def sign(self) -> float:
        """c = p2 (2q - 1): how much the difference of signs moves with the values."""
        return self.p2 * (2.0 * self.q - 1.0)

    @property
    def rows(self) -> Floats:
        """The channel of one key."""
        return club_rows(self.p1, self.p2, self.q)


def lpp_loss_printed(epsilon_key: float, epsilon_value: float) -> float:
    """Return Eq. 47 of Ma & Wang, which forgets two people who both have the key; for comparison only."""
    return epsilon_key + math.log(2.0) - math.log1p(math.exp(-epsilon_value))


def lpp_loss(epsilon_key: float, epsilon_value: float) -> float:
    """Return the exact loss of a whole key-value report: max(eps2, eps1 + ln(2 / (1 + e^-eps2)))."""
    return max(epsilon_value, lpp_loss_printed(epsilon_key, epsilon_value))


@dataclass(frozen=True)
class KeyValueEstimate:
    """Estimates for one or many keys (arrays of one shape); NaN where fewer than two people answered."""

    share: Floats
    """f: share of people with the key."""
    total: Floats
    """s: mean over all people of the value, counted 0 without the key."""
    share_variance: Floats
    total_variance: Floats
    covariance: Floats

    @property
    def mean(self) -> Floats:
        """Mean value among people with the key, s / f: consistent, not unbiased; NaN where f <= 0."""
        usable = self.share > 0.0
        return np.divide(self.total, self.share, out=np.full_like(self.share, np.nan), where=usable)

    @property
    def mean_variance(self) -> Floats:
        """Variance of `mean` by the delta method."""
        mean = self.mean
        top = self.total_variance - 2.0 * mean * self.covariance + mean**2 * self.share_variance
        usable = self.share > 0.0
        return np.divide(np.maximum(top, 0.0), self.share**2, out=np.full_like(self.share, np.nan), where=usable)

    @property
    def mean_error(self) -> Floats:
        """Standard error of `mean` by the delta method."""
        return np.asarray(np.sqrt(self.mean_variance))

    def delta_interval(self, z: float) -> tuple[Floats, Floats]:
        """Return mean -/+ z standard errors."""
        half = z * self.mean_error
        return self.mean - half, self.mean + half

    def _fieller_terms(self, z: float) -> tuple[Floats, Floats, Floats]:
        z2 = z * z
        return (
            self.share**2 - z2 * self.share_variance,
            self.total * self.share - z2 * self.covariance,
            self.total**2 - z2 * self.total_variance,
        )

    def fieller_unbounded(self, z: float) -> NDArray[np.bool_]:
        """Tell where the share may be 0 at this level, so that no bounded interval for the mean exists."""
        return np.asarray(self._fieller_terms(z)[0] <= 0.0)

    def fieller_interval(self, z: float) -> tuple[Floats, Floats]:
        """Return Fieller's interval for the ratio; NaN where it is unbounded."""
        a, b, c = self._fieller_terms(z)
        usable, blank = np.asarray(a > 0.0), np.full_like(self.share, np.nan)
        root = np.sqrt(np.maximum(b * b - a * c, 0.0))
        return (
            np.divide(b - root, a, out=blank.copy(), where=usable),
            np.divide(b + root, a, out=blank.copy(), where=usable),
        )

    def scaled(self, factor: float) -> KeyValueEstimate:
        """Return the estimates for `factor` times the share and the total (pad-and-sample: the padding length)."""
        square = factor * factor
        return KeyValueEstimate(
            factor * self.share,
            factor * self.total,
            square * self.share_variance,
            square * self.total_variance,
            square * self.covariance,
        )


def estimate_key_values(
    users: ArrayLike, plus: ArrayLike, minus: ArrayLike, parameters: KeyValueParameters
) -> KeyValueEstimate:
    """Turn counts of +1 and -1 among `users` reports into estimates with unbiased covariance estimates."""
    n = np.asarray(users, dtype=np.float64)
    up, down = np.asarray(plus, dtype=np.float64), np.asarray(minus, dtype=np.float64)
    known = n >= 2.0
    count = np.where(known, n, np.nan)
    rate, difference = (up + down) / count, (up - down) / count
    t, c, divisor = parameters.presence, parameters.sign, count - 1.0
    return KeyValueEstimate(
        share=np.asarray((rate - (1.0 - parameters.p1)) / t),
        total=np.asarray(difference / c),
        share_variance=np.asarray(rate * (1.0 - rate) / (t * t * divisor)),
        total_variance=np.asarray((rate - difference**2) / (c * c * divisor)),
        covariance=np.asarray(difference * (1.0 - rate) / (t * c * divisor)),
    )


def key_value_moments(share: ArrayLike, total: ArrayLike, parameters: KeyValueParameters) -> tuple[Any, Any, Any]:
    """Return n Var(f), n Var(s) and n Cov(f, s) in theory, for independent respondents."""
    f, s = np.asarray(share, dtype=np.float64), np.asarray(total, dtype=np.float64)
    t, c = parameters.presence, parameters.sign
    rate = 1.0 - parameters.p1 + t * f
    return rate * (1.0 - rate) / (t * t), rate / (c * c) - s * s, s * (parameters.p1 / t - f)


@dataclass(frozen=True)
class GraphAverages:
    """Averages of a bipartite graph of n users and m items with E edges of total weight W."""

    degree: float
    """2E / (n + m), over all vertices."""
    degree_of_items: float
    degree_of_users: float
    density: float
    """E / (n m)."""
    edge_weight: float
    """W / E; NaN without edges."""
    weight_of_items: float
    """W / m."""


def graph_averages(users: int, degrees: Sequence[float], weights: Sequence[float]) -> GraphAverages:
    """Return the averages of a graph from the degree and the weight of every item."""
    items, edges, weight = len(degrees), math.fsum(degrees), math.fsum(weights)
    return GraphAverages(
        degree=2.0 * edges / (users + items),
        degree_of_items=edges / items,
        degree_of_users=edges / users,
        density=edges / (users * items),
        edge_weight=weight / edges if edges else math.nan,
        weight_of_items=weight / items,
    )
