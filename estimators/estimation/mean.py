"""The mean of bounded numbers, from the share of devices whose number was rounded to the upper end."""

from __future__ import annotations

import numpy as np

from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.pooling import pool_retention
from estimators.intervals.always_valid import YesNo
from estimators.mechanisms.mean import Mean
from estimators.tally import Tally


class MeanEstimator(Estimator[Mean]):
    """The mean of clipped numbers."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the mean, from the share of devices whose rounded end is `high`.

        The spread of the rounding depends on numbers that are not reported. It is at most that of a two-point
        distribution with the same mean, and that is charged, so intervals for this fleet are conservative.
        """
        mean = self.specification
        ends = pool_retention(
            ("low", "high"),
            mean.chain.retention_channels,
            *tally.by_rung,
            method=method,
            population="sampling",
            alpha=alpha,
        )
        width = mean.high - mean.low
        lower, upper = mean.low + width * ends.lower[1:], mean.low + width * ends.upper[1:]
        return Estimates(
            labels=mean.labels,
            value=mean.low + width * ends.value[1:],
            variance=width**2 * ends.variance[1:],
            lower=lower,
            upper=upper,
            users=ends.users,
            method=ends.method,
            population=population,
            alpha=alpha,
            simultaneous_lower=lower,
            simultaneous_upper=upper,
            homogeneity_p=ends.homogeneity_p,
            notes=ends.notes,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """Ask whether the rounded end is `high`."""
        channels = self.specification.chain.retention_channels
        found = YesNo.retention(channels, *tally.by_rung)
        return found.values_at(np.array([1]))
