"""Shares of values answered as one symbol: retention channels (GRR, Warner, EWRR) and dense ones."""

from __future__ import annotations

from functools import cached_property

from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.pooling import pool_retention
from estimators.inference.pooling_dense import pool_dense
from estimators.intervals.always_valid import YesNo
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.small_channel import SmallChannel
from estimators.tally import Tally


class RetentionEstimator(Estimator[GRR]):
    """Shares from a retention channel per rung, in O(values)."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value; users on different rungs are combined by `method`."""
        return pool_retention(
            self.specification.labels,
            self.specification.chain.retention_channels,
            *tally.by_rung,
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """See every value as the bit 'the answer is this value'."""
        channels = self.specification.chain.retention_channels
        return YesNo.retention(channels, *tally.by_rung)


class DenseEstimator(Estimator[SmallChannel]):
    """Shares from a dense channel per rung."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value; users on different rungs are combined by `method`."""
        return pool_dense(
            self.specification.labels,
            self.specification.chain.channels,
            *tally.by_rung,
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo | None:
        """See every value as a bit, if a value's answer is equally likely under all other values."""
        return YesNo.dense(self.specification.chain.channels, *tally.by_rung)


class WarnerEstimator(Estimator[GRR | SmallChannel]):
    """Shares of yes and no: from answers that are yes or no, or from numbers of noisy samples."""

    @cached_property
    def _own(self) -> RetentionEstimator | DenseEstimator:
        known = self.specification
        return DenseEstimator(known) if isinstance(known, SmallChannel) else RetentionEstimator(known)

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of both values; users on different rungs are combined by `method`."""
        return self._own.estimate(tally, method=method, population=population, alpha=alpha)

    def yes_no(self, tally: Tally) -> YesNo | None:
        """See both values as bits, where an answer is one of them."""
        return self._own.yes_no(tally)
