"""K-randomization of yes-or-no records (Zhilyaev & Zeber): flipped copies of each record, totalled over a crowd."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels import crowd
from estimators.channels.bits import BitBlock, BitChannel, pack
from estimators.exact.randomness import Bits
from estimators.exact.rounding import GRID
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
from estimators.parameters import at_least, refuse_unknown, whole_number

_MAX_COPIES = 1024


class KRandomization(Specification):
    """A record of L bits leaves in k copies, every bit flipped with probability q, each copy under its own token.

    The one level of the ladder is the crowd's: q is chosen so that the total over `least_records` records has a
    likelihood ratio of at most e^level at three standard deviations. What one record pays is `epsilons`, far more.
    """

    name = "k_randomization"
    source = "Zhilyaev & Zeber, Eq. 0.19, 1.1, 1.23, 2.33"
    corrections = (
        (
            "It is not local privacy: the rule bounds the published total within three standard deviations, with a "
            "chance of failure that the paper does not state. It is computed here exactly, and the ledger is charged "
            "k L ln((1-q)/q)."
        ),
        (
            "Eq. 1.12 is an upper bound on 1/R, so the rule 1.23 is necessary, not sufficient: at k = 16 the ratio at "
            "three standard deviations is 2.05, not 2, and failures are three times as likely as at k = 1."
        ),
        (
            "Signs in 1.20 and 1.21; the L-th root in 2.30; the weight in 2.1.2 has no 1/N; the deviation of the first "
            "example is 6.0, not 5.6."
        ),
        "More copies do not help like the root of k: the deviation never falls below 3 / level.",
    )
    ladders = "One level only: more copies would reveal more, and a single answer of that cost is far more precise."
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "least_records": "number of honest records that every published window has for certain, 2 or more",
        "copies": "copies k of each record, 1 to 1024; default 1",
    }
    exclusive = adds_up = False
    methods = ("pooled",)
    guarantee = Guarantee(
        "The total of a window with enough honest records depends little on any one of them, except with "
        "probability delta; a party that sees the copies of one record learns up to k L ln((1-q)/q) about it.",
        "Holds only against someone who sees totals and no single copies, if copies cannot be linked and every window "
        "has the promised number of honest records; a collector who keeps the copies of a device sees through it.",
        protects="nothing",
    )

    def __init__(self, labels: Sequence[str], level: float, *, least_records: int, copies: int = 1) -> None:
        self.labels = tuple(labels)
        self.ladder = (float(level),)
        self.least_records, self.copies = least_records, copies
        self.least_devices = least_records
        self.answer = Answer("bits", len(self.labels))
        flip = crowd.flip_probability(least_records, math.exp(level), copies=copies, bits=len(self.labels))
        zero = math.ceil(flip * GRID)
        self.channel = BitChannel((BitBlock(len(self.labels), GRID - zero, zero),))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> KRandomization:
        """Build from the bits' names, the crowd's level and the size of the smallest crowd."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        if len(ladder) != 1 or not ladder[0] > 0:
            raise ParameterError("ladder", list(ladder), "k_randomization has exactly one level above 0, the crowd's")
        return cls(
            labels,
            ladder[0],
            least_records=whole_number(parameters, "least_records", None, low=2, high=10**12),
            copies=whole_number(parameters, "copies", 1, low=1, high=_MAX_COPIES),
        )

    @property
    def flip(self) -> float:
        """Probability that a bit of a copy is flipped."""
        return float(self.channel.zeros[0])

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """What a record pays to someone who can link its copies: k L ln((1 - q) / q), rounded up."""
        single = self.channel.flip_epsilon(len(self.labels))
        return (single if self.copies == 1 else math.nextafter(self.copies * single, math.inf),)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of devices for which each label holds."""
        meaning = "share of the devices that answered for which this label holds"
        return tuple(Quantity(label, meaning=meaning) for label in self.labels)

    def matrix(self, values: Sequence[Any]) -> NDArray[np.bool_]:
        """Return records as rows of bits; a record lists the labels that hold for it."""
        position = {label: i for i, label in enumerate(self.labels)}
        matrix = np.zeros((len(values), len(self.labels)), dtype=np.bool_)
        for row, value in enumerate(values):
            if isinstance(value, bool) and len(self.labels) == 1:
                matrix[row, 0] = value
                continue
            if isinstance(value, Set):
                raise ParameterError("value", value, "must be a list: the order of a set differs between processes")
            if isinstance(value, str | bytes) or not isinstance(value, Sequence):
                raise ParameterError(
                    "value", value, "must list the labels that hold (for one label also true or false)"
                )
            for label in value:
                if label not in position:
                    raise ParameterError("value", label, f"must be one of the labels {', '.join(self.labels)}")
                matrix[row, position[label]] = True
        return matrix

    def canonical(self) -> dict[str, Any]:
        """Return labels, copies and the integer thresholds."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "copies": self.copies,
            "least_records": self.least_records,
            "channel": self.channel.canonical(),
        }


class KRandomizer(Randomizer[KRandomization]):
    """Flips the bits of one copy of every record; the caller repeats the input once per copy."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Pack each record: a list of the labels that hold for it, or true / false where there is one label."""
        return pack(self.specification.matrix(values))

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw one copy of every record; the copies of a record are independent draws."""
        return Drawn(self.specification.channel.sample(inputs, bits)[None], one_group(len(inputs)))
