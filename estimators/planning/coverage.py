"""How often bands hold: draw the answers of the same people again and again, and count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Floats, Method
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.intervals.one_look import clopper_pearson_array
from estimators.mechanism import Specification
from estimators.mechanisms.perturbation import perturb
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import tally_of


@dataclass(frozen=True, eq=False)
class Coverage:
    """How many of `runs` bands of each label held the truth, and what was estimated: arrays [label]."""

    labels: tuple[str, ...]
    truth: Floats
    runs: int
    inside: NDArray[np.int64]
    mean: Floats
    """Of the estimates over all runs; an unbiased estimator is close to the truth."""
    deviation: Floats
    """Of the estimates over all runs."""
    alpha: float

    @property
    def rate(self) -> Floats:
        """Share of the bands that held the truth; 1 - alpha is promised."""
        return np.asarray(self.inside / self.runs)

    def bounds(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """Return exact two-sided bounds of the true rate, per label (Clopper-Pearson)."""
        return clopper_pearson_array(self.inside.astype(np.float64), float(self.runs), alpha / 2)


def coverage(
    specification: Specification,
    values: Iterable[Any],
    *,
    runs: int = 1_000,
    rungs: int | NDArray[np.int64] = -1,
    method: Method = "pooled",
    alpha: float = 0.05,
    seed: int = 1,
) -> Coverage:
    """Randomize the same people `runs` times and count how often each band holds their true quantity.

    rungs is the rung of all people, or one entry per person. The people are fixed (population `fleet`); only the
    answers are drawn again. The same seed gives the same result.
    """
    if runs < 2:
        raise ValueError(f"runs must be at least 2; got {runs}")
    people = list(values)
    truth = simulator_of(specification).truth(people)
    estimator = estimator_of(specification)
    found = np.empty((runs, len(truth)))
    inside = np.zeros(len(truth), dtype=np.int64)
    for run in range(runs):
        drawn = perturb(specification, people, SeededBits(seed, "coverage", run))
        estimates = estimator.estimate(tally_of(specification, drawn, rungs), method=method, alpha=alpha)
        found[run] = estimates.value
        inside += (estimates.lower <= truth) & (truth <= estimates.upper)
    return Coverage(specification.labels, truth, runs, inside, found.mean(axis=0), found.std(axis=0, ddof=1), alpha)
