"""Mean of bounded numbers: round each number once to one of the two ends, then relax that bit (Pan, Sec. 5.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.continuing import Step, steps
from estimators.channels.downgrade import SymbolDowngrade
from estimators.channels.noisy_sampling import sampling_epsilon
from estimators.exact.randomness import Bits, below
from estimators.mechanism import (
    Answer,
    Drawn,
    Guarantee,
    ParameterError,
    Quantity,
    Randomizer,
    Specification,
)
from estimators.parameters import real_number, refuse_unknown, whole_number

_LONGEST_UNIT = 24


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
    exclusive = adds_up = False
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "low": "smallest number; smaller ones are taken as this",
        "high": "largest number; larger ones are taken as this",
        "unit": "the unit of the numbers, for the page and the terminal; default none; not part of the survey id",
        "moments": "1: the mean. 2: also the mean of the squares, and so variance and standard deviation; half of the "
        "devices, drawn at random, answer about the square of their number; default 1",
    }
    guarantee = Guarantee(
        "All answers of one window together reveal no more than the sharpest one: any two numbers explain them equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
    )

    def __init__(
        self, label: str, ladder: Sequence[float], *, low: float, high: float, unit: str = "", moments: int = 1
    ) -> None:
        if not low < high:
            raise ParameterError("high", high, f"must exceed low ({low!r}); exchange them or widen the range")
        self.labels = (label, f"square of {label}")[:moments]
        self.moments = self.groups = moments
        self.ladder = tuple(float(level) for level in ladder)
        self.low, self.high, self.unit = low, high, unit
        self.answer = Answer("index", 2)
        self.chain = Chain.retention(self.ladder, 2)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Mean:
        """Build from `low` and `high`; `values` may name the quantity."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        if len(values) > 1:
            raise ParameterError("values", list(values), "a mean has at most one value, the name of the quantity")
        label = values[0] if values else "mean"
        unit = parameters.get("unit", "")
        if not isinstance(unit, str) or len(unit) > _LONGEST_UNIT:
            raise ParameterError("unit", unit, f"must be a text of at most {_LONGEST_UNIT} characters, such as hours")
        low, high = real_number(parameters, "low"), real_number(parameters, "high")
        moments = whole_number(parameters, "moments", 1, low=1, high=2)
        return cls(label, ladder, low=low, high=high, unit=unit, moments=moments)

    @cached_property
    def ranges(self) -> tuple[tuple[float, float], ...]:
        """The ends between which the number and, where it is asked, its square lie."""
        squares = (self.low**2, self.high**2)
        least = 0.0 if self.low <= 0.0 <= self.high else min(squares)
        return ((self.low, self.high), (least, max(squares)))[: self.moments]

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.chain.channels)

    @cached_property
    def downgrade(self) -> SymbolDowngrade:
        """Coarser ends by the kernels of the chain."""
        return SymbolDowngrade(self.chain.kernels, 2)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent end cost together."""
        return sampling_epsilon(self.ladder[0], sample.ladder[0], samples)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The mean, in the unit of the numbers, and the mean of the squares."""
        meaning = "of the numbers of the devices that answered, each clipped to the range"
        units = (self.unit, f"{self.unit}²" if self.unit else "")
        return tuple(
            Quantity(
                label,
                kind="mean",
                unit=unit,
                low=low,
                high=high,
                meaning=f"mean {'' if i == 0 else 'of the squares '}{meaning}",
                always_valid=True,
            )
            for i, (label, unit, (low, high)) in enumerate(zip(self.labels, units, self.ranges, strict=False))
        )

    def numbers(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Check numbers and clip them to the range; ParameterError for anything else."""
        numbers = np.empty(len(values), dtype=np.float64)
        for i, value in enumerate(values):
            if isinstance(value, bool | str) or not _is_number(value):
                raise ParameterError("value", value, "must be a number; leave the device out if there is none")
            numbers[i] = value
        return np.clip(numbers, self.low, self.high)

    def steps_from(self, earlier: Specification) -> tuple[Step, ...]:
        """Return how chains of a shorter ladder go on."""
        assert isinstance(earlier, Mean)
        return steps(earlier.chain, self.chain)

    def canonical(self) -> dict[str, Any]:
        """Return the range and the integer thresholds."""
        return {
            "mechanism": self.name,
            "label": self.labels[0],
            "low": self.low.hex(),
            "high": self.high.hex(),
            "chain": self.chain.canonical(),
        } | ({"moments": self.moments} if self.moments > 1 else {})


class MeanRandomizer(Randomizer[Mean]):
    """Rounds a number, or its square, once to an end of the range and randomizes that bit."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Clip each number to the range and round it, once, to an end: 1 for high, 0 for low.

        Where squares are asked too, a coin decides, once, which of both a device answers about; squares are 2 and 3.
        """
        mean = self.specification
        numbers = mean.numbers(values)
        asked = below(mean.moments, len(numbers), bits) if mean.moments > 1 else np.zeros(len(numbers), dtype=np.int64)
        low, high = np.array(mean.ranges).T[:, asked]
        share = (np.where(asked == 1, numbers**2, numbers) - low) / (high - low)
        uniform = (bits.words(len(share)) >> np.uint64(11)) * 2.0**-53
        return np.asarray((uniform < share) + 2 * asked, dtype=np.int64)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        answers = self.specification.symbols(self.specification.chain.draw(self.truth(inputs), bits))
        return Drawn(answers, (inputs // 2).astype(np.uint16))

    def truth(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the end that each number was rounded to."""
        return inputs % 2


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False
