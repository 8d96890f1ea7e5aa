"""Generalised randomized response with gradual release (Pan)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Drawn, Guarantee, Mechanism, index_of
from estimators.parameters import refuse_unknown
from estimators.tally import Tally

if TYPE_CHECKING:
    from estimators.intervals.always_valid import YesNo


class GRR(Mechanism):
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
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.answer = Answer("index", len(self.labels))
        self.chain = Chain.retention(self.ladder, len(self.labels))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> GRR:
        """Build from values and ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        return cls(values, ladder)

    @property
    def channels(self) -> tuple[RetentionChannel, ...]:
        """The exact channel of every rung."""
        return tuple(channel for channel in self.chain.channels if isinstance(channel, RetentionChannel))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.channels)

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
        from estimators.inference.pooling import pool_retention  # server side only: scipy

        counts = tally.counts.sum(axis=1)
        return pool_retention(
            self.labels,
            self.channels,
            counts,
            tally.users.sum(axis=1),
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """See every value as the bit 'the answer is this value'."""
        from estimators.intervals.always_valid import YesNo  # server side only: scipy

        return YesNo.retention(self.channels, tally.counts.sum(axis=1), tally.users.sum(axis=1))

    def canonical(self) -> dict[str, Any]:
        """Return values and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.labels), "chain": self.chain.canonical()}

    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the share of every value among the fleet."""
        indices = index_of(values, self.labels)
        return np.bincount(indices, minlength=len(self.labels)) / max(len(indices), 1)
