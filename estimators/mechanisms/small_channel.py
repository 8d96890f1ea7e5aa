"""What mechanisms with a few values and a dense channel per rung share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from estimators.channels.chain import check_ladder
from estimators.channels.channel import MAX_EPSILON, one_against_rest
from estimators.channels.noisy_sampling import dense_losses
from estimators.exact.rounding import exp_decimal
from estimators.mechanism import ParameterError, Quantity
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.parameters import real_number

Exact = tuple[tuple[Fraction, ...], ...]


class SmallChannel(SymbolSpecification):
    """One symbol out of a few, a dense channel per rung, all values estimated together."""

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every value; always-valid bounds where each answer sets one value against all others."""
        watched = one_against_rest(self.chain.channels) is not None
        return tuple(Quantity(label, always_valid=watched) for label in self.labels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent answer cost together; answers must be values."""
        return dense_losses(self.chain.top.matrix, sample.chain.top.matrix, samples)

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung and value the probability that the answer is the true value, where answers are values."""
        if self.answer.size != len(self.labels):
            return super().truth_probabilities
        rows = [
            dict(zip(self.labels, channel.matrix.diagonal().tolist(), strict=True)) for channel in self.chain.channels
        ]
        same = all(max(row.values()) - min(row.values()) < 1e-12 for row in rows)
        return tuple({"every value": next(iter(row.values()))} if same else row for row in rows)


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
