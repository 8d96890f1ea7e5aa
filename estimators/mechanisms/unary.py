"""Unary encoding: one bit per value, each bit randomized on its own; symmetric (SUE) or optimised (OUE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import one_hot
from estimators.channels.continuing import Step, steps
from estimators.channels.downgrade import BitDowngrade
from estimators.channels.noisy_sampling import one_hot_losses
from estimators.exact.randomness import Bits
from estimators.mechanism import (
    Answer,
    Drawn,
    Guarantee,
    OneHot,
    Quantity,
    Randomizer,
    Specification,
    index_of,
    one_group,
)
from estimators.parameters import at_least, refuse_unknown


class Unary(Specification):
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

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain between any two values, rounded up."""
        return tuple(channel.one_hot_epsilon() for channel in self.chain.channels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent vector cost together."""
        return one_hot_losses(self.chain.top, sample.chain.top, samples)

    @cached_property
    def downgrade(self) -> BitDowngrade:
        """Coarser vectors by the kernels of the bits."""
        return BitDowngrade(self.chain.kernels, len(self.labels))

    @property
    def one_hot(self) -> OneHot:
        """One bit per value, all alike."""
        return OneHot(self.chain.channels, len(self.labels), np.arange(len(self.labels)))

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every value, each bit on its own."""
        return tuple(Quantity(label, always_valid=True) for label in self.labels)

    def steps_from(self, earlier: Specification) -> tuple[Step, ...]:
        """Return how chains of a shorter ladder go on."""
        assert isinstance(earlier, Unary)
        return steps(earlier.chain, self.chain)

    def canonical(self) -> dict[str, Any]:
        """Return values and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.labels), "chain": self.chain.canonical()}


class UnaryRandomizer(Randomizer[Unary]):
    """Draws one bit vector per rung for the index of the value."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the index of each value."""
        return index_of(values, self.specification.labels)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        return Drawn(self.specification.chain.draw_one_hot(inputs, bits), one_group(len(inputs)))

    def truth(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the vectors with the bit of each value set."""
        return one_hot(inputs, self.specification.answer.size)


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
