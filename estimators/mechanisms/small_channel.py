"""What mechanisms with a few values and a dense channel per rung share: checks, draws, estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain, check_ladder
from estimators.channels.channel import MAX_EPSILON
from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.exact.rounding import exp_decimal
from estimators.mechanism import Answer, Drawn, Mechanism, ParameterError, index_of
from estimators.parameters import real_number
from estimators.tally import Tally

if TYPE_CHECKING:
    from estimators.intervals.always_valid import YesNo

Exact = tuple[tuple[Fraction, ...], ...]


class SmallChannel(Mechanism):
    """One symbol out of a few, one exact channel per rung, all values estimated together."""

    chain: Chain

    def __init__(self, labels: Sequence[str], ladder: Sequence[float], chain: Chain) -> None:
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.chain = chain
        self.answer = Answer("index", chain.top.outputs)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.chain.channels)

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the index of each value."""
        return index_of(values, self.labels)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        answers = self.chain.draw(inputs, bits, dtype=self.symbol_dtype)
        return Drawn(answers, np.zeros(len(inputs), dtype=np.uint16))

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value; users on different rungs are combined by `method`."""
        from estimators.inference.pooling import pool_dense  # server side only: scipy

        return pool_dense(
            self.labels,
            self.chain.channels,
            tally.counts.sum(axis=1),
            tally.users.sum(axis=1),
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo | None:
        """See every value as a bit, if a value's answer is equally likely under all other values."""
        from estimators.intervals.always_valid import YesNo  # server side only: scipy

        return YesNo.dense(self.chain.channels, tally.counts.sum(axis=1), tally.users.sum(axis=1))

    def canonical(self) -> dict[str, Any]:
        """Return values and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.labels), "chain": self.chain.canonical()}

    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the share of every value among the fleet."""
        indices = index_of(values, self.labels)
        return np.bincount(indices, minlength=len(self.labels)) / max(len(indices), 1)


def check_levels(ladder: Sequence[float]) -> tuple[float, ...]:
    """Return the ladder as floats; refuse an empty or falling one and levels outside [0, 40]."""
    levels = tuple(float(level) for level in ladder)
    check_ladder(levels)
    for i, level in enumerate(levels):
        if not 0.0 <= level <= MAX_EPSILON:
            raise ParameterError(f"ladder[{i}]", level, f"a level must be in [0, {MAX_EPSILON:g}]")
    return levels


def check_values(name: str, values: Sequence[str], number: int, meaning: str) -> None:
    """Refuse a wrong number of values."""
    if len(values) != number:
        raise ParameterError("values", list(values), f"{name} needs exactly {number} values: {meaning}")


def read_probability(
    parameters: Mapping[str, Any], name: str, default: float | None = None, *, zero: bool = False
) -> float:
    """Return a parameter in (0, 1), or in [0, 1) where `zero` is allowed."""
    value = real_number(parameters, name, default)
    if not (0.0 < value < 1.0 or (zero and value == 0.0)):
        raise ParameterError(name, value, f"must be a probability in {'[' if zero else '('}0, 1)")
    return value


def written(value: float) -> Fraction:
    """Return the decimal number that a person wrote, not the float nearest to it."""
    return Fraction(repr(value))


def growth(epsilon: float) -> Fraction:
    """Return e^epsilon to 80 digits."""
    return Fraction(exp_decimal(epsilon))


def mixed_levels(top: Exact, noise: Sequence[Fraction], ladder: Sequence[float]) -> list[Exact]:
    """Return one channel per level: `top` mixed with answers drawn from `noise`, by as much as each level needs.

    A mixture with a fixed law is a degradation of every mixture with less of it, so any rising ladder is possible.
    """
    return [_mix(top, noise, kept_share(top, noise, exp_decimal(epsilon))) for epsilon in ladder]


def kept_share(top: Exact, noise: Sequence[Fraction], factor: Decimal) -> Fraction:
    """Return the largest share of `top` in a mixture with `noise` whose probabilities differ by at most `factor`."""
    limit, share = Fraction(factor), Fraction(1)
    for column, extra in zip(zip(*top, strict=True), noise, strict=True):
        excess = max(column) - limit * min(column)
        if excess > 0:
            room = (limit - 1) * extra
            share = min(share, room / (excess + room))
    return share


def _mix(top: Exact, noise: Sequence[Fraction], share: Fraction) -> Exact:
    return tuple(tuple(share * p + (1 - share) * u for p, u in zip(row, noise, strict=True)) for row in top)
