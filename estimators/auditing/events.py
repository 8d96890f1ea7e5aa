"""Empirical lower bounds on epsilon, from how often events happen under one value and under another one.

Two attacks share the error rate. The *paired* one puts chains of different values together in pairs and counts how
often the last answer, and how often all answers together, speak for a chain's own value and how often for its
partner's: the best events of the declared law and of levels that are drawn independently, and all chains count. The
*learned* one chooses an event on one half of the chains and counts it on the other half.
Its events are sets of patterns: per level whether the answer speaks for one value, strongly or weakly, for the other,
or for neither. So a device that reveals more than it declares, in any combination of levels, is attacked where it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.bounds import epsilon_lower_bounds
from estimators.auditing.transcripts import Ints

Floats = NDArray[np.float64]

_CODES = 5
"""Patterns of one level: strongest for the value, weaker, neither, weaker against, strongest against."""
_DIGITS = 9
_ROUNDING = 1e-9


@dataclass(frozen=True)
class EpsilonBound:
    """A lower bound on the epsilon of some levels together, and the event that gave it."""

    lower: float
    value: int | None
    """None: every value against that of its partner."""
    other: int | None
    """None: all other values."""
    hits: int
    trials: int
    other_hits: int
    other_trials: int


def epsilon_bound(
    logs: Sequence[Floats],
    covered: NDArray[np.bool_],
    truths: Ints,
    learning: NDArray[np.bool_],
    strongest: Sequence[float],
    alpha: float,
) -> EpsilonBound:
    """Return a lower bound on the epsilon of the levels whose ln Pr(answer | value) [row, value] are `logs`.

    It is wrong with probability at most alpha. covered: rows whose last answer the guarantee covers; only they may be
    part of an event. learning: the rows on which events are chosen that are counted on the others. strongest: per
    level the largest difference of `logs` that the declared law allows.
    """
    found = [
        *_paired(logs[-1], covered, truths, strongest[-1], alpha / 4),
        *_paired(np.sum(logs, axis=0), covered, truths, sum(strongest), alpha / 4),
        _learned(logs, covered, truths, learning, alpha / 2),
    ]
    return max(found, key=lambda bound: bound.lower)


def _paired(
    log: Floats, covered: NDArray[np.bool_], truths: Ints, strongest: float, alpha: float
) -> list[EpsilonBound]:
    """Return bounds from pairs of chains with different values, for strong answers and for all that speak for a value.

    With E(a, b) the event that an answer speaks for a and against b, Pr(E(a, b) | a) <= e^epsilon Pr(E(a, b) | b). In
    pairs every (a, b) comes as often as (b, a), so the inequality holds for the sums. Both are sums of independent
    trials, whose Clopper-Pearson bounds hold on average (Hoeffding 1956).
    """
    rows, partners = _partners(truths)
    with np.errstate(invalid="ignore"):
        gap = log[rows, truths[rows]] - log[rows, truths[partners]]
    gap = np.where(covered[rows], np.nan_to_num(gap, nan=0.0, posinf=1e9, neginf=-1e9), 0.0)
    found = []
    for least in (strongest * (1.0 - _ROUNDING), _ROUNDING):
        hits, other_hits = int(np.sum(gap >= least)), int(np.sum(gap <= -least))
        lower = float(epsilon_lower_bounds([hits], len(rows), [other_hits], len(rows), alpha / 2)[0])
        found.append(EpsilonBound(lower, None, None, hits, len(rows), other_hits, len(rows)))
    return found


def _partners(truths: Ints) -> tuple[Ints, Ints]:
    """Return rows and the partner of each, which has another value and the row as its own partner."""
    order = np.argsort(truths, kind="stable")
    counts = np.bincount(truths) if len(truths) else np.zeros(1, dtype=np.int64)
    most, total = int(counts.max()), len(truths)
    # Half of the rows away no row has the same value, if no value has more than half of them: leave out the excess.
    if 2 * most > total:
        first = int(counts[: int(np.argmax(counts))].sum())
        order = np.delete(order, slice(first, first + 2 * most - total))
    half = len(order) // 2
    left, right = order[:half], order[half : 2 * half]
    return np.concatenate([left, right]), np.concatenate([right, left])


def _learned(
    logs: Sequence[Floats], covered: NDArray[np.bool_], truths: Ints, learning: NDArray[np.bool_], alpha: float
) -> EpsilonBound:
    """Return the bound of the event that looked best on the rows of `learning`, from the other rows."""
    best: tuple[float, int, int | None, Ints, Ints] | None = None
    for value, other, cells in _patterns(logs, covered, truths, learning):
        inside = truths == value
        outside = ~inside if other is None else truths == other
        chosen = _choose(cells, inside & learning, outside & learning, alpha)
        if chosen is not None and (best is None or chosen[0] > best[0]):
            best = (chosen[0], value, other, cells, chosen[1])
    if best is None:
        return EpsilonBound(0.0, None, None, 0, 0, 0, 0)
    _, value, other, cells, event = best
    happened = np.isin(cells, event)
    inside = (truths == value) & ~learning
    outside = (truths != value if other is None else truths == other) & ~learning
    hits, other_hits = int(np.sum(happened & inside)), int(np.sum(happened & outside))
    trials, other_trials = int(inside.sum()), int(outside.sum())
    lower = float(epsilon_lower_bounds([hits], trials, [other_hits], other_trials, alpha)[0])
    return EpsilonBound(lower, value, other, hits, trials, other_hits, other_trials)


def _patterns(
    logs: Sequence[Floats], covered: NDArray[np.bool_], truths: Ints, learning: NDArray[np.bool_]
) -> Iterator[tuple[int, int | None, Ints]]:
    """Return for every value and other value, and for every value against all others, the pattern of each row."""
    values = logs[0].shape[1]
    present = np.bincount(truths, minlength=values) > 0
    for value in np.flatnonzero(present).tolist():
        for other in (None, *np.flatnonzero(present).tolist()):
            if other == value or (other is None and values == 2):
                continue
            cells = np.zeros(len(truths), dtype=np.int64)
            for log in logs:
                rival = np.delete(log, value, axis=1).max(axis=1) if other is None else log[:, other]
                cells = cells * _CODES + _codes(log[:, value], rival, learning)
            yield value, other, np.where(covered, cells, -1)


def _codes(log: Floats, rival: Floats, learning: NDArray[np.bool_]) -> Ints:
    """Return how strongly each answer speaks for a value and against its rival, as a number from 0 to 4.

    What is strongest is learned too: it must not depend on the rows that are counted.
    """
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(log - rival, nan=0.0, posinf=1e9, neginf=-1e9).round(_DIGITS)
    strongest, weakest = gap[learning].max(initial=0.0), gap[learning].min(initial=0.0)
    codes = np.full(len(gap), 2, dtype=np.int64)
    codes[gap > 0] = 1
    codes[gap < 0] = 3
    codes[(gap >= strongest) & (gap > 0)] = 0
    codes[(gap <= weakest) & (gap < 0)] = 4
    return codes


def _choose(
    cells: Ints, inside: NDArray[np.bool_], outside: NDArray[np.bool_], alpha: float
) -> tuple[float, Ints] | None:
    """Return the union of patterns with the highest lower bound on these rows, and that bound; None without rows."""
    found = np.unique(cells[(inside | outside) & (cells >= 0)])
    trials, other_trials = int(inside.sum()), int(outside.sum())
    if not len(found) or not trials or not other_trials:
        return None
    hits = _count(cells[inside], found)
    other_hits = _count(cells[outside], found)
    ratio = (hits + 0.5) / (trials + 1.0) / ((other_hits + 0.5) / (other_trials + 1.0))
    order = np.argsort(-ratio, kind="stable")
    bounds = epsilon_lower_bounds(np.cumsum(hits[order]), trials, np.cumsum(other_hits[order]), other_trials, alpha)
    last = int(np.argmax(bounds))
    return float(bounds[last]), found[order[: last + 1]]


def _count(cells: Ints, found: Ints) -> Ints:
    cells = cells[cells >= 0]
    return np.asarray(np.bincount(np.searchsorted(found, cells), minlength=len(found)), dtype=np.int64)
