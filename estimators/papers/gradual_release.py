"""Gradual release in closed form (Pan): the step to a sharper answer, its kernel, and what sequences of answers tell.

Levels are real numbers in [0, inf] here; devices draw from the integers of
`estimators.channels.channel`. All forms are free of overflow and cancellation, which the printed ones are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import check_ladder
from estimators.channels.response import REAL
from estimators.channels.rows import channel_matrix

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """Transition probabilities from an answer at one level to the answer at a higher one (Pan, Eq. 50 and 54).

    a is the true value, b and c are others: truth_to_truth is Pr(a | previous a), lie_to_other is Pr(c | previous b)
    for each c. keep_truth and keep_lie are the probabilities of keeping the previous answer; otherwise a fresh one is
    drawn. An entry that the number of values leaves without meaning is None.
    """

    truth_to_truth: float
    truth_to_lie: float | None
    lie_to_truth: float | None
    lie_to_same: float | None
    lie_to_other: float | None
    keep_truth: float
    keep_lie: float


def _check_pair(lower: float, upper: float) -> None:
    check_ladder((lower, upper), highest=math.inf)


def step(lower: float, upper: float, size: int) -> Step:
    """Return the step from level `lower` to level `upper` over `size` values; equal levels give the identity."""
    _check_pair(lower, upper)
    if lower == upper:
        keep_truth = keep_lie = 1.0
        redraw_lie = 0.0
    else:
        whole = math.expm1(-upper)
        keep_truth = math.expm1(-lower) / whole
        keep_lie = math.exp(-(upper - lower)) * keep_truth
        redraw_lie = math.expm1(-(upper - lower)) / whole
    if size == 1:
        return Step(1.0, None, None, None, None, keep_truth, keep_lie)
    weight = (size - 1) * math.exp(-upper)
    truth_to_truth = (1.0 + weight * keep_truth) / (1.0 + weight) if lower < upper else 1.0
    lie_to_truth = redraw_lie / (1.0 + weight)
    return Step(
        truth_to_truth,
        math.exp(-(lower + upper)) * lie_to_truth if lower < upper else 0.0,
        lie_to_truth,
        math.exp(-(upper - lower)) * truth_to_truth if lower < upper else 1.0,
        None if size == 2 else math.exp(-upper) * lie_to_truth if lower < upper else 0.0,
        keep_truth,
        keep_lie,
    )


@dataclass(frozen=True)
class Kernel:
    """The degradation kernel of generalised randomized response: the answer at a lower level from one above it.

    With probability `retention` the answer stays, otherwise it is a uniform draw: K(b | b) is `same`, K(a | b)
    `different`.
    """

    size: int
    retention: float
    same: float
    different: float

    @property
    def epsilon(self) -> float:
        """Level of the kernel seen as a randomized response of its own."""
        return math.inf if self.different == 0 else math.log(self.same / self.different)

    @property
    def change(self) -> float:
        """Probability that the two answers differ, for every true value."""
        return (self.size - 1) * self.different

    def probability(self, lower: int, upper: int) -> float:
        """Return Pr(answer `lower` at the lower level | answer `upper` at the upper level)."""
        return self.same if lower == upper else self.different

    @property
    def matrix(self) -> Floats:
        """K[upper, lower]."""
        return np.full((self.size, self.size), self.different) + np.eye(self.size) * (self.same - self.different)


def kernel(lower: float, upper: float, size: int) -> Kernel:
    """Return the kernel from level `upper` down to level `lower`."""
    _check_pair(lower, upper)
    if lower == upper or size == 1:
        return Kernel(size, 1.0, 1.0, 0.0)
    different = math.expm1(-(upper - lower)) / math.expm1(-upper) * REAL.grr(lower, size).lie
    kept = REAL.grr(lower, size).slope / REAL.grr(upper, size).slope
    return Kernel(size, kept, kept + different, different)


def sequence_probability(ladder: Sequence[float], size: int, value: int, answers: Sequence[int]) -> float:
    """Return the probability of a whole sequence of answers, lowest level first, given the true value."""
    check_ladder(ladder, highest=math.inf)
    last = REAL.grr(ladder[-1], size).truth if answers[-1] == value else REAL.grr(ladder[-1], size).lie
    return last * math.prod(
        kernel(*levels, size).probability(*pair)
        for levels, pair in zip(pairwise(ladder), pairwise(answers), strict=True)
    )


def log_ratios(ladder: Sequence[float], size: int, value: int, answers: Sequence[int]) -> list[float]:
    """Return ln Pr(answers | value) / Pr(answers | x) for every x: that of the last answer alone (Pan, Lemma 3.1)."""
    check_ladder(ladder, highest=math.inf)
    agrees = (answers[-1] == value) - np.equal(np.arange(size), answers[-1]).astype(int)
    return [float(ladder[-1] * sign) if sign else 0.0 for sign in agrees]


def posterior(ladder: Sequence[float], size: int, answers: Sequence[int]) -> Floats:
    """Return Pr(value | all answers) under a uniform prior: that given the last answer alone (Pan, Theorem 4.1)."""
    check_ladder(ladder, highest=math.inf)
    return channel_matrix(ladder[-1], size)[:, answers[-1]]


def sequence_loss(ladder: Sequence[float], size: int) -> float:
    """Return the largest log ratio of any sequence of forward steps between two true values, from the steps themselves.

    A dynamic program over where the answer is: on the value, on the other value, elsewhere. It equals the last level
    (Pan, Property 3.6); this function exists to show it, and for ladders of more answers than can be enumerated.
    """
    check_ladder(ladder, highest=math.inf)
    if size == 1:
        return 0.0
    states = ("value", "rival", "elsewhere") if size > 2 else ("value", "rival")
    loss = {"value": ladder[0], "rival": -ladder[0], "elsewhere": 0.0}
    for lower, upper in pairwise(ladder):
        moves = step(lower, upper, size)
        after = dict.fromkeys(states, -math.inf)
        for before, now in product(states, states):
            for stays in (True, False) if before == now == "elsewhere" and size > 3 else (before == now,):
                up, down = (_move(moves, before, now, stays, own) for own in ("value", "rival"))
                if up > 0:
                    ratio = math.log(up / down) if down > 0 else math.inf
                    after[now] = max(after[now], loss[before] + ratio)
        loss = after
    return max(loss.values())


def _move(moves: Step, before: str, now: str, stays: bool, own: str) -> float:
    """Return the probability of a move for the person whose true value is `own`."""
    if before == own:
        return moves.truth_to_truth if now == own else moves.truth_to_lie or 0.0
    if now == own:
        return moves.lie_to_truth or 0.0
    return (moves.lie_to_same if stays else moves.lie_to_other) or 0.0


def step_guarantee(lower: float, upper: float, size: int) -> float:
    """Return the loss of one forward step by itself, without the answers before it (Pan, Eq. 61, corrected)."""
    _check_pair(lower, upper)
    return lower + upper if upper > lower and size > 1 else 0.0


def changed_value_loss(lower: float, upper: float, size: int) -> float:
    """Return what relaxing costs after the true value has changed: the reason why a new value needs a new chain."""
    return (lower if size > 1 else 0.0) + step_guarantee(lower, upper, size)


def redrawn_rounding_loss(lower: float, upper: float, *, points: int = 100) -> float:
    """Return the loss of relaxing a mean whose stochastic rounding is drawn anew: the reason why it is stored.

    The largest |log ratio| of two answers between a number at t = 0, 1/points, ..., 1 of its range and one at an end.
    """
    _check_pair(lower, upper)
    moves = step(lower, upper, 2)
    first = np.array([[REAL.grr(lower, 2).truth, REAL.grr(lower, 2).lie]])
    first = np.vstack([first, first[:, ::-1]])
    forward = np.empty((2, 2, 2))
    for value, before in product((0, 1), (0, 1)):
        to_truth = moves.truth_to_truth if before == value else moves.lie_to_truth or 0.0
        to_lie = (moves.truth_to_lie if before == value else moves.lie_to_same) or 0.0
        forward[value, before, value], forward[value, before, 1 - value] = to_truth, to_lie
    share = np.linspace(0.0, 1.0, points + 1)[:, None]
    weights = np.hstack([1 - share, share])
    joint = (weights @ first)[:, :, None] * np.einsum("tz,zab->tab", weights, forward)
    logs = np.log(joint)
    return float(max(np.abs(logs - logs[end]).max() for end in (0, -1)))


def bridge(levels: tuple[float, float, float], size: int, lowest: int, highest: int) -> Floats:
    """Return the law of the answer at the middle level given those below and above it; the true value is not needed."""
    check_ladder(levels, highest=math.inf)
    below, above, across = (kernel(*pair, size) for pair in (levels[:2], levels[1:], levels[::2]))
    scale = across.probability(lowest, highest)
    return np.array(
        [below.probability(lowest, y) * above.probability(y, highest) / scale for y in range(size)], dtype=np.float64
    )
