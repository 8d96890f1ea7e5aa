"""Mean of bounded numbers: round each number once to one of the two ends, then relax that bit (Pan, Sec. 5.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.exact.randomness import Bits
from estimators.mechanism import (
    Answer,
    Drawn,
    Guarantee,
    ParameterError,
    Quantity,
    Randomizer,
    Specification,
    one_group,
)
from estimators.parameters import real_number, refuse_unknown


class Mean(Specification):
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

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The mean, in the unit of the numbers."""
        meaning = "mean of the numbers of the devices that answered, each clipped to the range"
        return (
            Quantity(
                self.labels[0],
                kind="mean",
                low=self.low,
                high=self.high,
                meaning=meaning,
                always_valid=True,
            ),
        )

    def numbers(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Check numbers and clip them to the range; ParameterError for anything else."""
        numbers = np.empty(len(values), dtype=np.float64)
        for i, value in enumerate(values):
            if isinstance(value, bool | str) or not _is_number(value):
                raise ParameterError("value", value, "must be a number; leave the device out if there is none")
            numbers[i] = value
        return np.clip(numbers, self.low, self.high)

    def canonical(self) -> dict[str, Any]:
        """Return the range and the integer thresholds."""
        return {
            "mechanism": self.name,
            "label": self.labels[0],
            "low": self.low.hex(),
            "high": self.high.hex(),
            "chain": self.chain.canonical(),
        }


class MeanRandomizer(Randomizer[Mean]):
    """Rounds a number once to an end of the range and randomizes that bit."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Clip each number to the range and round it, once, to an end: 1 for high, 0 for low."""
        mean = self.specification
        share = (mean.numbers(values) - mean.low) / (mean.high - mean.low)
        uniform = (bits.words(len(share)) >> np.uint64(11)) * 2.0**-53
        return (uniform < share).astype(np.int64)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        answers = self.specification.symbols(self.specification.chain.draw(inputs, bits))
        return Drawn(answers, one_group(len(inputs)))


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False
