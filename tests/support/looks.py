"""Many windows at once, looked at on every tick: users arrive in cohorts and climb rungs as they age.

The numbers of users are the same in all windows, so a window is a column of the counts and one call of an estimator
serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.response import REAL
from estimators.intervals.always_valid import YesNo
from estimators.papers.gradual_release import kernel

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Look:
    """What can be seen at one tick: the tally (windows are its values) and the true share of those present."""

    tally: YesNo
    truth: float


def binary_chains(
    values: NDArray[np.int64], epsilons: Sequence[float], generator: np.random.Generator
) -> NDArray[np.int8]:
    """Draw chains of binary answers from the top for values of any shape; shape (rungs, *values.shape)."""
    answers = np.empty((len(epsilons), *values.shape), dtype=np.int8)
    top = REAL.grr(epsilons[-1], 2)
    answers[-1] = values ^ (generator.random(values.shape) >= top.truth)
    for rung in range(len(epsilons) - 2, -1, -1):
        flip = kernel(epsilons[rung], epsilons[rung + 1], 2).different
        answers[rung] = answers[rung + 1] ^ (generator.random(values.shape) < flip)
    return answers


def climbing_windows(
    cohorts: Sequence[Any],
    epsilons: Sequence[float],
    rung_at: Callable[[int, int], int],
    windows: int,
    generator: np.random.Generator,
    *,
    ticks: int,
) -> Iterator[Look]:
    """Yield every look: cohort a (the ones and zeros of its users) arrives at tick a and sits on rung_at(a, age)."""
    chances = [REAL.grr(epsilon, 2) for epsilon in epsilons]
    truth, lie = [chance.truth for chance in chances], [chance.lie for chance in chances]
    sums = np.empty((len(cohorts), len(epsilons), windows), dtype=np.int32)
    for a, cohort in enumerate(cohorts):
        values = np.broadcast_to(np.asarray(cohort, dtype=np.int64)[:, None], (len(cohort), windows))
        sums[a] = binary_chains(values, epsilons, generator).sum(axis=1, dtype=np.int32)
    sizes, ones = np.array([len(cohort) for cohort in cohorts]), np.array([np.sum(cohort) for cohort in cohorts])
    for tick in range(ticks):
        present = min(tick + 1, len(cohorts))
        rungs = np.array([rung_at(a, tick - a) for a in range(present)])
        counts = np.stack([sums[:present][rungs == g, g].sum(axis=0) for g in range(len(epsilons))])
        users = np.array([sizes[:present][rungs == g].sum() for g in range(len(epsilons))])
        yield Look(YesNo.of(truth, lie, counts, users), float(ones[:present].sum() / sizes[:present].sum()))
