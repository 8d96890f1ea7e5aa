"""RAPPOR: Bloom filters of any string, in cohorts; the permanent response is replaced by relaxation (Pan, Sec. 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain, BitRun
from estimators.channels.bits import BitChannel
from estimators.channels.bloom import MAX_HASHES, packed_filter
from estimators.channels.continuing import Step, steps
from estimators.channels.downgrade import BitDowngrade
from estimators.channels.noisy_sampling import bit_losses
from estimators.channels.response import EXACT
from estimators.exact.randomness import Bits, below
from estimators.mechanism import Answer, Drawn, Guarantee, ParameterError, Quantity, Randomizer, Specification
from estimators.parameters import at_least, refuse_unknown, whole_number

_COHORT_BYTES = 2


class RAPPOR(Specification):
    """Hash a string to a few bits of a filter, flip every bit with chance 1 / (e^(eps / 2h) + 1), relax bit by bit.

    A device draws its cohort anew for every window: a lasting one would be a small identifier.
    """

    name = "rappor"
    source = "Pan, Sec. 5.1 and Appendix E, F (RAPPOR's bits relaxed in place of noisy sampling)"
    corrections = (
        (
            "The levels of the paper are per bit; here a level is that of the whole string, which has up to 2h "
            "differing bits."
        ),
        (
            "With one sample both ways are equal; from two samples on relaxation is better, because whatever is said "
            "about a bit at some level can be had by coarsening randomized response at that level."
        ),
        "Appendix F: signs and factors between Eq. 129 and 133; Eq. 68 and 134 themselves are right.",
    )
    exclusive = adds_up = False
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "bits": "size of the filter, 2 to 65536; default 128",
        "hashes": f"bits that a string sets, 1 to {MAX_HASHES}; default 2",
        "cohorts": "groups with hash functions of their own, 1 to 4096; default 8",
        "open_list": "whether people may hold strings that are not among the values; default true",
    }
    guarantee = Guarantee(
        "All filters of one window together reveal no more than the sharpest one: any two strings explain them equally "
        "well up to a factor e^epsilon, whatever bits they share.",
        "Holds against a collector who sees every filter of the device, knows its cohort and everything about "
        "everybody else.",
    )

    def __init__(
        self,
        labels: Sequence[str],
        ladder: Sequence[float],
        *,
        bits: int = 128,
        hashes: int = 2,
        cohorts: int = 8,
        open_list: bool = True,
    ) -> None:
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.bits, self.hashes, self.groups, self.open_list = bits, hashes, cohorts, open_list
        self.open_strings = open_list
        self.answer = Answer("bits", bits)
        levels = [[BitRun(bits, EXACT.grr(level / (2 * hashes), 2))] for level in self.ladder]
        self.chain = BitChain.build(self.ladder, levels, self._cost)

    def _cost(self, channel: BitChannel) -> float:
        return channel.subset_epsilon(self.hashes)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> RAPPOR:
        """Build from the known strings; `bits`, `hashes`, `cohorts` and `open_list` are optional."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        open_list = parameters.get("open_list", True)
        if not isinstance(open_list, bool):
            raise ParameterError("open_list", open_list, "must be true or false")
        bits = whole_number(parameters, "bits", 128, low=2, high=1 << 16)
        return cls(
            at_least(values, 1, cls.name),
            ladder,
            bits=bits,
            hashes=whole_number(parameters, "hashes", 2, low=1, high=min(MAX_HASHES, bits)),
            cohorts=whole_number(parameters, "cohorts", 8, low=1, high=4096),
            open_list=open_list,
        )

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain for a whole string, rounded up."""
        return tuple(self._cost(channel) for channel in self.chain.channels)

    @cached_property
    def downgrade(self) -> BitDowngrade:
        """Coarser filters by the kernels of the bits; the cohort stays."""
        return BitDowngrade(self.chain.kernels, self.bits)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent filter cost together: 2h bits may differ."""
        pairs = zip(self.chain.top.blocks, sample.chain.top.blocks, strict=True)
        return self.hashes * sum(sum(bit_losses(own, noise, samples)) for own, noise in pairs)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every known string."""
        meaning = "share of the devices that answered whose string this is"
        return tuple(Quantity(label, subject="string", meaning=meaning) for label in self.labels)

    def steps_from(self, earlier: Specification) -> tuple[Step, ...]:
        """Return how chains of a shorter ladder go on."""
        assert isinstance(earlier, RAPPOR)
        return steps(earlier.chain, self.chain)

    def canonical(self) -> dict[str, Any]:
        """Return strings, filter and integer thresholds."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "bits": self.bits,
            "hashes": self.hashes,
            "cohorts": self.groups,
            "open_list": self.open_list,
            "chain": self.chain.canonical(),
        }


class RAPPORRandomizer(Randomizer[RAPPOR]):
    """Draws a cohort, hashes the string to a filter, and draws one noisy filter per rung."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Draw a cohort and return it (two bytes, little-endian) with the packed filter; any string will do."""
        rappor = self.specification
        cohorts = below(rappor.groups, len(values), bits).astype("<u2")
        inputs = np.empty((len(values), _COHORT_BYTES + rappor.answer.width), dtype=np.uint8)
        inputs[:, :_COHORT_BYTES] = cohorts.view(np.uint8).reshape(-1, _COHORT_BYTES)
        for row, value, cohort in zip(inputs, values, cohorts.tolist(), strict=True):
            if not isinstance(value, str) or not value:
                raise ParameterError("value", value, "must be a string that is not empty")
            filled = packed_filter(value, cohort, rappor.bits, rappor.hashes)
            row[_COHORT_BYTES:] = np.frombuffer(filled, dtype=np.uint8)
        return inputs

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        cohorts = np.ascontiguousarray(inputs[:, :_COHORT_BYTES]).view("<u2").reshape(-1).astype(np.uint16)
        return Drawn(self.specification.chain.draw(self.truth(inputs), bits), cohorts)

    def truth(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the filters, without the cohorts."""
        return np.ascontiguousarray(inputs[:, _COHORT_BYTES:])
