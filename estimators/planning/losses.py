"""Expected errors of uRR and uRAP: what a survey with sensitive and other values will be off by (Murakami & Kawamoto).

Values are ordered sensitive first. A loss with `users` in it is an expectation over users drawn from the shares `p`;
l1 is the sum of absolute errors (twice the total variation), l2 the sum of squared errors, both of the linear
estimates. Plain randomized response is uRR, and RAPPOR is uRAP, with every value sensitive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import binom

from estimators.channels.response import REAL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class L1Loss:
    """Expected l1 loss: by the normal approximation of the paper, and exactly by De Moivre's mean deviation."""

    approximate: float
    exact: float

    @property
    def total_variation(self) -> float:
        """Half of the approximate l1 loss."""
        return self.approximate / 2


def mean_deviation(trials: int, probability: ArrayLike) -> Floats:
    """Return E|X - E X| of a binomial X, by De Moivre: 2 v (1 - m) Pr(X = v) with v = floor(n m) + 1."""
    m = np.asarray(probability, dtype=np.float64)
    v = np.floor(trials * m) + 1
    return np.asarray(2 * v * (1 - m) * binom.pmf(v, trials, m))


def normal_mean_deviation(trials: int, probability: ArrayLike) -> Floats:
    """Return the normal approximation sqrt(2 n m (1 - m) / pi) of the binomial mean deviation."""
    m = np.asarray(probability, dtype=np.float64)
    return np.asarray(np.sqrt(2 * trials * m * (1 - m) / math.pi))


def l1_urr(shares: ArrayLike, sensitive: int, epsilon: float, users: int) -> L1Loss:
    """Return the expected l1 loss of uRR with its linear estimate (Eq. 12)."""
    p = _shares(shares)
    chance = REAL.grr(epsilon, sensitive)
    answer = p * chance.slope
    answer[:sensitive] += chance.lie
    return _l1(answer, np.full(p.shape, 1 / chance.slope), users)


def l1_urap(shares: ArrayLike, sensitive: int, epsilon: float, users: int, *, theta: float | None = None) -> L1Loss:
    """Return the expected l1 loss of uRAP with its linear estimate (Eq. 17 for the default theta)."""
    p = _shares(shares)
    bits = REAL.urap(epsilon, theta)
    weight = np.full(p.shape, 1 / bits.other.truth)
    weight[:sensitive] = 1 / bits.sensitive.slope
    answer = p / weight
    answer[:sensitive] += bits.sensitive.lie
    return _l1(answer, weight, users)


def l1_without_privacy(size: int, users: int) -> float:
    """Return the l1 loss of plain counting at its worst, uniform shares (normal approximation)."""
    return _unit(users) * math.sqrt(size - 1)


