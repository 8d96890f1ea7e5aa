"""Verdicts by exact binomial tails, with a stated false-alarm rate of the whole suite.

One window gives one trial per class of values: of the values of a class, one is looked at, another one in the next
window. So trials are independent, and their number of hits is at most as spread as a binomial with the mean coverage.
A cell that looks doubtful goes on: its windows so far count, and some more. That so many windows miss has at most the
stated probability at each stage, whether or not the cell would have reached it, so a level per stage is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

LEAST, MOST, LEAST_ALL = 0.935, 0.985, 0.94
"""Coverage of bands of 95 % must lie between LEAST and MOST, of all bands at once not below LEAST_ALL."""
TOO_WIDE_LEVEL = 1e-3
"""A class whose coverage is at most MOST is called above with at most this probability."""


class Stage(NamedTuple):
    """How many windows a cell has by now, and when it gets those of the next stage as well."""

    windows: int
    low: float = 0.0
    """Coverage below which more windows are needed to say whether the cell is below."""
    high: float = 1.0
    """Coverage above which more windows are needed to say whether it is above."""


Stages = tuple[Stage, ...]
LONG: Stages = (
    Stage(64, 0.91, 0.99),
    Stage(160, 0.92, 0.99),
    Stage(500, 0.93, 0.99),
    Stage(1_000, 0.932),
    Stage(2_500, 0.934),
    Stage(6_000),
)
NAMED: Stages = (Stage(600, 0.94, 0.99), Stage(1_000, 0.938), Stage(2_500, 0.935), Stage(6_000))
"""Cells in which bands were seen to fail are looked at for longer."""
SHORT: Stages = (Stage(24, 0.9), Stage(200))
"""The short form does not look for bands that are too wide: that takes more windows than it has time for."""


@dataclass(frozen=True)
class Hits:
    """In how many trials a statement held."""

    trials: int
    held: int

    @property
    def rate(self) -> float:
        """Part of the trials in which it held; 1 without trials."""
        return self.held / self.trials if self.trials else 1.0

    def significantly_below(self, rate: float, level: float) -> bool:
        """Tell whether so few hits have a probability below `level` if the true rate is at least `rate`."""
        return self.trials > 0 and float(stats.binom.cdf(self.held, self.trials, rate)) < level

    def significantly_above(self, rate: float, level: float) -> bool:
        """Tell whether so many hits have a probability below `level` if the true rate is at most `rate`."""
        return self.trials > 0 and float(stats.binom.sf(self.held - 1, self.trials, rate)) < level

    @property
    def text(self) -> str:
        """The rate with three digits, - without trials."""
        return f"{self.rate:.3f}" if self.trials else "-"

    def __add__(self, other: Hits) -> Hits:
        return Hits(self.trials + other.trials, self.held + other.held)


NO_TRIALS = Hits(0, 0)


def power(coverage: float, stages: Stages, level: float) -> float:
    """Return the probability that a class with this true coverage is reported as below LEAST."""
    reported, before = 0.0, 0
    # Probabilities of 0, 1, ... misses so far, with the cell still going on.
    open_ = np.ones(1)
    for stage in stages:
        further = stage.windows - before
        open_ = np.convolve(open_, stats.binom.pmf(np.arange(further + 1), further, 1.0 - coverage))
        hits = stage.windows - np.arange(len(open_))
        below = hits <= _most_below(stage.windows, level)
        reported += float(open_[below].sum())
        open_[below | (hits >= stage.low * stage.windows)] = 0.0
        before = stage.windows
    return reported


def least_reported(trials: int, rate: float, level: float) -> float:
    """Return the smallest rate of so many trials that is significantly above `rate`; 1 if none is."""
    found = int(stats.binom.isf(level, trials, rate)) + 1
    return min(found / trials, 1.0)


def _most_below(windows: int, level: float) -> int:
    """Return the largest number of hits that is significantly below LEAST; -1 if none is."""
    found = int(stats.binom.ppf(level, windows, LEAST))
    while found >= 0 and not Hits(windows, found).significantly_below(LEAST, level):
        found -= 1
    return found
