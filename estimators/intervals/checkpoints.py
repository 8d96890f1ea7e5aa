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
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import check_alpha
from estimators.intervals.rung_shares import stratified_ends

Floats = NDArray[np.float64]

GROWTH = 1.1
"""Checkpoints per tenth of information. Smaller: more checkpoints, each with less alpha; larger: older bounds."""


@dataclass(frozen=True)
class Checkpoint:
    """All that must be stored: write it with compare-and-set on `number`, so that no two workers spend one alpha.

    number counts checkpoints from 1; 0 is the beginning, when nothing is known. lower and upper, one entry per value,
    hold for the `users` of that checkpoint; see `bounds_now`.
    """

    number: int
    users: int
    information: float
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    @classmethod
    def beginning(cls, values: int) -> Checkpoint:
        """Return the state before the first checkpoint."""
        return cls(0, 0, 0.0, (0.0,) * values, (1.0,) * values)


def checkpoint_alpha(alpha: float, number: int) -> float:
    """Return the part of alpha for checkpoint `number` (from 1) when their number is open: 6 alpha / (pi k)^2."""
    check_alpha(alpha)
    return 6.0 * alpha / (math.pi * number) ** 2


def reference_information(tally: YesNo, threshold: float) -> float:
    """Return n^2 / sum_g n_g V_g with V_g the variance of one debiased answer at a fixed share, averaged over values.

    A function of the numbers of users alone. It can fall when users arrive on low rungs.
    """
    used = _informative(tally)
    if not used.any():
        return 0.0
    spread = _one_answer(tally.truth[used], tally.lie[used], np.full(tally.values, threshold))
    mean = np.where(np.isfinite(spread), spread, 0.0).sum(axis=1) / np.maximum(np.isfinite(spread).sum(axis=1), 1)
    users = _common_users(tally)[used]
    return float(users.sum() ** 2 / np.sum(users * mean)) if np.any(mean > 0) else math.inf


def due(
    state: Checkpoint, tally: YesNo, *, threshold: float, minimum_users: int = 100, growth: float = GROWTH
) -> tuple[int, float] | None:
    """Return users and information of the next checkpoint if it is due, else None. Answers are not looked at."""
    total = int(_common_users(tally)[_informative(tally)].sum())
    information = reference_information(tally, threshold)
    grown = information >= growth * state.information or total >= growth * state.users
    if total < max(minimum_users, 1) or (state.number > 0 and not grown):
        return None
    return total, information


def advance(
    state: Checkpoint,
    tally: YesNo,
    *,
    threshold: float,
    alpha_at: Callable[[int], float],
    population: Population,
    minimum_users: int = 100,
    growth: float = GROWTH,
) -> Checkpoint:
    """Take the next checkpoint if it is due, otherwise return `state` itself.

    threshold is the alert's share, or 1 / values where there is none; it only sets the clock, which all values share.
    alpha_at(k) is the error rate of each bound of each value at checkpoint k. population says whose share is meant, and
    so what scatters; a mechanism may scatter as a sample in any case (`Estimator.answer_law`).
    """
    now = due(state, tally, threshold=threshold, minimum_users=minimum_users, growth=growth)
    if now is None:
        return state
    total, information = now
    lower, upper = bounds(tally, alpha_at(state.number + 1), population)
    return Checkpoint(state.number + 1, total, information, tuple(lower.tolist()), tuple(upper.tolist()))


def bounds_now(state: Checkpoint, users: int) -> tuple[Floats, Floats]:
    """Return bounds of the shares among the `users` of this moment: newcomers could all be no, or all yes.

    `users` counts the same rungs as the checkpoints do: those that carry information. Fewer users than at the
    checkpoint means that counts are being rebuilt: nothing is claimed until they are back.
    """
    if state.number == 0 or users < state.users:
        return np.zeros(len(state.lower)), np.ones(len(state.upper))
    known = state.users / users
    lower, upper = np.array(state.lower), np.array(state.upper)
    return np.maximum(lower, 0.0) * known, 1.0 - (1.0 - np.minimum(upper, 1.0)) * known


def _informative(tally: YesNo) -> NDArray[np.bool_]:
    return np.asarray((_common_users(tally) > 0) & np.any(tally.truth != tally.lie, axis=1))


def _common_users(tally: YesNo) -> Floats:
    if tally.values and np.any(np.ptp(tally.users, axis=1) > 0):
        raise ValueError("checkpoints need the same users for all values: their clock counts users, not answers")
    return np.asarray(tally.users[:, 0])


def _one_answer(truth: Floats, lie: Floats, shares: Floats) -> Floats:
    """Return the variance of one debiased answer [rung, value]; infinite where an answer tells nothing."""
    noise = shares * truth * (1.0 - truth) + (1.0 - shares) * lie * (1.0 - lie)
    squared = (truth - lie) ** 2
    return np.asarray(np.divide(noise, squared, out=np.full_like(noise, np.inf), where=squared > 0))


def bounds(tally: YesNo, alpha: float, population: Population) -> tuple[Floats, Floats]:
    """Return bounds of the share among all users, or in their population; each is wrong with probability alpha at most.

    Every rung enters with the variance of its own share: where rungs depend on values, no rung has the overall share.
    """
    tally = tally.rungs(_informative(tally))
    blind = np.any(tally.truth == tally.lie, axis=0)
    # A two-sided interval at alpha: its error on either side is no more.
    lower, upper = stratified_ends(tally, alpha=alpha, population=population)
    return np.where(blind, 0.0, lower), np.where(blind, 1.0, upper)
