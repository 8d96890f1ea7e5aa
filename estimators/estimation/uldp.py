"""Shares where some values are sensitive: uRR, Mangat, uRAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.estimation.unary import bit_questions
from estimators.inference.pooling import pool_retention
from estimators.inference.pooling_bits import pool_bits
from estimators.intervals.always_valid import YesNo
from estimators.mechanisms.uldp import UtilityOptimized
from estimators.tally import Tally


class UtilityOptimizedEstimator(Estimator[UtilityOptimized]):
    """Shares from answers in the order sensitive values first, under the survey's order of labels."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value; users on different rungs are combined by `method`."""
        mechanism, (counts, users) = self.specification, tally.by_rung
        if isinstance(mechanism.chain, BitChain):
            found = pool_bits(
                mechanism.ordered,
                *mechanism.chain.probabilities,
                counts,
                users,
                method=method,
                population=population,
                alpha=alpha,
            )
        else:
            channels = mechanism.chain.retention_channels
            found = pool_retention(
                mechanism.ordered, channels, counts, users, method=method, population=population, alpha=alpha
            )
        return reordered(found, mechanism.labels, mechanism.places)

    def yes_no(self, tally: Tally) -> YesNo:
        """See every value as the bit 'the answer is this value', or as its own bit."""
        chain = self.specification.chain
        if isinstance(chain, BitChain):
            found = bit_questions(chain, tally)
        else:
            found = YesNo.retention(chain.retention_channels, *tally.by_rung)
        return found.values_at(self.specification.places)


def reordered(found: Estimates, labels: Sequence[str], places: NDArray[np.int64]) -> Estimates:
    """Return the estimates under `labels`; places[i] is where labels[i] stands in `found`."""
    return replace(
        found,
        labels=tuple(labels),
        value=found.value[places],
        variance=found.variance[places],
        lower=found.lower[places],
        upper=found.upper[places],
        simultaneous_lower=None if found.simultaneous_lower is None else found.simultaneous_lower[places],
        simultaneous_upper=None if found.simultaneous_upper is None else found.simultaneous_upper[places],
    )
