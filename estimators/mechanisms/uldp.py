"""Some values are sensitive, the others are not: uRR, uRAP and Mangat's rule (Murakami & Kawamoto)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain, BitRun
from estimators.channels.bits import BitChannel, pack
from estimators.channels.chain import Chain
from estimators.channels.downgrade import BitDowngrade, Downgrade, SymbolDowngrade
from estimators.channels.nested import Retaining
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
from estimators.mechanisms.theta import best_thetas, mean_error
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

    @cached_property
    def downgrade(self) -> Downgrade:
        """Coarser answers by the kernels of the chain."""
        return protected_downgrade(self.chain, self.answer.size)

    @cached_property
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
    """Tell the value with probability (e^eps - 1) / (s + e^eps - 1), otherwise name one of the s sensitive values.

    The sensitive values may become fewer from rung to rung: `sensitive` then has one list per rung.
    """

    name = "urr"
    source = "Murakami & Kawamoto, Def. 4; ladders whose sensitive values become fewer: Pan's relaxation, generalised"
    ladders = "Any increasing ladder; the sensitive values are the same on every rung or become fewer, never more."
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "sensitive": f"{_SENSITIVE}. Or one such list per rung, lowest rung first, each within the one before it: a "
        "value that is left out is no longer hidden from that rung on",
    }
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "Maximum likelihood has a closed form; the EM of the paper is far from it at small levels after ten "
            "thousand rounds."
        ),
        "The error formulas hold without the condition that no more values are sensitive than not.",
    )

    def __init__(
        self,
        labels: Sequence[str],
        sensitive: Sequence[str],
        ladder: Sequence[float],
        *,
        by_rung: Sequence[Sequence[str]] = (),
    ) -> None:
        super().__init__(labels, sensitive, ladder)
        self.answer = Answer("index", len(self.labels))
        self.shrinks = any(set(level) != set(self.sensitive) for level in by_rung)
        self.sensitive_by_rung = tuple(
            tuple(label for label in self.labels if label in set(level))
            for level in (by_rung if self.shrinks else [self.sensitive] * len(self.ladder))
        )
        self.chain: Chain
        if self.shrinks:
            # Those that stay sensitive longest come first: on every rung the sensitive values are the first ones.
            kept = {label: sum(label in level for level in self.sensitive_by_rung) for label in self.labels}
            self.ordered = tuple(sorted(self.labels, key=lambda label: -kept[label]))
            self.places = index_of(self.labels, self.ordered)
            pools = [len(level) for level in self.sensitive_by_rung]
            self.chain = Chain.nested(self.ladder, len(self.labels), pools)
        else:
            self.chain = Chain.retention(self.ladder, len(self.labels), pool=len(self.sensitive))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from the values, of which `sensitive` lists some or all, once or for every rung."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        given = parameters.get("sensitive")
        if not isinstance(given, list | tuple) or not any(isinstance(entry, list | tuple) for entry in given):
            return cls(labels, some_values(parameters, "sensitive", labels), ladder)
        if len(given) != len(ladder):
            raise ParameterError(
                "sensitive",
                given,
                f"give one list for all rungs, or one for each; {len(given)} lists do not fit "
                f"{'one level' if len(ladder) == 1 else f'{len(ladder)} levels'} (noisy samples need one list)",
            )
        fields = {f"sensitive[{rung}]": level for rung, level in enumerate(given)}
        levels = [some_values(fields, field, labels) for field in fields]
        for rung, (before, after) in enumerate(pairwise(levels), start=1):
            more = [value for value in after if value not in before]
            if more:
                raise ParameterError(
                    f"sensitive[{rung}]",
                    more[0],
                    "a value that may have been revealed on the rung before cannot be hidden again; remove it here, or "
                    "add it to all rungs before",
                )
        return cls(labels, levels[-1], ladder, by_rung=levels)

    def warnings(self) -> tuple[str, ...]:
        """Return from which rung on a value is no longer hidden."""
        found = []
        for rung, (before, after) in enumerate(pairwise(self.sensitive_by_rung), start=1):
            lost = [label for label in before if label not in after]
            if lost:
                found.append(
                    f"from rung {rung} on {_listed(lost)} {'is' if len(lost) == 1 else 'are'} no longer sensitive: "
                    f"its answer may reveal {'it' if len(lost) == 1 else 'them'} for certain; people must know this "
                    "before their first answer"
                )
        return tuple(found)

    def canonical(self) -> dict[str, Any]:
        """Return values, the sensitive ones among them (of every rung where they differ), and integer thresholds."""
        found = super().canonical()
        return found | {"sensitive": [list(level) for level in self.sensitive_by_rung]} if self.shrinks else found

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
    ladders = UtilityOptimized.ladders
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
        (
            "The paper's theta is e^(eps/2)/(e^(eps/2)+1) (`symmetric`); the default here is the best one for even "
            "shares, up to 30 % better."
        ),
        "At theta = 1/2 the chance to tell another value is (e^eps - 1)/(2 e^eps), not (e^(eps/2) - 1)/(2 e^(eps/2)).",
        "Bits are inverted one by one, so shares need not sum to one; bit counts are not enough for full likelihood.",
    )
    parameters = {  # noqa: RUF012  # as above
        "sensitive": _SENSITIVE,
        "theta": "chance that the bit of a sensitive value is set when it is the person's, the same on every rung; or "
        "`symmetric`, the paper's e^(eps/2)/(e^(eps/2)+1) on every rung; default: on every rung the one with the "
        "smallest mean error if all values are equally frequent, in thousandths",
    }

    def __init__(
        self,
        labels: Sequence[str],
        sensitive: Sequence[str],
        ladder: Sequence[float],
        *,
        theta: float | Literal["symmetric"] | None = None,
    ) -> None:
        super().__init__(labels, sensitive, ladder)
        if isinstance(theta, float) and not 0 < theta < 1:
            raise ParameterError("theta", theta, "must lie between 0 and 1")
        self.theta = theta
        self.answer = Answer("bits", len(self.labels))
        values, hidden = len(self.labels), len(self.sensitive)
        self.thetas: tuple[Fraction, ...]
        if theta is None:
            self.thetas = best_thetas(self.ladder, hidden, values)
        elif isinstance(theta, float):
            self.thetas = (Fraction(theta),) * len(self.ladder)
        else:
            self.thetas = tuple(EXACT.sue(level).truth for level in self.ladder)
        self.chain: BitChain = urap_chain(self.ladder, hidden, values - hidden, self.thetas)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from the values, of which `sensitive` lists some or all; `theta` is optional."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        theta: float | Literal["symmetric"] | None = None
        if isinstance(parameters.get("theta"), str):
            if parameters["theta"] != "symmetric":
                raise ParameterError("theta", parameters["theta"], "must be a number or `symmetric`, or be left out")
            theta = "symmetric"
        elif "theta" in parameters:
            theta = real_number(parameters, "theta")
        return cls(labels, some_values(parameters, "sensitive", labels), ladder, theta=theta)

    def choices(self) -> tuple[str, ...]:
        """Return which theta was chosen, and why."""
        if self.theta is not None:
            return ()
        chosen = ", ".join(f"{float(theta):.4g}" for theta in self.thetas)
        top, values, hidden = self.ladder[-1], len(self.labels), len(self.sensitive)
        error, papers = (mean_error(top, theta, hidden, values) for theta in (self.thetas[-1], EXACT.sue(top).truth))
        sentence = (
            f"theta is {chosen} from the lowest rung to the top: it makes the mean error of a share smallest if all "
            f"values are equally frequent, {1 - error / papers:.1%} smaller on the top rung than with the paper's "
            "theta; `thaw plan` finds the best one for other shares"
        )
        return (sentence,)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact level of the protected answers of each prefix, rounded up."""
        return tuple(channel.one_hot_epsilon(quiet=(1,)) for channel in self.chain.channels)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent vector cost together, if all of them are protected."""
        return one_hot_losses(self.chain.top, sample.chain.top, samples, quiet=(1,))

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung how often a value that is not sensitive is told."""
        return tuple(bit_truths(channel, len(self.sensitive)) for channel in self.chain.channels)

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


