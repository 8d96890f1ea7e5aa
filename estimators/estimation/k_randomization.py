"""Shares of labels among records whose copies are flipped and mixed."""

from __future__ import annotations

import numpy as np

from estimators.estimates import Estimates, Floats, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.inference.crowd_delta import failure_chance, shuffled_failure_chance
from estimators.inference.pooling_result import Combined, finish, no_estimate
from estimators.intervals.always_valid import YesNo
from estimators.intervals.rung_shares import spans, spread_ends
from estimators.mechanism import Attacker
from estimators.mechanisms.k_randomization import KRandomization
from estimators.tally import Tally


class KRandomizationEstimator(Estimator[KRandomization]):
    """Shares from flipped bits; the tally counts copies."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of records with each bit set; the tally counts copies, all methods agree on one rung."""
        mechanism = self.specification
        ones, sent = tally.counts.sum(axis=(0, 1)), int(tally.users.sum())
        if sent == 0:
            return no_estimate(mechanism.labels, method, population, alpha, ())
        flip, slope = mechanism.flip, 1 - 2 * mechanism.flip
        shares = (ones / sent - flip) / slope
        variance = np.full(len(mechanism.labels), flip * (1 - flip) / (sent * slope**2))
        records = sent / mechanism.copies
        if population == "sampling":
            inside = np.clip(shares, 0, 1)
            variance = variance + (inside * (1 - inside) / (records - 1) if records > 1 else 0.25)
        questions = YesNo.of([1 - flip], [flip], ones[None], [sent])

        def ends(alpha: float) -> tuple[Floats, Floats]:
            noise = spans(questions, alpha=alpha, population="fleet").weighted(np.ones((1, 1)))
            if population == "fleet":
                return noise
            # Copies of one record share its value: the spread of values is that of records, not of copies.
            return spread_ends(shares, noise, records, alpha)

        short = f"{records:.0f} records, fewer than the {mechanism.least_records} promised: hold or merge this window"
        return finish(
            mechanism.labels,
            Combined(shares, variance, ends),
            users=sent,
            method=method,
            population=population,
            alpha=alpha,
            notes=(short,) if records < mechanism.least_records else (),
        )

    def attackers(self) -> tuple[Attacker, ...]:
        """Return what each kind of attacker can learn."""
        mechanism = self.specification
        labels, crowd = len(mechanism.labels), mechanism.least_records
        single, linked = mechanism.channel.flip_epsilon(labels), mechanism.epsilons[0]
        totals, half = f"totals of {crowd:,} honest records", crowd - crowd // 2
        found = [
            self._crowd(totals, failure_chance(mechanism), bound=labels > 1),
            self._crowd(
                f"{totals}, and the values of half of them", failure_chance(mechanism, records=half), bound=labels > 1
            ),
            self._crowd(
                f"all copies of {crowd:,} honest records, mixed", shuffled_failure_chance(mechanism), bound=True
            ),
            Attacker("one copy of a record", f"epsilon {single:.4g}", single, 0.0),
        ]
        if mechanism.copies > 1:
            linking = f"all {mechanism.copies} copies of a record, linked"
            found.append(Attacker(linking, f"epsilon {linked:.4g}", linked, 0.0))
        return tuple(found)

    def _crowd(self, sees: str, delta: float, *, bound: bool) -> Attacker:
        level, most = self.specification.ladder[0], "at most " if bound else ""
        return Attacker(sees, f"epsilon {level:.4g}, except with probability {most}{delta:.3g}", level, delta)
