"""Personalised utility-optimised mechanism: what else is sensitive differs from person to person.

Each person may declare values of their own as sensitive, under a tag such as "home". The device sends the tag in
place of such a value, through uRR or uRAP; what a person declared never leaves the device (Murakami & Kawamoto).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.downgrade import Downgrade
from estimators.channels.noisy_sampling import one_hot_losses, sampling_epsilon
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Drawn, Guarantee, ParameterError, Quantity, Randomizer, Specification, index_of
from estimators.mechanisms.uldp import (
    at_most_one_told,
    bit_truths,
    draw_protected,
    pool_truths,
    protected_downgrade,
    urap_chain,
)
from estimators.parameters import at_least, refuse_unknown, some_values

Floats = NDArray[np.float64]
Base = Literal["urr", "urap"]


class PUM(Specification):
    """Send a tag in place of a personally sensitive value, through uRR or uRAP; spread the tags afterwards."""

    name = "pum"
    source = "Murakami & Kawamoto, Sec. 5, Eq. 20 to 23"
    corrections = (
        "Without background knowledge the other values are scaled to one minus the sensitive share, not to one.",
        "The error bound of Theorem 1 needs the absolute value of the tag's estimated share.",
        "A protected answer still informs: at epsilon = ln 625 a tag that is answered is true with probability 0.9.",
    )
    ladders = "Any increasing ladder, with the same sensitive values, tags and personal lists on every rung."
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "sensitive": "values that are sensitive for all people; default none",
        "tags": "names under which a person may declare further values as sensitive, at least one",
        "background": "table from tag to a table of shares over the other values, from knowledge of your own; a tag "
        "that is missing is spread like the other values",
        "base": "urr or urap; default urr",
    }
    guarantee = Guarantee(
        "A value that is sensitive, for all people or for this person, is never revealed for certain: any two values "
        "explain a protected answer equally well up to a factor e^epsilon. Other values may be revealed.",
        "Holds for sensitive values against a collector who sees every answer of the device; never seeing a value "
        "in many windows hints that it is personally sensitive.",
        protects="sensitive values",
    )

    # The share of a tag is part of several values' shares: their errors go together.
    adds_up = False

    def __init__(
        self,
        labels: Sequence[str],
        ladder: Sequence[float],
        *,
        tags: Sequence[str],
        sensitive: Sequence[str] = (),
        background: Mapping[str, Mapping[str, float]] | None = None,
        base: Base = "urr",
    ) -> None:
        self.labels = tuple(labels)
        self.ladder = tuple(float(level) for level in ladder)
        self.base, self.tags = base, tuple(tags)
        self.sensitive = tuple(label for label in labels if label in set(sensitive))
        self.others = tuple(label for label in labels if label not in set(sensitive))
        if not self.others:
            raise ParameterError(
                "sensitive", list(sensitive), "at least one value must not be sensitive for all people"
            )
        self.symbols_in_order = (*self.sensitive, *self.tags, *self.others)
        self.background = _backgrounds(self.tags, self.others, background or {})
        self.places = index_of(self.labels, (*self.sensitive, *self.others))
        protected = len(self.sensitive) + len(self.tags)
        self.chain: Chain | BitChain
        if base == "urr":
            self.answer = Answer("index", len(self.symbols_in_order))
            self.chain = Chain.retention(self.ladder, self.answer.size, pool=protected)
        else:
            self.answer = Answer("bits", len(self.symbols_in_order))
            self.chain = urap_chain(self.ladder, protected, len(self.others))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Self:
        """Build from values, `tags`, and optionally `sensitive`, `background` and `base`."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        tags = parameters.get("tags")
        if not isinstance(tags, list | tuple) or not tags or not all(isinstance(tag, str) and tag for tag in tags):
            raise ParameterError("tags", tags, 'must list at least one name, such as ["home"]')
        if len({*tags, *labels}) != len(tags) + len(labels):
            raise ParameterError("tags", list(tags), "every tag needs a name of its own, different from all values")
        base = parameters.get("base", "urr")
        if base not in ("urr", "urap"):
            raise ParameterError("base", base, "must be urr or urap")
        background = parameters.get("background", {})
        if not isinstance(background, Mapping) or not all(isinstance(row, Mapping) for row in background.values()):
            raise ParameterError("background", background, "must be a table from tag to shares of values")
        sensitive = some_values(parameters, "sensitive", labels) if parameters.get("sensitive") else ()
        return cls(labels, ladder, tags=tags, sensitive=sensitive, background=background, base=base)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact level of the protected answers of each prefix, rounded up."""
        if isinstance(self.chain, BitChain):
            return tuple(channel.one_hot_epsilon(quiet=(1,)) for channel in self.chain.channels)
        return tuple(channel.pool_epsilon for channel in self.chain.retention_channels)

    @cached_property
    def downgrade(self) -> Downgrade:
        """Coarser answers by the kernels of the chain."""
        return protected_downgrade(self.chain, self.answer.size)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent answer cost together, if all of them are protected."""
        if isinstance(self.chain, BitChain) and isinstance(sample.chain, BitChain):
            return one_hot_losses(self.chain.top, sample.chain.top, samples, quiet=(1,))
        return sampling_epsilon(self.ladder[0], sample.ladder[0], samples, len(self.sensitive) + len(self.tags))

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung the probability that the answer is the true value, or the tag of a personally sensitive one."""
        if isinstance(self.chain, BitChain):
            protected = len(self.sensitive) + len(self.tags)
            return tuple(bit_truths(channel, protected) for channel in self.chain.channels)
        return tuple(pool_truths(channel, "sensitive values and tags") for channel in self.chain.retention_channels)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The share of every value, personal or not."""
        meaning = "share of the devices that answered whose value this is, declared as sensitive or not"
        return tuple(Quantity(label, meaning=meaning, sensitive=label in self.sensitive) for label in self.labels)

    def replaced(self, value: Any) -> str:
        """Return the symbol of a person: the tag of a personally sensitive value, otherwise the value."""
        own, personal = declared_parts(value)
        if own not in self.labels:
            raise ParameterError("value", own, f"must be one of the survey's {len(self.labels)} values")
        if own in self.sensitive:
            return own
        for tag, declared in personal.items():
            if tag not in self.tags:
                raise ParameterError("personal", tag, f"must be one of the survey's tags: {', '.join(self.tags)}")
            if own in declared:
                return tag
        return own

    def valid(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which answers a correct device could have sent; of the bits of other values at most one is set."""
        plausible = super().valid(answers)
        if self.answer.kind == "index":
            return plausible
        protected = len(self.sensitive) + len(self.tags)
        return plausible & at_most_one_told(answers, protected, self.answer.size)

    def canonical(self) -> dict[str, Any]:
        """Return values, tags, backgrounds and integer thresholds."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "sensitive": list(self.sensitive),
            "tags": list(self.tags),
            "background": [None if row is None else [float(share).hex() for share in row] for row in self.background],
            "base": self.base,
            "chain": self.chain.canonical(),
        }


