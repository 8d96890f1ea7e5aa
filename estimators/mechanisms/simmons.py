"""Simmons' unrelated question, with a secret coin in its place (Sun, Yan & Zhou, Alg. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from estimators.channels.dense_chain import build_dense
from estimators.mechanism import Guarantee
from estimators.mechanisms.small_channel import (
    Exact,
    SmallChannel,
    check_levels,
    check_values,
    growth,
    read_probability,
    written,
)
from estimators.parameters import refuse_unknown


class Simmons(SmallChannel):
    """Answer the sensitive question with probability p, otherwise toss a secret coin that says yes with `coin`."""

    name = "simmons"
    source = "Sun, Yan & Zhou, Algorithm 2 and Theorem 5.2 (modified Simmons); ladder: retention-replacement"
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "The unrelated question is a fresh secret coin: with a personal attribute (a birthday), a collector who "
            "knows it reads some answers with certainty (epsilon infinite)."
        ),
        "Eq. 2 lost the factor pi in its last term; the variance here has it.",
        "Appendix C, case coin > 1/2, needs 1 - pi in place of pi.",
    )
    ladders: ClassVar[str] = "Any increasing ladder; the coin is the same on every rung."
    parameters: ClassVar[Mapping[str, str]] = {
        "coin": "probability that the secret coin says yes (the second value), between 0 and 1; default 0.5, the best"
    }
    guarantee = Guarantee(
        "Either answer could come from the coin: yes and no explain everything a device sent in one window equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else, as "
        "long as the coin is tossed on the device and kept secret.",
    )

    def __init__(self, labels: Sequence[str], ladder: Sequence[float], *, coin: float = 0.5) -> None:
        self.coin = coin
        levels = [_level(level, written(coin)) for level in ladder]
        super().__init__(labels, ladder, build_dense(ladder, levels))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Simmons:
        """Build from two values, a ladder and the coin."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        check_values(cls.name, values, 2, "the answer of everybody else, then that of the sensitive group")
        coin = read_probability(parameters, "coin", 0.5)
        return cls(values, check_levels(ladder), coin=coin)


def _level(epsilon: float, coin: Fraction) -> Exact:
    odds = (growth(epsilon) - 1) * min(coin, 1 - coin)
    keep = odds / (1 + odds)
    no, yes = (1 - keep) * (1 - coin), (1 - keep) * coin
    return ((keep + no, yes), (no, keep + yes))
