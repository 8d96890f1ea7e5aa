"""Mechanisms that answer with one symbol per person, drawn through one chain of channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.continuing import Step, steps
from estimators.channels.downgrade import SymbolDowngrade
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Drawn, Randomizer, Specification, index_of, one_group


class SymbolSpecification(Specification):
    """One value out of a list becomes one symbol; the channel of every rung is exact."""

    def __init__(self, labels: Sequence[str], ladder: Sequence[float], chain: Chain) -> None:
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.chain = chain
        self.answer = Answer("index", chain.top.outputs)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.chain.channels)

    @cached_property
    def downgrade(self) -> SymbolDowngrade:
        """Coarser symbols by the kernels of the chain."""
        return SymbolDowngrade(self.chain.kernels, self.chain.top.outputs)

    def steps_from(self, earlier: Specification) -> tuple[Step, ...]:
        """Return how chains of a shorter ladder go on."""
        assert isinstance(earlier, SymbolSpecification)
        return steps(earlier.chain, self.chain)

    def canonical(self) -> dict[str, Any]:
        """Return values and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.labels), "chain": self.chain.canonical()}


class SymbolRandomizer(Randomizer[SymbolSpecification]):
    """Draws one symbol per rung for the index of the value."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the index of each value."""
        return index_of(values, self.specification.labels)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        answers = self.specification.chain.draw(inputs, bits, dtype=self.specification.symbol_dtype)
        return Drawn(answers, one_group(len(inputs)))
