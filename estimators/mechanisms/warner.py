"""Warner's randomized response: one coin decides whether a yes-or-no answer is true (Sun, Yan & Zhou, Alg. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from estimators.mechanism import Guarantee
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.small_channel import check_levels, check_values
from estimators.parameters import refuse_unknown


class Warner(GRR):
    """Tell the truth with probability e^eps / (e^eps + 1), the opposite otherwise."""

    name = "warner"
    source = "Sun, Yan & Zhou, Algorithm 1 and Theorem 5.1 (modified Warner); ladder: Pan, Eq. 22 and 23"
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "Algorithm 1 compares a coin with values 0 and 1 against p and so tells the truth with probability 1 - p; "
            "here the truth is the likelier answer (p > 1/2), which is the same channel with the answers renamed."
        ),
        (
            "The variance p(1 - p)/(N(2p - 1)^2) is that of the people who answered; for a population behind them "
            "pi(1 - pi)/N is added."
        ),
    )
    ladders: ClassVar[str] = "Any increasing ladder."
    guarantee = Guarantee(
        "Either answer could be a lie: yes and no explain everything a device sent in one window equally well up to a "
        "factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
    )

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Warner:
        """Build from two values and a ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        check_values(cls.name, values, 2, "the answer of everybody else, then that of the sensitive group")
        return cls(values, check_levels(ladder))
