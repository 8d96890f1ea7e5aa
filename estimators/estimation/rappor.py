"""Shares of strings answered as Bloom filters."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from estimators.channels.bloom import design_matrix, fill_chance
from estimators.estimates import Estimates, Floats, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.bloom_decoding import BloomData, decode
from estimators.mechanisms.rappor import RAPPOR
from estimators.tally import Tally


class RAPPOREstimator(Estimator[RAPPOR]):
    """Regression of filled bits on the filters of the known strings."""

    @cached_property
    def _design(self) -> Floats:
        rappor = self.specification
        return design_matrix(rappor.labels, rappor.groups, bits=rappor.bits, hashes=rappor.hashes)

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every known string by regression; `mle` is the non-negative one."""
        rappor = self.specification
        # All bits of a filter have the same probabilities.
        truth, lie = (np.asarray(side[:, 0]) for side in rappor.chain.probabilities)
        return decode(
            rappor.labels,
            self._design,
            BloomData(tally.counts, tally.users, truth, lie),
            fill=fill_chance(rappor.bits, rappor.hashes),
            open_list=rappor.open_list,
            method=method,
            population=population,
            alpha=alpha,
        )
