"""Mean of bounded numbers: round each number once to one of the two ends, then relax that bit (Pan, Sec. 5.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Drawn, Guarantee, Mechanism, ParameterError
from estimators.parameters import real_number, refuse_unknown
from estimators.tally import Tally

if TYPE_CHECKING:
    from estimators.intervals.always_valid import YesNo

_LEVELS = 101
"""Different numbers that a simulated fleet picks from."""


class Mean(Mechanism):
    """A number in [low, high] becomes `high` with probability proportional to its distance from `low`, else `low`."""

    name = "mean"
    source = "Pan, Sec. 5.2, Eq. 70"
    corrections = (
        "Eq. 70 multiplies by h where the range h - l belongs: the printed form is right only for l = 0.",
        (
            "The rounded end is drawn once and stored; drawing it again at the next level breaks the guarantee (levels "
            "3 and 4 would cost 5.67)."
        ),
        "Rounding adds a variance that no level removes.",
    )
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "low": "smallest number; smaller ones are taken as this",
        "high": "largest number; larger ones are taken as this",
    }
    guarantee = Guarantee(
        "All answers of one window together reveal no more than the sharpest one: any two numbers explain them equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
    )

    def __init__(self, label: str, ladder: Sequence[float], *, low: float, high: float) -> None:
        if not low < high:
            raise ParameterError("high", high, f"must exceed low ({low!r}); exchange them or widen the range")
        self.labels = (label,)
        self.ladder = tuple(float(level) for level in ladder)
        self.low, self.high = low, high
        self.answer = Answer("index", 2)
        self.chain = Chain.retention(self.ladder, 2)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Mean:
        """Build from `low` and `high`; `values` may name the quantity."""
        refuse_unknown(parameters, ("low", "high"), cls.name)
        if len(values) > 1:
            raise ParameterError("values", list(values), "a mean has at most one value, the name of the quantity")
        label = values[0] if values else "mean"
        return cls(label, ladder, low=real_number(parameters, "low"), high=real_number(parameters, "high"))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.chain.channels)

    def _numbers(self, values: Sequence[Any]) -> NDArray[np.float64]:
        numbers = np.empty(len(values), dtype=np.float64)
        for i, value in enumerate(values):
            if isinstance(value, bool | str) or not _is_number(value):
                raise ParameterError("value", value, "must be a number; leave the device out if there is none")
            numbers[i] = value
        return np.clip(numbers, self.low, self.high)

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Clip each number to the range and round it, once, to an end: 1 for high, 0 for low."""
        share = (self._numbers(values) - self.low) / (self.high - self.low)
        uniform = (bits.words(len(share)) >> np.uint64(11)) * 2.0**-53
        return (uniform < share).astype(np.int64)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        answers = self.symbols(self.chain.draw(inputs, bits))
        return Drawn(answers, np.zeros(len(inputs), dtype=np.uint16))

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the mean, from the share of devices whose rounded end is `high`.

        The spread of the rounding depends on numbers that nobody has told. It is at most that of a two-point
        distribution with the same mean, and that is charged, so intervals for this fleet are on the safe side.
        """
        from estimators.inference.pooling import pool_retention  # server side only: scipy

        channels = [channel for channel in self.chain.channels if isinstance(channel, RetentionChannel)]
        ends = pool_retention(
            ("low", "high"),
            channels,
            tally.counts.sum(axis=1),
            tally.users.sum(axis=1),
            method=method,
            population="sampling",
            alpha=alpha,
        )
        width = self.high - self.low
        lower, upper = self.low + width * ends.lower[1:], self.low + width * ends.upper[1:]
        return Estimates(
            labels=self.labels,
            value=self.low + width * ends.value[1:],
            variance=width**2 * ends.variance[1:],
            lower=lower,
            upper=upper,
            users=ends.users,
            method=ends.method,
            population=population,
            alpha=alpha,
            simultaneous_lower=lower,
            simultaneous_upper=upper,
            homogeneity_p=ends.homogeneity_p,
            notes=ends.notes,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """Ask whether the rounded end is `high`."""
        from estimators.intervals.always_valid import YesNo  # server side only: scipy

        channels = [channel for channel in self.chain.channels if isinstance(channel, RetentionChannel)]
        found = YesNo.retention(channels, tally.counts.sum(axis=1), tally.users.sum(axis=1))
        return found.values_at(np.array([1]))

    def always_valid(
        self, tally: Tally, *, alpha: float = 0.05
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return bounds of the mean that hold at all looks of a window's life together."""
        ends = super().always_valid(tally, alpha=alpha)
        width = self.high - self.low
        return None if ends is None else (self.low + width * ends[0], self.low + width * ends[1])

    def canonical(self) -> dict[str, Any]:
        """Return the range and the integer thresholds."""
        return {
            "mechanism": self.name,
            "label": self.labels[0],
            "low": self.low.hex(),
            "high": self.high.hex(),
            "chain": self.chain.canonical(),
        }

    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the mean of the numbers, each clipped to the range."""
        return np.array([self._numbers(values).mean() if len(values) else np.nan])

    @property
    def simulated_values(self) -> int:
        """Number of different numbers that a simulated fleet picks from."""
        return _LEVELS

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:  # noqa: ARG002
        """Return numbers on an even grid over the range."""
        numbers: list[float] = (self.low + (self.high - self.low) * picks / (_LEVELS - 1)).tolist()
        return numbers


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False