def protected_downgrade(chain: Chain | BitChain, size: int) -> Downgrade:
    """Return how coarser symbols or bit vectors are drawn."""
    if isinstance(chain, BitChain):
        return BitDowngrade(chain.kernels, size)
    return SymbolDowngrade(chain.kernels, size)


def _listed(labels: Sequence[str]) -> str:
    shown = [repr(label) for label in labels[:5]]
    return ", ".join(shown) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def pool_truths(channel: Retaining, protected: str) -> dict[str, float]:
    """Return how often the protected values of a channel and all others are told."""
    truths = {protected: channel.truth}
    return truths | {"other values": channel.retention} if channel.pool < channel.size else truths


def bit_truths(channel: BitChannel, protected: int) -> dict[str, float]:
    """Return how often a value that is not protected is told by a vector: its bit is never set falsely.

    The bit of a protected value may be set for everybody, and is no answer by itself.
    """
    return {"other values": float(channel.ones[protected])} if protected < channel.size else {}


def urap_chain(
    ladder: Sequence[float], sensitive: int, others: int, thetas: Sequence[Fraction] | None = None
) -> BitChain:
    """Build the chain of bit vectors: first the sensitive bits, then those that are zero unless they tell the value.

    thetas: one per level; without them those of symmetric unary encoding.
    """
    levels = []
    for rung, epsilon in enumerate(ladder):
        bits = EXACT.urap(epsilon, None if thetas is None else thetas[rung])
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
