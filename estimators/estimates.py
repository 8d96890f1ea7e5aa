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