def l1_urr_worst(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the worst l1 loss of uRR over all shares: Eq. 13 below e^epsilon - 1 = other values, Eq. 15 above."""
    if math.expm1(epsilon) < size - sensitive:
        return l1_urr_other_uniform(size, sensitive, epsilon, users)
    return l1_urr_star(size, sensitive, epsilon, users)


def l1_urr_other_uniform(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the l1 loss of uRR when all mass is uniform on the values that are not sensitive (Eq. 13)."""
    lift, other = math.expm1(epsilon), size - sensitive
    return _unit(users) * (
        sensitive * math.sqrt(sensitive + lift - 1) / lift + math.sqrt(sensitive * other / lift + other - 1)
    )


def l1_urr_star(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the l1 loss of uRR at the shares of `worst_shares` (Eq. 15)."""
    lift = math.expm1(epsilon)
    return _unit(users) * math.sqrt(size - 1) * (sensitive + lift) / lift


def worst_shares(sensitive: int, other: int, epsilon: float) -> tuple[float, float]:
    """Return the share of each sensitive and of each other value that makes all answers equally likely (Eq. 14)."""
    lift, size = math.expm1(epsilon), sensitive + other
    return (1 - other / lift) / size, (1 + sensitive / lift) / size


def l1_urap_worst(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the worst l1 loss of uRAP with the default theta, uniform on the other values (Eq. 18).

    Holds while e^(epsilon / 2) is below about the number of other values.
    """
    lift, other = math.expm1(epsilon / 2), size - sensitive
    return _unit(users) * (
        math.exp(epsilon / 4) * sensitive / lift + math.sqrt(math.exp(epsilon / 2) * other / lift - 1)
    )


def l1_urr_high_privacy(sensitive: int, epsilon: float, users: int) -> float:
    """Return the paper's crude small-epsilon form s sqrt(s - 1) / epsilon (Eq. 16); 0 for a single sensitive value."""
    return _unit(users) * sensitive * math.sqrt(sensitive - 1) / epsilon


def l1_urap_high_privacy(sensitive: int, epsilon: float, users: int) -> float:
    """Return the paper's crude small-epsilon form 2 s / epsilon (Eq. 19)."""
    return _unit(users) * 2 * sensitive / epsilon


def l2_urr(shares: ArrayLike, sensitive: int, epsilon: float, users: int) -> float:
    """Return the expected l2 loss of uRR (Eq. 46)."""
    p = _shares(shares)
    lift = math.expm1(epsilon)
    hidden = 2 * lift * (sensitive - float(p[:sensitive].sum())) + sensitive * (sensitive - 1)
    return (hidden / lift**2 + 1 - float(p @ p)) / users


def l2_urap(shares: ArrayLike, sensitive: int, epsilon: float, users: int) -> float:
    """Return the expected l2 loss of uRAP with the default theta (Eq. 48)."""
    p = _shares(shares)
    root = math.exp(epsilon / 2)
    lift = root - 1
    hidden = ((sensitive + 1) * root - 1) / lift**2 - float(p[:sensitive].sum()) / lift
    return (1 + hidden - float(p @ p)) / users


def l2_urr_other_uniform(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the worst l2 loss of uRR while e^epsilon - 1 is below the number of other values (Prop. 15)."""
    lift, other = math.expm1(epsilon), size - sensitive
    return (sensitive * (sensitive + 2 * math.exp(epsilon) - 3) / lift**2 + 1 - 1 / other) / users


def l2_urr_star(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the worst l2 loss of uRR from e^epsilon - 1 = other values on (Prop. 16)."""
    lift = math.expm1(epsilon)
    return ((sensitive + lift) / lift) ** 2 * (1 - 1 / size) / users


def l2_urr_star_applies(size: int, sensitive: int, epsilon: float) -> bool:
    """Tell whether Prop. 16 is the worst case (otherwise Prop. 15 is)."""
    return math.expm1(epsilon) >= size - sensitive


def l2_urap_worst(size: int, sensitive: int, epsilon: float, users: int) -> float:
    """Return the worst l2 loss of uRAP with the default theta (Prop. 18)."""
    root = math.exp(epsilon / 2)
    return (1 + ((sensitive + 1) * root - 1) / (root - 1) ** 2 - 1 / (size - sensitive)) / users


def best_theta(shares: ArrayLike, sensitive: int, epsilon: float, users: int) -> float:
    """Return the theta that minimises the l1 loss of uRAP for expected shares; the default is up to 30 % worse."""
    p = _shares(shares)

    def loss(theta: float) -> float:
        return l1_urap(p, sensitive, epsilon, users, theta=theta).approximate

    found = minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-9})
    return float(found.x)


def _shares(shares: ArrayLike) -> Floats:
    p = np.asarray(shares, dtype=np.float64)
    if p.ndim != 1 or p.size == 0 or (p < 0).any() or not math.isclose(float(p.sum()), 1, abs_tol=1e-9):
        raise ValueError(f"shares must be non-negative and sum to one; got {shares!r}")
    return p


def _unit(users: int) -> float:
    return math.sqrt(2 / (users * math.pi))


def _l1(answer: Floats, weight: Floats, users: int) -> L1Loss:
    return L1Loss(
        approximate=float((weight * normal_mean_deviation(users, answer)).sum()) / users,
        exact=float((weight * mean_deviation(users, answer)).sum()) / users,
    )
