"""Key-value responses as published (Ma & Wang; Gu et al.): allocations, losses, item totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from estimators.channels.response import REAL
from estimators.channels.rows import loss_of_rows
from estimators.inference.key_value import (
    KeyValueEstimate,
    KeyValueParameters,
    key_value_moments,
)


def value_response(value: float, epsilon: float) -> float:
    """Return Pr(+1) when a value in [-1, 1] is rounded to a sign and the sign told at `epsilon` (VPP)."""
    return 0.5 + value / 2.0 * math.tanh(epsilon / 2.0)


def value_unbias_factor(epsilon: float) -> float:
    """Return by what the mean sign must be multiplied to be unbiased for the mean value."""
    return 1.0 / math.tanh(epsilon / 2.0)


def lpp_parameters(epsilon_key: float, epsilon_value: float) -> KeyValueParameters:
    """Return the probabilities of LPP, with a random or a zero fake value alike (they are one channel)."""
    p1 = REAL.grr(epsilon_key, 2).truth
    return KeyValueParameters(p1, p1, REAL.grr(epsilon_value, 2).truth)


def lpp_split(epsilon: float) -> tuple[float, float]:
    """Return the best split (eps1, eps2) of a total: eps2 = eps, eps1 = ln((e^eps + 1) / 2)."""
    # ln((e^eps + 1)/2) without overflow, and exact near 0.
    return epsilon + math.log1p(math.expm1(-epsilon) / 2.0), epsilon


def other_convention(b: float) -> float:
    """Return Ma & Wang's b (a foreign position stays 0) as Gu et al.'s (it is invented), or back: 1 - b."""
    return 1.0 - b


def pckv_losses(a: float, b: float, p: float) -> tuple[float, float]:
    """Return (eps1, eps2) of PCKV-UE: a keeps the sampled key, b invents one, p keeps the sign (as in Gu et al.)."""
    return math.log(a * (1.0 - b) / (b * (1.0 - a))), math.log(p / (1.0 - p))


def pckv_allocation(epsilon: float) -> tuple[float, float, float]:
    """Return (a, b, p) for a total: a = 1/2, b = 2 / (e^eps + 3), p = e^eps / (e^eps + 1)."""
    return 0.5, 2.0 * math.exp(-epsilon) / (1.0 + 3.0 * math.exp(-epsilon)), REAL.grr(epsilon, 2).truth


def pckv_parameters(a: float, b: float, p: float) -> KeyValueParameters:
    """Return the channel of one position of PCKV-UE."""
    return KeyValueParameters(1.0 - b, a, p)


def pckv_position_loss(a: float, b: float, p: float) -> float:
    """Return the loss of the 3x3 matrix of one position alone; less than the loss of the whole vector."""
    return loss_of_rows(pckv_parameters(a, b, p).rows.tolist())


def key_value_theory(
    share: ArrayLike, total: ArrayLike, number: int, parameters: KeyValueParameters
) -> KeyValueEstimate:
    """Return true shares and totals with the theoretical covariance of their estimates from `number` respondents."""
    moments = key_value_moments(share, total, parameters)
    return KeyValueEstimate(
        np.asarray(share, dtype=np.float64), np.asarray(total, dtype=np.float64), *(m / number for m in moments)
    )


@dataclass(frozen=True)
class ItemTotals:
    """Degree (people with the item) and weight (sum of their values) of one item, by two estimators."""

    degree_ratio: float
    weight_ratio: float
    degree_inflated: float
    """Horvitz-Thompson: unbiased whatever number of people happened to be asked about this item."""
    weight_inflated: float


def item_totals(estimate: KeyValueEstimate, users: int, items: int, asked: int) -> ItemTotals:
    """Scale estimates from the `asked` people who drew this item up to all `users`; the ratio form is the better."""
    share, total = float(estimate.share), float(estimate.total)
    return ItemTotals(users * share, users * total, items * asked * share, items * asked * total)


@dataclass(frozen=True)
class ItemVariances:
    """Variances of `ItemTotals` for a fixed population in which each person draws one of the items."""

    degree_inflated: float
    degree_ratio: float
    weight_inflated: float
    weight_ratio: float


def item_variances(
    users: int, items: int, degree: float, weight: float, squared_weight: float, parameters: KeyValueParameters
) -> ItemVariances:
    """Return the variances; needs p1 = p2 (LPP). squared_weight is the sum of squared values."""
    p1, share = parameters.p1, degree / users
    noise = users * items * p1 * (1.0 - p1) / (2.0 * p1 - 1.0) ** 2
    second_moment = (p1 * degree + (1.0 - p1) * (users - degree)) / parameters.sign**2
    weight_inflated = items * second_moment - squared_weight
    return ItemVariances(
        degree_inflated=noise + (items - 1) * degree,
        degree_ratio=noise + (items - 1) * users * share * (1.0 - share),
        weight_inflated=weight_inflated,
        weight_ratio=weight_inflated - (items - 1) * weight**2 / users,
    )


def printed_graph_average(users: int, totals: Sequence[float]) -> float:
    """Return Ma & Wang's Eq. 6, which divides by the edges of a complete graph: a density, not an average degree."""
    vertices = users + len(totals)
    return math.fsum(totals) / (vertices * (vertices - 1) / 2.0)
