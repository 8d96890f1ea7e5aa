"""Shares of two groups from cards dealt without replacement."""

from __future__ import annotations

from estimators.estimates import Estimates, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.decks import estimate_blocks
from estimators.mechanism import Attacker
from estimators.mechanisms.improved_christofides import ImprovedChristofides
from estimators.tally import Tally


class ImprovedChristofidesEstimator(Estimator[ImprovedChristofides]):
    """Shares from the answers of all decks."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate both shares from the answers of all blocks; there is one rung, so every method is the same."""
        mechanism = self.specification
        return estimate_blocks(
            mechanism.labels,
            mechanism.deck,
            tally.counts[0],
            tally.users[0],
            method=method,
            population=population,
            alpha=alpha,
        )

    def attackers(self) -> tuple[Attacker, ...]:
        """Return what each kind of attacker can learn."""
        return self.specification.attackers()
