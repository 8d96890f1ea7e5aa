"""What an estimator returns: never only a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Method = Literal["pooled", "stratified", "mle"]
Population = Literal["fleet", "sampling"]
"""fleet: the spread around the true shares of the devices that answered. sampling: those devices are a random sample
of a larger population, whose shares are meant."""


DerivedKind = Literal["share", "mean", "total"]
"""share: between 0 and 1. mean: an average in a unit of its own. total: a sum over all devices."""


@dataclass(frozen=True)
class Derived:
    """One number that follows from the estimates of all labels together; NaN where it cannot be estimated."""

    name: str
    kind: DerivedKind
    meaning: str
    """Completes the sentence: this is the ..."""
    value: float
    variance: float
    lower: float
    upper: float


ViewName = Literal["threshold", "simplex", "likelihood"]


@dataclass(frozen=True)
class View:
    """The shares of all values seen as a distribution: biased, and often closer to the truth as a whole.

    threshold: significant values as they are, the others share what is left equally. simplex: the nearest distribution.
    likelihood: the most likely distribution, from every report.
    """

    name: ViewName
    shares: Floats
    kept: NDArray[np.bool_] | None = None
    """Of threshold: which values are significant."""
    distance: float | None = None
    """Simulated mean distance from the truth in total variation, for shares and errors like these; None: not known."""
    unbiased_distance: float | None = None
    """The same of the estimate itself."""


@dataclass(frozen=True)
class Unexplained:
    """The share of devices whose string is none of the candidates, with the interval at level 1 - alpha."""

    share: float
    variance: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Estimates:
    """Estimated shares (or means) with their uncertainty, one entry per label.

    value is unbiased and may leave [0, 1]; an entry that cannot be estimated is NaN in all arrays and null in JSON.
    lower and upper are the per-value interval at level 1 - alpha; simultaneous_* holds for all values at once.
    """

    labels: tuple[str, ...]
    value: Floats
    variance: Floats
    lower: Floats
    upper: Floats
    users: int
    method: str
    population: Population
    alpha: float
    simultaneous_lower: Floats | None = None
    simultaneous_upper: Floats | None = None
    homogeneity_p: float | None = None
    """p-value of the test that all rungs see the same shares; None where there is nothing to test."""
    notes: tuple[str, ...] = field(default=())
    unexplained: Unexplained | None = None
    """What the candidates of an open list leave over; None where there is no such list."""
    derived: tuple[Derived, ...] = ()

    def table(self) -> dict[str, list[str] | Floats]:
        """Return columns with one entry per label, named as in `thaw estimates --format csv`.

        `pandas.DataFrame(estimates.table())` is a data frame. Bounds for all values at once are left out where there
        are none.
        """
        columns: dict[str, list[str] | Floats] = {
            "value": list(self.labels),
            "estimate": self.value,
            "variance": self.variance,
            "lower": self.lower,
            "upper": self.upper,
        }
        if self.simultaneous_lower is not None and self.simultaneous_upper is not None:
            columns["simultaneous_lower"] = self.simultaneous_lower
            columns["simultaneous_upper"] = self.simultaneous_upper
        return columns
