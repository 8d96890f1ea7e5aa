"""Some values are sensitive, the others are not: uRR, uRAP and Mangat's rule (Murakami & Kawamoto)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain, BitRun
from estimators.channels.bits import BitChannel, pack
from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.channels.noisy_sampling import one_hot_losses, sampling_epsilon
from estimators.channels.response import EXACT
from estimators.exact.randomness import Bits
from estimators.mechanism import (
    Answer,
    Drawn,
    Guarantee,
    OneHot,
    ParameterError,
    Quantity,
    Randomizer,
    Specification,
    index_of,
    one_group,
)
from estimators.parameters import at_least, real_number, refuse_unknown, some_values

_SENSITIVE = "the values that must be hidden; all others may be revealed"


class UtilityOptimized(Specification):
    """Values of which some are sensitive. Answers are in the order sensitive first; labels keep the survey's order."""

    guarantee = Guarantee(
        "A sensitive value is never revealed for certain: any two values explain a protected answer equally well up to "
        "a factor e^epsilon. A value that is not sensitive may be revealed.",
        "Holds for sensitive values against a collector who sees every answer of the device and knows everything about "
        "everybody else; it promises nothing for the other values.",
        protects="sensitive values",
    )
    ladders = "Any increasing ladder, with the same sensitive values on every rung."
    parameters = {"sensitive": _SENSITIVE}  # noqa: RUF012  # a ClassVar of the base class
    chain: Chain | BitChain

    def __init__(self, labels: Sequence[str], sensitive: Sequence[str], ladder: Sequence[float]) -> None:
        self.labels = tuple(labels)
        self.sensitive = tuple(label for label in labels if label in set(sensitive))
        self.ladder = tuple(float(level) for level in ladder)
        others = tuple(label for label in labels if label not in set(sensitive))
        self.ordered = (*self.sensitive, *others)
        self.places = index_of(self.labels, self.ordered)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from the values, of which `sensitive` lists some or all."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        return cls(labels, some_values(parameters, "sensitive", labels), ladder)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every value, sensitive or not."""
        return tuple(Quantity(label, sensitive=label in self.sensitive, always_valid=True) for label in self.labels)

    def canonical(self) -> dict[str, Any]:
        """Return values, the sensitive ones among them, and integer thresholds."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "sensitive": list(self.sensitive),
            "chain": self.chain.canonical(),
        }


class URR(UtilityOptimized):
    """Tell the value with probability (e^eps - 1) / (s + e^eps - 1), otherwise name one of the s sensitive values."""

    name = "urr"
    source = "Murakami & Kawamoto, Def. 4"
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "Maximum likelihood has a closed form; the EM of the paper is far from it at small levels after ten "
            "thousand rounds."
        ),
        "The error formulas hold without the condition that no more values are sensitive than not.",
    )

    def __init__(self, labels: Sequence[str], sensitive: Sequence[str], ladder: Sequence[float]) -> None:
        super().__init__(labels, sensitive, ladder)
        self.answer = Answer("index", len(self.labels))
        self.chain: Chain = Chain.retention(self.ladder, len(self.labels), pool=len(self.sensitive))

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact level of the protected answers of each prefix, rounded up."""
        return tuple(channel.pool_epsilon for channel in self.chain.retention_channels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent value cost together, if all of them are protected."""
        return sampling_epsilon(self.ladder[0], sample.ladder[0], samples, len(self.sensitive))

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung the probability that the answer is the true value, for sensitive values and for the others."""
        return tuple(pool_truths(channel, "sensitive values") for channel in self.chain.retention_channels)


class Mangat(URR):
    """A person with the sensitive value says so; the others say so too with probability e^-eps."""

    name = "mangat"
    source = "Mangat's rule: Murakami & Kawamoto, Sec. 3.1 (uRR with two values, one of them sensitive)"
    corrections = ()
    guarantee = Guarantee(
        "A person with the sensitive value is never known to have it: the answer that names it could come from the "
        "other value, up to a factor e^epsilon. The other answer is certain: it tells that a person does not have it.",
        "Holds for people with the sensitive value against a collector who sees every answer of the device and knows "
        "everything about everybody else; all others may be known not to have it, and at high levels most of them are.",
        protects="sensitive values",
        reveals_most=True,
    )
    parameters = {"sensitive": "the value that must be hidden; default the first"}  # noqa: RUF012  # as above

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from two values; `sensitive` names one of them."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        if len(values) != 2:
            raise ParameterError("values", list(values), "mangat needs exactly two, one of them sensitive")
        sensitive = parameters.get("sensitive", values[0])
        if sensitive not in values:
            raise ParameterError(
                "sensitive", sensitive, f"must be one of the two values {values[0]!r} and {values[1]!r}"
            )
        return cls(values, (sensitive,), ladder)


class URAP(UtilityOptimized):
    """One bit per value: a sensitive bit is flipped both ways; any other bit may be cleared, never falsely set."""

    name = "urap"
    source = "Murakami & Kawamoto, Def. 5"
    corrections = (
        "The default theta is e^(eps/2)/(e^(eps/2)+1); other choices can be up to 30 % better and can be set.",
        "At theta = 1/2 the chance to tell another value is (e^eps - 1)/(2 e^eps), not (e^(eps/2) - 1)/(2 e^(eps/2)).",
        "Bits are inverted one by one, so shares need not sum to one; bit counts are not enough for full likelihood.",
    )
    parameters = {  # noqa: RUF012  # as above
        "sensitive": _SENSITIVE,
        "theta": "chance that the bit of a sensitive value is set when it is the person's; default "
        "e^(eps/2)/(e^(eps/2)+1) on every rung",
    }

    def __init__(
        self, labels: Sequence[str], sensitive: Sequence[str], ladder: Sequence[float], *, theta: float | None = None
    ) -> None:
        super().__init__(labels, sensitive, ladder)
        if theta is not None and not 0 < theta < 1:
            raise ParameterError("theta", theta, "must lie between 0 and 1")
        self.theta = theta
        self.answer = Answer("bits", len(self.labels))
        self.chain: BitChain = urap_chain(
            self.ladder, len(self.sensitive), len(self.labels) - len(self.sensitive), theta
        )

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from the values, of which `sensitive` lists some or all; `theta` is optional."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        theta = real_number(parameters, "theta") if "theta" in parameters else None
        return cls(labels, some_values(parameters, "sensitive", labels), ladder, theta=theta)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact level of the protected answers of each prefix, rounded up."""
        return tuple(channel.one_hot_epsilon(quiet=(1,)) for channel in self.chain.channels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent vector cost together, if all of them are protected."""
        return one_hot_losses(self.chain.top, sample.chain.top, samples, quiet=(1,))

    @property
    def one_hot(self) -> OneHot:
        """One bit per value, those of sensitive values first."""
        return OneHot(self.chain.channels, len(self.sensitive), self.places)

    def valid(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which vectors a correct device could have sent: at most one bit of a value that is not sensitive."""
        return super().valid(answers) & at_most_one_told(answers, len(self.sensitive), len(self.labels))


class UtilityOptimizedRandomizer(Randomizer[UtilityOptimized]):
    """Draws a symbol (uRR, Mangat) or a bit vector (uRAP) per rung for the index of the value, sensitive first."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the index of each value, sensitive values first."""
        return index_of(values, self.specification.ordered)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        return draw_protected(self.specification, self.specification.chain, inputs, bits)


def draw_protected(mechanism: Specification, chain: Chain | BitChain, inputs: NDArray[Any], bits: Bits) -> Drawn:
    """Draw chains of symbols or of one-hot bit vectors."""
    if isinstance(chain, BitChain):
        return Drawn(chain.draw_one_hot(inputs, bits), one_group(len(inputs)))
    return Drawn(mechanism.symbols(chain.draw(inputs, bits)), one_group(len(inputs)))


def pool_truths(channel: RetentionChannel, protected: str) -> dict[str, float]:
    """Return how often the protected values of a channel and all others are told."""
    truths = {protected: channel.truth}
    return truths | {"other values": channel.retention} if channel.pool < channel.size else truths


def urap_chain(ladder: Sequence[float], sensitive: int, others: int, theta: float | None = None) -> BitChain:
    """Build the chain of bit vectors: first the sensitive bits, then those that are zero unless they tell the value."""
    own = None if theta is None else Fraction(theta)
    levels = []
    for epsilon in ladder:
        bits = EXACT.urap(epsilon, own)
        hidden = [BitRun(sensitive, bits.sensitive)]
        levels.append([*hidden, BitRun(others, bits.other)] if others else hidden)
    return BitChain.build(ladder, levels, _protected_epsilon)


def at_most_one_told(answers: NDArray[Any], sensitive: int, size: int) -> NDArray[np.bool_]:
    """Tell which packed vectors have at most one bit set from position `sensitive` on."""
    mask = np.zeros((1, size), dtype=np.bool_)
    mask[0, sensitive:] = True
    return np.asarray(np.bitwise_count(answers & pack(mask)).sum(axis=1, dtype=np.int64) <= 1)


def _protected_epsilon(channel: BitChannel) -> float:
    return channel.one_hot_epsilon(quiet=(1,))
