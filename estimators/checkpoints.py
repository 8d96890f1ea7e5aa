"""Bounds at checkpoints: valid over a window's life even where rungs or arrival times depend on the values.

The stratified estimate is unbiased whatever the rungs hold. Its bound is taken only when the information has grown by a
tenth, each time with a smaller part of alpha; in between, newcomers are assumed to be all of one kind. Checkpoints are
chosen from the numbers of users alone, never from answers, so that choosing them tells nothing about the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.bounds import check_alpha, clopper_pearson, one_sided_z

Floats = NDArray[np.float64]

GROWTH = 1.1
"""Checkpoints per tenth of information. Smaller: more checkpoints, each with less alpha; larger: older bounds."""


@dataclass(frozen=True)
class Checkpoint:
    """All that must be stored: write it with compare-and-set on `number`, so that no two workers spend one alpha.

    number counts checkpoints from 1; 0 is the beginning, when nothing is known. lower and upper hold for the `users`
    of that checkpoint; see `bounds_now`.
    """

    number: int
    users: int
    information: float
    lower: float
    upper: float


BEGINNING = Checkpoint(0, 0, 0.0, 0.0, 1.0)


def checkpoint_alpha(alpha: float, number: int) -> float:
    """Return the part of alpha for checkpoint `number` (from 1) when their number is open: 6 alpha / (pi k)^2."""
    check_alpha(alpha)
    return 6.0 * alpha / (math.pi * number) ** 2


def equal_alpha(alpha: float, least_information: float, most_information: float, *, growth: float = GROWTH) -> float:
    """Return alpha / K for a window whose users are all present, so that at most K checkpoints can come."""
    check_alpha(alpha)
    return alpha / (1 + math.floor(math.log(most_information / least_information) / math.log(growth)))


def reference_information(truth: ArrayLike, lie: ArrayLike, users: ArrayLike, threshold: float) -> float:
    """Return n^2 / sum_g n_g V_g with V_g the variance of one debiased answer at the fixed threshold.

    A function of the numbers of users alone. It can fall when users arrive on low rungs.
    """
    rows = np.stack([np.asarray(array, dtype=np.float64) for array in (truth, lie, users)])
    rows = rows[:, (rows[2] > 0) & (rows[0] != rows[1])]
    if rows.shape[1] == 0:
        return 0.0
    return float(rows[2].sum() ** 2 / np.sum(rows[2] * _one_answer(rows[0], rows[1], threshold)))


def advance(
    state: Checkpoint,
    truth: ArrayLike,
    lie: ArrayLike,
    ones: ArrayLike,
    users: ArrayLike,
    *,
    threshold: float,
    alpha_at: Callable[[int], float],
    minimum_users: int = 100,
    growth: float = GROWTH,
) -> Checkpoint:
    """Take the next checkpoint of one value if it is due, otherwise return `state` itself.

    Arrays [rung]: Pr(yes|yes), Pr(yes|no), yes answers, users. threshold is the alert's share, or 1 / values where
    there is none; it only sets the clock. alpha_at(k) is the error rate of each of the two bounds at checkpoint k.
    """
    rows = np.stack([np.asarray(array, dtype=np.float64) for array in (truth, lie, ones, users)])
    rows = rows[:, (rows[3] > 0) & (rows[0] != rows[1])]
    total = int(rows[3].sum())
    information = reference_information(rows[0], rows[1], rows[3], threshold)
    grown = information >= growth * state.information or total >= growth * state.users
    if total < max(minimum_users, 1) or (state.number > 0 and not grown):
        return state
    lower, upper = _bounds(rows[0], rows[1], rows[2], rows[3], alpha_at(state.number + 1))
    return Checkpoint(state.number + 1, total, information, lower, upper)


def bounds_now(state: Checkpoint, users: int) -> tuple[float, float]:
    """Return bounds of the share among the `users` of this moment: newcomers could all be no, or all yes.

    Fewer users than at the checkpoint means that counts are being rebuilt: nothing is claimed until they are back.
    """
    if state.number == 0 or users < state.users:
        return 0.0, 1.0
    known = state.users / users
    return max(state.lower, 0.0) * known, 1.0 - (1.0 - min(state.upper, 1.0)) * known


def _one_answer(truth: Floats, lie: Floats, share: float) -> Floats:
    return np.asarray((share * truth * (1.0 - truth) + (1.0 - share) * lie * (1.0 - lie)) / (truth - lie) ** 2)


def _bounds(truth: Floats, lie: Floats, ones: Floats, users: Floats, alpha: float) -> tuple[float, float]:
    total = float(users.sum())
    if len(users) == 1:
        ends = clopper_pearson(int(ones[0]), int(total), alpha)
        low, high = sorted(float((end - lie[0]) / (truth[0] - lie[0])) for end in ends)
        return low, high
    share = float(np.sum(users * (ones / users - lie) / (truth - lie)) / total)
    inside = min(max(share, 0.0), 1.0)
    reach = one_sided_z(alpha) * math.sqrt(float(np.sum(users * _one_answer(truth, lie, inside)))) / total
    return share - reach, share + reach
