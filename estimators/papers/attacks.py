"""What an attacker gains from a whole sequence of answers: nothing beyond the last one (Pan, section 6)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from estimators.channels.chain import check_ladder
from estimators.channels.response import REAL
from estimators.channels.rows import channel_matrix
from estimators.papers.gradual_release import Step, step

# Score of the true value, score of the value answered last (None: the true value itself), and the other positive
# scores in rising order. Values without a score are alike and need no entry.
_State = tuple[int, int | None, tuple[int, ...]]


def last_answer_error(epsilon: float, size: int) -> float:
    """Return the error rate of guessing the last answer: the least possible under a uniform prior."""
    return (size - 1) * REAL.grr(epsilon, size).lie


def likelihood_error(ladder: Sequence[float], size: int) -> float:
    """Return the error rate of the most likely value given all answers: by Lemma 3.1 that is the last answer."""
    check_ladder(ladder, highest=math.inf)
    return last_answer_error(ladder[-1], size)


def bayes_error(prior: Sequence[float], epsilon: float) -> float:
    """Return the least possible error rate of an attacker who knows the prior."""
    joint = np.asarray(prior)[:, None] * channel_matrix(epsilon, len(prior))
    return float(1.0 - joint.max(axis=0).sum())


def frequency_error(ladder: Sequence[float], size: int, weights: Sequence[float] | None = None) -> float:
    """Return the exact error rate of guessing the most frequent answer of a sequence, ties broken at random.

    With weights the answer of round i counts weights[i]. The program runs over scores, not over sequences: ten rounds
    with five values are some ten thousand states instead of ten million sequences.
    """
    check_ladder(ladder, highest=math.inf)
    points = _integer_weights([1] * len(ladder) if weights is None else weights)
    if len(points) != len(ladder):
        raise ValueError(f"{len(ladder)} rounds need as many weights; got {len(points)}")
    if size == 1:
        return 0.0
    states: dict[_State, float] = {
        (points[0], None, ()): REAL.grr(ladder[0], size).truth,
        (0, points[0], ()): (size - 1) * REAL.grr(ladder[0], size).lie,
    }
    for (lower, upper), point in zip(pairwise(ladder), points[1:], strict=True):
        states = _advance(states, step(lower, upper, size), size, point)
    return math.fsum(probability * (1 - _hit(state, size)) for state, probability in states.items())


def _integer_weights(weights: Sequence[float]) -> list[int]:
    """Return integers in the same proportions: sums of floats would break exact ties."""
    fractions = [Fraction(repr(float(weight))) for weight in weights]
    common = math.lcm(*(fraction.denominator for fraction in fractions))
    return [int(fraction * common) for fraction in fractions]


def _advance(states: dict[_State, float], moves: Step, size: int, point: int) -> dict[_State, float]:
    after: dict[_State, float] = defaultdict(float)
    for (own, current, others), probability in states.items():
        if current is None:
            pool, to_truth, to_each = others, moves.truth_to_truth, moves.truth_to_lie or 0.0
            after[own + point, None, others] += probability * to_truth
        else:
            pool, to_truth, to_each = others, moves.lie_to_truth or 0.0, moves.lie_to_other or 0.0
            after[own + point, None, _with(others, current)] += probability * to_truth
            after[own, current + point, others] += probability * (moves.lie_to_same or 0.0)
        if to_each == 0:
            continue
        left_behind = (lambda rest: rest) if current is None else (lambda rest, score=current: _with(rest, score))
        untouched = size - 1 - len(pool) - (current is not None)
        if untouched:
            after[own, point, left_behind(pool)] += probability * to_each * untouched
        for score in set(pool):
            target = (own, score + point, left_behind(_without(pool, score)))
            after[target] += probability * to_each * pool.count(score)
    return after


def _with(scores: tuple[int, ...], score: int) -> tuple[int, ...]:
    return tuple(sorted((*scores, score))) if score else scores


def _without(scores: tuple[int, ...], score: int) -> tuple[int, ...]:
    place = scores.index(score)
    return scores[:place] + scores[place + 1 :]


def _hit(state: _State, size: int) -> float:
    own, current, others = state
    rivals = others if current is None else (*others, current)
    best = max((own, *rivals))
    if own < best:
        return 0.0
    tied = sum(score == best for score in rivals) if best else size - 1
    return 1.0 / (1 + tied)
