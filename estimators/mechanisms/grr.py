"""Generalised randomized response with gradual release (Pan)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from estimators.channels.chain import Chain
from estimators.channels.moments import most_values
from estimators.channels.noisy_sampling import sampling_epsilon
from estimators.mechanism import Guarantee, Quantity
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.parameters import refuse_unknown


class GRR(SymbolSpecification):
    """Tell the value with probability e^eps / (e^eps + m - 1), any other value otherwise."""

    name = "grr"
    source = "Pan, Eq. 5 and 50 (generalised randomized response, gradual release)"
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "Chains are drawn from the highest level down; the joint law is that of Algorithm 1, and rounding the "
            "probabilities to integers cannot raise the cost of any prefix."
        ),
    )
    guarantee = Guarantee(
        "All answers of one window together reveal no more than its sharpest one: any two values explain them equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
    )

    def __init__(self, labels: Sequence[str], ladder: Sequence[float]) -> None:
        super().__init__(labels, ladder, Chain.retention([float(level) for level in ladder], len(labels)))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> GRR:
        """Build from values and ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        return cls(values, ladder)

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every value."""
        return tuple(Quantity(label, always_valid=True) for label in self.labels)

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung the probability that the answer is the true value: the same for all values."""
        return tuple({"every value": channel.truth} for channel in self.chain.retention_channels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent value cost together."""
        return sampling_epsilon(self.ladder[0], sample.ladder[0], samples, len(self.labels))

    def warnings(self) -> tuple[str, ...]:
        """Return that unary encoding would be more precise, if there are too many values for one symbol."""
        top, values = self.ladder[-1], len(self.labels)
        if values <= most_values(top):
            return ()
        advice = (
            f"{values} values are many for {self.name} at epsilon {top:g}: above 3 e^epsilon + 2 = "
            f"{most_values(top):.0f} of them, oue gives narrower bands at the same cost"
        )
        return (advice,)
