"""Shares of keys and means of their values (LPP, PCKV-UE), and totals of the graph of people and keys."""

from __future__ import annotations

import numpy as np

from estimators.channels.chain import Chain
from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.key_value import KeyValueParameters
from estimators.inference.key_value_pooling import KeyValueCounts, pool_key_values
from estimators.mechanisms.key_value import LPP, MINUS, PCKVUE, PLUS
from estimators.tally import Tally


class LPPEstimator(Estimator[LPP]):
    """Share and mean of every key, from the people who were asked about it."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate share and mean of every key; users on different rungs are combined by `method`."""
        counts = self.counts(tally)
        return pool_key_values(self.specification.labels, counts, method=method, population=population, alpha=alpha)

    def counts(self, tally: Tally) -> KeyValueCounts:
        """Return the answers of every key by rung."""
        lpp = self.specification
        counts, fleet = tally.by_rung
        cells = counts.reshape(lpp.rungs, len(lpp.keys), 3)
        return KeyValueCounts.of(
            rung_parameters(lpp.chain),
            cells.sum(axis=2),
            cells[:, :, PLUS],
            cells[:, :, MINUS],
            fleet,
        )


class PCKVUEEstimator(Estimator[PCKVUE]):
    """Share and mean of every key, from a vector over all keys."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate share and mean of every key; users on different rungs are combined by `method`."""
        pckv = self.specification
        ones, fleet = tally.by_rung
        keys = len(pckv.keys)
        users = np.broadcast_to(fleet[:, None], (pckv.rungs, keys))
        counts = KeyValueCounts.of(rung_parameters(pckv.chain), users, ones[:, :keys], ones[:, keys:], fleet)
        return pool_key_values(
            pckv.labels,
            counts,
            scale=float(pckv.padding),
            method=method,
            population=population,
            alpha=alpha,
            together=True,
        )


def rung_parameters(chain: Chain) -> tuple[KeyValueParameters, ...]:
    """Return p1, p2 and q of every rung, from its exact channel."""
    found = []
    for channel in chain.channels:
        whole, (none, *_), (lost, same, other) = channel.denominator, channel.row(0), channel.row(PLUS)
        found.append(KeyValueParameters(none / whole, (whole - lost) / whole, same / (same + other)))
    return tuple(found)
