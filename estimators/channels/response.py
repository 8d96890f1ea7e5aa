"""The two probabilities behind every estimate, p and q in the literature, and their formulas by mechanism.

`truth` is Pr(an answer names a value | it is the person's), `lie` the same for another value. Devices build their
integer thresholds from exact fractions (`EXACT`); estimates and plans at real levels use floats (`REAL`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from estimators.estimates import Floats
from estimators.exact.rounding import exp_decimal

Number = TypeVar("Number", float, Fraction)
Entry = TypeVar("Entry", float, Fraction, Floats)


@dataclass(frozen=True)
class Response(Generic[Entry]):
    """Pr(an answer names the value) if it is the person's value (`truth`) and if it is not (`lie`).

    slope is truth - lie and miss is 1 - truth: subtracting would lose all digits at low and at high levels.

    >>> Response.of(0.75, 0.25).answer(0.5)
    0.5
    """

    truth: Entry
    lie: Entry
    slope: Entry
    miss: Entry

    @classmethod
    def of(cls, truth: Entry, lie: Entry) -> Response[Entry]:
        """Return the response with these probabilities, where no digits are at stake."""
        return Response(truth, lie, truth - lie, 1 - truth)

    def answer(self, share: Entry) -> Entry:
        """Return Pr(an answer names the value) when this share of people have it."""
        return self.lie + self.slope * share


class SensitiveBits(NamedTuple, Generic[Number]):
    """The bits of uRAP: of sensitive values, and of other values, which are set for their own value or never."""

    sensitive: Response[Number]
    other: Response[Number]


class Formulas(Generic[Number]):
    """The responses of all families at a privacy level, in numbers of one kind."""

    def __init__(self, decay: Callable[[float], Number], rise: Callable[[float], Number]) -> None:
        self.decay: Callable[[float], Number] = decay
        """e^-eps."""
        self._rise: Callable[[float], Number] = rise

    def grr(self, epsilon: float, size: int) -> Response[Number]:
        """Return e^eps / (e^eps + m - 1) and 1 / (e^eps + m - 1): generalised randomized response over m values.

        Also the bits of Warner (m = 2), and uRR for m sensitive values: slope is then the probability of keeping the
        value. Stable for all levels in [0, inf].
        """
        if size < 1:
            raise ValueError(f"a response needs at least one value to choose from; got {size}")
        small = self.decay(epsilon)
        total = 1 + (size - 1) * small
        return Response(1 / total, small / total, self._rise(epsilon) / total, (size - 1) * small / total)

    def sue(self, epsilon: float) -> Response[Number]:
        """Return a bit of symmetric unary encoding: half the level for each of the two bits that differ."""
        return self.grr(epsilon / 2, 2)

    def oue(self, epsilon: float) -> Response[Number]:
        """Return a bit of optimised unary encoding: the set bit is a fair coin, the others lie as at the full level."""
        coin, bit = self.grr(0.0, 2).truth, self.grr(epsilon, 2)
        return Response(coin, bit.lie, coin * bit.slope, coin)

    def urap(self, epsilon: float, theta: Number | None = None) -> SensitiveBits[Number]:
        """Return the bits of uRAP (Murakami & Kawamoto, Def. 5): of sensitive and of other values.

        theta is Pr(1 | 1) of a sensitive bit, by default that of symmetric unary encoding. A bit of another value is
        set with probability 1 - d2 if it is the person's value, and never otherwise.
        """
        own = self.sue(epsilon).truth if theta is None else theta
        if not 0 < own < 1:
            raise ValueError(f"theta must lie between 0 and 1; got {own!r}")
        small = self.decay(epsilon)
        hide = (1 - own) + own * small
        tell = 1 - hide
        return SensitiveBits(Response.of(own, own * small / hide), Response(tell, 0 * small, tell, hide))


REAL: Formulas[float] = Formulas(lambda epsilon: math.exp(-epsilon), lambda epsilon: -math.expm1(-epsilon))
"""Floats, free of overflow and cancellation."""
EXACT: Formulas[Fraction] = Formulas(
    lambda epsilon: 1 / Fraction(exp_decimal(epsilon)), lambda epsilon: 1 - 1 / Fraction(exp_decimal(epsilon))
)
"""Fractions from e^eps to 80 digits."""
