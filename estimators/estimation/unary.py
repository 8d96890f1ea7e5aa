"""Shares of values answered as one-hot bit vectors (SUE, OUE)."""

from __future__ import annotations

from estimators.channels.bit_chain import BitChain
from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.pooling_bits import pool_bits
from estimators.intervals.always_valid import YesNo
from estimators.mechanisms.unary import Unary
from estimators.tally import Tally


class UnaryEstimator(Estimator[Unary]):
    """Shares from bits, each on its own."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value, each bit on its own; the estimates need not sum to one."""
        return pool_bits(
            self.specification.labels,
            *self.specification.chain.probabilities,
            *tally.by_rung,
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """Return the bits themselves."""
        return bit_questions(self.specification.chain, tally)


def bit_questions(chain: BitChain, tally: Tally) -> YesNo:
    """Return every bit of a vector as a yes/no question."""
    return YesNo.of(*chain.probabilities, *tally.by_rung)
