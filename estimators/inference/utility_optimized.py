"""Utility-optimised local privacy (Murakami & Kawamoto): probabilities, composition, personal tags.

Some values are sensitive, the others are not. An answer of a person with a sensitive value never leaves the protected
set, in which any two values are told apart by at most a factor e^epsilon; other answers give away that the value is
not sensitive, and which one it is. Values are ordered sensitive first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class RetentionProbabilities:
    """uRR: keep the value with probability `retention`, otherwise name a uniformly chosen sensitive value.

    truth (c1 of Def. 4) and lie (c2) are the probabilities of a sensitive answer, given that value or another one;
    retention (c3) is also the probability that a value which is not sensitive is told.
    """

    truth: float
    lie: float
    retention: float


@dataclass(frozen=True)
class BitProbabilities:
    """uRAP: chances of a one. theta / lie: bit of a sensitive value if it is / is not the person's value (theta, d1 of
    Def. 5). tell = 1 - d2: bit of another value if it is the person's; never otherwise.
    """

    theta: float
    lie: float
    hide: float

    @property
    def tell(self) -> float:
        """Pr(one) for the person's own value outside the sensitive set."""
        return 1 - self.hide

    @property
    def epsilon(self) -> float:
        """Level of the protected answers, from the probabilities."""
        return math.log(self.theta * (1 - self.lie) / ((1 - self.theta) * self.lie))


def urr_probabilities(epsilon: float, sensitive: int) -> RetentionProbabilities:
    """Return the chances of uRR with `sensitive` protected values (Def. 4); all values sensitive: plain RR (Eq. 2).

    >>> urr_probabilities(0.0, 4)
    RetentionProbabilities(truth=0.25, lie=0.25, retention=0.0)
    """
    if sensitive < 1:
        raise ValueError(f"uRR needs at least one sensitive value; got {sensitive}; without any, nothing is hidden")
    small = math.exp(-epsilon)
    total = 1 + (sensitive - 1) * small
    return RetentionProbabilities(truth=1 / total, lie=small / total, retention=-math.expm1(-epsilon) / total)


def urap_probabilities(epsilon: float, theta: float | None = None) -> BitProbabilities:
    """Return the chances of uRAP (Def. 5); theta defaults to e^(epsilon/2) / (e^(epsilon/2) + 1), as in basic RAPPOR.

    >>> urap_probabilities(1.0).epsilon
    1.0
    """
    if theta is None:
        theta = 1 / (1 + math.exp(-epsilon / 2))
    if not 0 < theta < 1:
        raise ValueError(f"theta must lie between 0 and 1; got {theta!r}")
    small = math.exp(-epsilon)
    hide = (1 - theta) + theta * small
    return BitProbabilities(theta=theta, lie=theta * small / hide, hide=hide)