class PUMRandomizer(Randomizer[PUM]):
    """Replaces personally sensitive values by their tag, then draws as uRR or uRAP do."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Return the symbol of each person: the tag of a personally sensitive value, otherwise the value.

        A value is a string, or a table {"value": ..., "personal": {tag: [values]}}; the table stays on the device.
        """
        mechanism = self.specification
        return index_of([mechanism.replaced(value) for value in values], mechanism.symbols_in_order)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""
        return draw_protected(self.specification, self.specification.chain, inputs, bits)


def declared_parts(value: Any) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Return the value of a person and what they declared as sensitive, by tag."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("value"), str):
        personal = value.get("personal", {})
        if isinstance(personal, Mapping):
            return value["value"], personal
    raise ParameterError("value", value, 'must be a value or a table {"value": ..., "personal": {tag: [values]}}')


def _backgrounds(
    tags: Sequence[str], others: Sequence[str], given: Mapping[str, Mapping[str, float]]
) -> tuple[Floats | None, ...]:
    for tag, row in given.items():
        if tag not in tags:
            raise ParameterError("background", tag, f"must be one of the tags: {', '.join(tags)}")
        for value, share in row.items():
            if value not in others:
                raise ParameterError(f"background.{tag}", value, "must be a value that is not sensitive for all people")
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ParameterError(f"background.{tag}.{value}", share, "must be a share between 0 and 1")
        if abs(sum(row.values()) - 1) > 1e-9:
            raise ParameterError(f"background.{tag}", dict(row), "the shares must sum to 1")
    return tuple(np.array([given[tag].get(value, 0.0) for value in others]) if tag in given else None for tag in tags)
