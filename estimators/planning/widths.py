"""Before a survey starts: how sharp will estimates be, how many people or how much budget do they need.

Closed forms at assumed shares; nothing is drawn. A mechanism enters as its `Response` for one value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.moments import (
    binary_variance,
    most_values,
)
from estimators.channels.response import REAL, Response
from estimators.estimates import Population
from estimators.inference.pooling import stratified_covariance
from estimators.intervals.one_look import one_sided_z

Floats = NDArray[np.float64]

_MOST_EPSILON = 40.0


def urr_matrix(epsilon: float, values: int, sensitive: Sequence[int]) -> Floats:
    """Return the channel of the utility-optimised response with any set of sensitive values, rows true values."""
    response = REAL.grr(epsilon, len(sensitive))
    matrix = np.eye(values) * response.slope
    matrix[:, list(sensitive)] += response.lie
    return matrix


def urap_responses(epsilon: float, values: int, sensitive: int, *, theta: float | None = None) -> tuple[Floats, Floats]:
    """Return Pr(1|1) and Pr(1|0) of every bit of uRAP, sensitive values first; all sensitive: RAPPOR."""
    bits = REAL.urap(epsilon, theta)
    truth, lie = np.full(values, bits.other.truth), np.zeros(values)
    truth[:sensitive], lie[:sensitive] = bits.sensitive.truth, bits.sensitive.lie
    return truth, lie


def best_for_categories(epsilon: float, values: int) -> str:
    """Return the mechanism with the smallest variance for a rare value: grr for few values, oue for many.

    >>> best_for_categories(1.0, 10), best_for_categories(1.0, 11)
    ('grr', 'oue')
    """
    return "oue" if values > most_values(epsilon) else "grr"


def deviation(response: Response[float], share: float, users: float, *, population: Population = "fleet") -> float:
    """Return the standard deviation of the estimated share; infinite without users or information."""
    if users <= 0 or response.slope == 0:
        return math.inf
    p, q = response.truth, response.lie
    variance = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / response.slope**2
    if population == "sampling":
        variance += share * (1 - share)
    return math.sqrt(variance / users)


def users_needed(response: Response[float], share: float, wanted: float, *, population: Population = "fleet") -> int:
    """Return how many people bring the standard deviation down to `wanted`."""
    if not wanted > 0:
        raise ValueError(f"the wanted standard deviation must be positive; got {wanted!r}")
    one = deviation(response, share, 1.0, population=population)
    if math.isinf(one):
        raise ValueError("answers at this level tell nothing: no number of people is enough; raise epsilon")
    # The guard keeps an exact quotient from being pushed up by the last bit of the square.
    return math.ceil((one / wanted) ** 2 * (1.0 - 1e-12))


def epsilon_needed(values: int, share: float, users: int, wanted: float) -> float | None:
    """Return the smallest level at which GRR reaches the wanted standard deviation for the fleet; None if none does."""
    if deviation(REAL.grr(_MOST_EPSILON, values), share, users) > wanted:
        return None
    low, high = 0.0, _MOST_EPSILON
    for _ in range(60):
        middle = (low + high) / 2
        reached = deviation(REAL.grr(middle, values), share, users) <= wanted
        low, high = (low, middle) if reached else (middle, high)
    return high


def users_to_alarm(
    response: Response[float], share: float, threshold: float, *, alpha: float, power: float = 0.9
) -> int | None:
    """Return how many answers an always-valid alert at `threshold` needs to fire with this power when `share` is true.

    The evidence of the e-process grows by the divergence of the answers' laws per person, less about half a logarithm
    of their number for not knowing the share; its fluctuation is allowed for by a normal quantile. None if the share
    does not exceed the threshold: the alert then fires with probability at most alpha, ever.
    """
    if not 0 < threshold < 1:
        raise ValueError(f"a threshold must be a share strictly between 0 and 1; got {threshold!r}")
    if share <= threshold or response.slope <= 0:
        return None
    true, null = response.answer(share), response.answer(threshold)
    up = math.log(true / null)
    down = math.log((1 - true) / (1 - null)) if true < 1 else 0.0
    drift = true * up + (1 - true) * down
    spread = math.sqrt(true * (1 - true)) * abs(up - down)
    reach = one_sided_z(1 - power)
    needed = 1.0
    for _ in range(200):
        evidence = math.log(1 / alpha) + 0.5 * math.log(max(needed, 1.0))
        root = (reach * spread + math.sqrt((reach * spread) ** 2 + 4 * drift * evidence)) / (2 * drift)
        needed, before = root**2, needed
        if abs(needed - before) <= 1e-9 * needed:
            break
    return math.ceil(needed)


@dataclass(frozen=True)
class BinaryPooling:
    """Two answers, several levels, one common share: best weights of the levels, and what they and users' weights give.

    sampling: variance of the weighted estimate for a population behind the fleet. fleet: for the fleet itself when
    levels were given out at random. stratified: for the fleet when levels are weighted by their users.
    """

    weights: Floats
    sampling: float
    fleet: float
    stratified: float


def binary_pooling(users: Sequence[int], epsilons: Sequence[float], share: float) -> BinaryPooling:
    """Plan the pooling of binary answers over levels."""
    per_level = np.asarray(users, dtype=np.float64)
    noise = np.array([binary_variance(epsilon, 1) for epsilon in epsilons])
    total = float(per_level.sum())
    spread = share * (1.0 - share)
    information = per_level / (noise + spread)
    weights = information / information.sum()
    finite = total * spread / (total - 1.0) * (float(np.sum(weights**2 / per_level)) - 1.0 / total)
    return BinaryPooling(
        weights=weights,
        sampling=float(1.0 / information.sum()),
        fleet=finite + float(np.sum(weights**2 * noise / per_level)),
        stratified=float(np.sum(per_level * noise) / total**2),
    )


def grr_stratified_covariance(
    shares: ArrayLike, users: Sequence[int], epsilons: Sequence[float], *, population: Population
) -> Floats:
    """Return the covariance of the stratified estimate of GRR when level g holds users[g] people with shares[g]."""
    per_level = np.asarray(shares, dtype=np.float64)
    size = per_level.shape[1]
    sigma = np.array([REAL.grr(epsilon, size).slope for epsilon in epsilons])
    lie = np.array([REAL.grr(epsilon, size).lie for epsilon in epsilons])
    base = np.repeat(lie[:, None], size, axis=1)
    return stratified_covariance(sigma, base, per_level, np.asarray(users, dtype=np.float64), population)
