"""Unary encoding: one bit per value, each bit randomized on its own; symmetric (SUE) or optimised (OUE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Drawn, Guarantee, Mechanism, index_of
from estimators.parameters import at_least, refuse_unknown
from estimators.tally import Tally

if TYPE_CHECKING:
    from estimators.intervals.always_valid import YesNo


class Unary(Mechanism):
    """A one-hot vector, every bit through its own channel. Better than one symbol when there are many values."""

    guarantee = Guarantee(
        "All vectors of one window together reveal no more than the sharpest one: any two values explain them equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every bit of every answer of the device and knows everything about "
        "everybody else.",
    )
    chain: BitChain
    encoding: ClassVar[str]

    def __init__(self, labels: Sequence[str], ladder: Sequence[float]) -> None:
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.answer = Answer("bits", len(self.labels))
        self.chain = (BitChain.sue if self.encoding == "symmetric" else BitChain.oue)(self.ladder, len(self.labels))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from values and ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        return cls(at_least(values, 1, cls.name), ladder)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain between any two values, rounded up."""
        return tuple(channel.one_hot_epsilon() for channel in self.chain.channels)

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the index of each value."""
        return index_of(values, self.labels)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        return Drawn(self.chain.draw_one_hot(inputs, bits), np.zeros(len(inputs), dtype=np.uint16))

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of every value, each bit on its own; the estimates need not sum to one."""
        from estimators.inference.pooling_bits import pool_bits  # server side only: scipy

        channels = self.chain.channels
        return pool_bits(
            self.labels,
            np.array([channel.ones for channel in channels]),
            np.array([channel.zeros for channel in channels]),
            tally.counts.sum(axis=1),
            tally.users.sum(axis=1),
            method=method,
            population=population,
            alpha=alpha,
        )

    def yes_no(self, tally: Tally) -> YesNo:
        """Return the bits themselves."""
        from estimators.intervals.always_valid import YesNo  # server side only: scipy

        truth, lie = ([getattr(channel, name) for channel in self.chain.channels] for name in ("ones", "zeros"))
        return YesNo.of(truth, lie, tally.counts.sum(axis=1), tally.users.sum(axis=1))

    def canonical(self) -> dict[str, Any]:
        """Return values and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.labels), "chain": self.chain.canonical()}

    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the share of every value among the fleet."""
        indices = index_of(values, self.labels)
        return np.bincount(indices, minlength=len(self.labels)) / max(len(indices), 1)


class SUE(Unary):
    """Symmetric unary encoding, the basic one-hot RAPPOR: every bit is flipped with chance 1 / (e^(eps/2) + 1)."""

    name = "sue"
    encoding = "symmetric"
    source = "Pan, Sec. 5.1 (bits of RAPPOR, relaxed); Murakami & Kawamoto (basic RAPPOR)"
    corrections = (
        "The level is that of the whole vector: two one-hot vectors differ in two bits, so each bit has half of it.",
        (
            "Bits are inverted one by one; the shares then need not sum to one (Murakami & Kawamoto's Eq. 3 cannot be "
            "solved for 2^m answers)."
        ),
    )


class OUE(Unary):
    """Optimised unary encoding: the set bit becomes a fair coin, the others are set with chance 1 / (e^eps + 1)."""

    name = "oue"
    encoding = "optimised"
    source = "Murakami & Kawamoto (generalised RAPPOR with theta = 1/2); relaxation by Pan's theorem per bit"
    corrections = (
        (
            "One symbol (GRR) is not optimal for many values, as Pan claims: from about 3 e^eps + 2 values on, this "
            "encoding has the smaller variance."
        ),
    )
