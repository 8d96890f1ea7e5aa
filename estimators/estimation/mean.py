"""The mean of bounded numbers, from the share of devices whose number was rounded to the upper end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from estimators.estimates import Derived, Estimates, Floats, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.pooling import pool_retention
from estimators.intervals.always_valid import YesNo
from estimators.mechanisms.mean import Mean
from estimators.tally import Tally


class MeanEstimator(Estimator[Mean]):
    """The mean of clipped numbers, and of their squares where devices were asked about those."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the mean, from the share of devices whose rounded end is `high`.

        The spread of the rounding depends on numbers that are not reported. It is at most that of a two-point
        distribution with the same mean, and that is charged, so intervals for this fleet are conservative. That also
        covers the drawing of the devices that are asked about the number and about its square.
        """
        parts = [self._moment(tally, at, method, population, alpha) for at in range(self.specification.moments)]
        if len(parts) == 1:
            return parts[0]
        if len({part.method for part in parts}) > 1:
            # The rungs contradict each other in one half: they are not pooled in the other either.
            parts = [self._moment(tally, at, "stratified", population, alpha) for at in range(len(parts))]
        joint = [self._moment(tally, at, parts[0].method, population, alpha / 2) for at in range(len(parts))]  # type: ignore[arg-type]  # a method that was used
        tested = [part.homogeneity_p for part in parts if part.homogeneity_p is not None]
        return Estimates(
            labels=self.specification.labels,
            value=_joined(parts, "value"),
            variance=_joined(parts, "variance"),
            lower=_joined(parts, "lower"),
            upper=_joined(parts, "upper"),
            users=sum(part.users for part in parts),
            method=parts[0].method,
            population=population,
            alpha=alpha,
            simultaneous_lower=_joined(joint, "lower"),
            simultaneous_upper=_joined(joint, "upper"),
            homogeneity_p=min(1.0, len(tested) * min(tested)) if tested else None,
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            derived=_spread(joint[0], joint[1]),
        )

    def _moment(self, tally: Tally, at: int, method: Method, population: Population, alpha: float) -> Estimates:
        """Estimate the mean of the numbers (0) or of their squares (1) from the devices that were asked about it."""
        mean = self.specification
        ends = pool_retention(
            ("low", "high"),
            mean.chain.retention_channels,
            tally.counts[:, at],
            tally.users[:, at],
            method=method,
            population=self.answer_law(population),
            alpha=alpha,
        )
        low, high = mean.ranges[at]
        lower, upper = (low + (high - low) * side[1:] for side in (ends.lower, ends.upper))
        return replace(
            ends,
            labels=mean.labels[at : at + 1],
            value=low + (high - low) * ends.value[1:],
            variance=(high - low) ** 2 * ends.variance[1:],
            lower=lower,
            upper=upper,
            population=population,
            simultaneous_lower=lower,
            simultaneous_upper=upper,
        )

    def answer_law(self, population: Population) -> Population:  # noqa: ARG002  # the same for both
        """Charge the rounding of every number as if its end had been drawn."""
        return "sampling"

    def yes_no(self, tally: Tally) -> YesNo:
        """Ask whether the rounded end is `high`, of the number and of its square."""
        channels = self.specification.chain.retention_channels
        asked = [
            YesNo.retention(channels, tally.counts[:, at], tally.users[:, at]).values_at(np.array([1]))
            for at in range(self.specification.moments)
        ]
        columns = ([getattr(one, name) for one in asked] for name in ("truth", "lie", "ones", "users"))
        return YesNo(*(np.concatenate(column, axis=1) for column in columns))


def _joined(parts: list[Estimates], name: str) -> Floats:
    return np.concatenate([getattr(part, name) for part in parts])


def _spread(first: Estimates, second: Estimates) -> tuple[Derived, ...]:
    """Return variance and standard deviation of the numbers.

    Both means are inside their bands together with probability 1 - alpha (each band has half of it), and then the
    variance lies between the ends that they leave it. It has no variance of its own here.
    """
    mean, squares = float(first.value[0]), float(second.value[0])
    low, high = float(first.lower[0]), float(first.upper[0])
    closest = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    lower = float(second.lower[0]) - max(abs(low), abs(high)) ** 2
    upper = float(second.upper[0]) - closest**2
    if not math.isfinite(lower + upper + mean + squares):
        lower = upper = mean = squares = math.nan
    found = squares - mean**2
    meaning = "of the numbers of the devices that answered"
    roots = [math.sqrt(max(number, 0.0)) if math.isfinite(number) else math.nan for number in (found, lower, upper)]
    return (
        Derived("variance", "mean", f"variance {meaning}", found, math.nan, max(lower, 0.0), upper),
        Derived("standard deviation", "mean", f"standard deviation {meaning}", roots[0], math.nan, roots[1], roots[2]),
    )
