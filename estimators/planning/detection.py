"""Will an alert be raised? The chance that an always-valid bound passes its threshold when the share has changed.

The bound is the one that the rule reads: the likelihood e-process, or a checkpoint. Both are computed by the code that
computes them for a window, on counts that lie z standard deviations from their expectation in the direction in which
the evidence falls fastest. The z at which the alert is just raised gives the chance, Phi(z): a normal law for the
counts, nothing else is approximated. Earlier looks can only add to it, so the chance of an alarm by then is no smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from estimators.estimates import Population
from estimators.intervals.always_valid import Side, YesNo, log_e
from estimators.intervals.checkpoints import bounds, checkpoint_alpha

Floats = NDArray[np.float64]

_FAR = 8.0
"""Standard deviations beyond which a chance is 0 or 1."""
_HALVINGS = 15
"""They find a chance to a few ten-thousandths."""

Evidence = Callable[[YesNo], float]
"""Not negative: the alert is raised."""


@dataclass(frozen=True)
class Watch:
    """One rule: Pr(an answer says yes) per rung for those who have the value and those who do not, and the threshold.

    threshold and share are in [0, 1]; share is the one to be noticed. alpha is the error rate of the bound.
    """

    truth: Floats
    lie: Floats
    threshold: float
    share: float
    side: Side
    alpha: float
    population: Population = "fleet"

    def expected(self, users: Floats) -> YesNo:
        """Return the counts to expect from so many users per rung."""
        return YesNo.of(self.truth, self.lie, users * (self.lie + (self.truth - self.lie) * self.share), users)

    def covariance(self, users: Floats) -> Floats:
        """Return the covariance of the counts of the rungs.

        For this fleet the number of people with the value is fixed, and only their places on the rungs are random.
        """
        noise = self.share * self.truth * (1 - self.truth) + (1 - self.share) * self.lie * (1 - self.lie)
        slope, spread = self.truth - self.lie, self.share * (1 - self.share)
        places = np.diag(users)
        if self.population == "fleet":
            places = places - np.outer(users, users) / max(float(users.sum()), 1.0)
        return np.asarray(np.diag(users * noise) + spread * np.outer(slope, slope) * places)

    def e_process(self, tally: YesNo) -> float:
        """Return the evidence of the likelihood e-process beyond what an alarm needs."""
        return float(log_e(tally, self.threshold, side=self.side)[0]) - math.log(1 / self.alpha)

    def checkpoint(self, number: int) -> Evidence:
        """Return the evidence at checkpoint `number`: how far its bound is beyond the threshold."""
        alpha = checkpoint_alpha(self.alpha, number)

        def evidence(tally: YesNo) -> float:
            lower, upper = bounds(tally, alpha, self.population)
            return float(lower[0]) - self.threshold if self.side == "above" else self.threshold - float(upper[0])

        return evidence

    def chance(self, users: Floats, evidence: Evidence) -> float:
        """Return the chance that the alert is raised at this look, with so many users per rung."""
        here = users > 0
        truth, lie, users = self.truth[here], self.lie[here], users[here]
        watch = Watch(truth, lie, self.threshold, self.share, self.side, self.alpha, self.population)
        return watch._chance(users, evidence) if len(users) else 0.0

    def _chance(self, users: Floats, evidence: Evidence) -> float:
        expected, covariance = self.expected(users), self.covariance(users)
        steps = np.sqrt(np.diag(covariance))

        def at(ones: Floats) -> float:
            moved = np.clip(ones, 0.0, users)
            return evidence(YesNo(expected.truth, expected.lie, moved[:, None], expected.users))

        middle = expected.ones[:, 0]
        slopes = np.zeros(len(users))
        for rung in np.flatnonzero(steps):
            shift = np.zeros(len(users))
            shift[rung] = steps[rung]
            slopes[rung] = (at(middle + shift) - at(middle - shift)) / (2 * steps[rung])
        length = math.sqrt(max(float(slopes @ covariance @ slopes), 0.0))
        if length == 0.0:
            return 1.0 if at(middle) >= 0 else 0.0
        down = covariance @ slopes / length
        low, high = -_FAR, _FAR
        if at(middle - high * down) >= 0:
            return 1.0
        if at(middle - low * down) < 0:
            return 0.0
        for _ in range(_HALVINGS):
            z = (low + high) / 2
            low, high = (z, high) if at(middle - z * down) >= 0 else (low, z)
        return float(ndtr(low))
