"""The contracts of a mechanism: one specification, from which a device and a server each build their own object.

A *specification* says what a mechanism is: values, ladder, exact probabilities, costs, the form of an answer, and what
is estimated. A *randomizer* (device) draws answers. The server side, which needs scipy, is in `estimators.estimation`;
simulated true values are in `estimators.simulation`. All four are found by the name that survey files use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitChannel
from estimators.channels.continuing import Step
from estimators.channels.downgrade import Downgrade
from estimators.exact.randomness import Bits


class ParameterError(ValueError):
    """A parameter of a mechanism is wrong: field, value, remedy.

    >>> str(ParameterError("ladder", [2, 1], "levels must rise; sort them"))
    'ladder: levels must rise; sort them; got [2, 1]'
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}; got {value!r}")
        self.field, self.value, self.remedy = field, value, remedy

    def __reduce__(self) -> tuple[type[ParameterError], tuple[str, object, str]]:
        """Travel to another process: by default only the text would."""
        return ParameterError, (self.field, self.value, self.remedy)


@dataclass(frozen=True)
class Answer:
    """The form of one answer: a symbol out of `size` (kind index), or `size` bits packed little-endian (kind bits)."""

    kind: Literal["index", "bits"]
    size: int

    @property
    def width(self) -> int:
        """Bytes of one answer on the wire: 1, 2 or 4 for a symbol, as many as the bits need for a vector."""
        if self.kind == "bits":
            return -(-self.size // 8)
        return 1 if self.size <= 1 << 8 else 2 if self.size <= 1 << 16 else 4

    @property
    def cells(self) -> int:
        """Counters per rung and group: one per symbol, or one per bit (its ones)."""
        return self.size


@dataclass(frozen=True)
class Drawn:
    """The chains of n devices.

    answers: kind index: shape (rungs, n), dtype u1, u2 or u4 little-endian; kind bits: shape (rungs, n, width), dtype
    u1, bit j in byte j // 8 at position j % 8. groups: shape (n,), dtype u2 (zeros where the survey has one group).
    """

    answers: NDArray[Any]
    groups: NDArray[np.uint16]


@dataclass(frozen=True)
class OneHot:
    """Answers that are one-hot vectors, one bit per value: what the likelihood of whole reports needs.

    channels: one per rung. shielded: the first bits, whose probabilities are all the same on a rung; each other bit is
    set by its own value only. places[i]: the bit of label i.
    """

    channels: tuple[BitChannel, ...]
    shielded: int
    places: NDArray[np.int64]


Protection = Literal["every value", "sensitive values", "nothing"]
"""What stays hidden from whoever sees all answers of one device."""


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee: one sentence for the people whose data it is, the threat model, what is protected."""

    sentence: str
    threat_model: str
    protects: Protection = "every value"
    reveals_most: bool = False
    """Most people's value may be read from their answer, although sensitive ones are protected."""

    @property
    def local(self) -> bool:
        """Whether it is local differential privacy, for every value."""
        return self.protects == "every value"

    @property
    def is_risk(self) -> bool:
        """Whether a survey must state that it accepts the risk."""
        return self.protects == "nothing" or self.reveals_most


@dataclass(frozen=True)
class Attacker:
    """Someone who is after one person's value: what they see and know, and what is left of the guarantee."""

    sees: str
    learns: str
    epsilon: float | None = None
    """The loss against them; inf where it has no bound, None where it is no single number."""
    delta: float | None = None
    """The probability with which even that does not hold."""


QuantityKind = Literal["share", "mean"]
"""share: a part of all devices, between 0 and 1. mean: a number in a unit of its own."""


Subject = Literal["value", "string", "key"]
"""What a label names: a value of the survey, one string of an open list, or a key that a person may have."""


@dataclass(frozen=True)
class Quantity:
    """What a mechanism estimates under one label."""

    label: str
    kind: QuantityKind = "share"
    subject: Subject = "value"
    unit: str = ""
    """The unit of the numbers behind a mean; empty for shares, and where it is not known."""
    low: float = 0.0
    high: float = 1.0
    """The true quantity lies in [low, high]; an unbiased estimate may lie outside."""
    meaning: str = "share of the devices that answered whose value this is"
    """Completes the sentence: the bounds of this label are bounds of the ..."""
    name: str = ""
    """What people read in place of the label: the key of a key-value pair; empty where the label says it."""
    sensitive: bool = False
    """A value that must stay hidden, where the mechanism hides only some."""
    always_valid: bool = False
    """True if bounds that hold at every look exist, so that an alert may watch this quantity."""


class Specification(ABC):
    """One mechanism with fixed parameters and a ladder: everything that device and server must agree on. Immutable.

    Needs numpy alone. Subclasses build a chain of exact channels and state their texts, costs and quantities.
    """

    name: ClassVar[str]
    """The name in survey files."""
    source: ClassVar[str]
    """The paper, with section or algorithm."""
    corrections: ClassVar[tuple[str, ...]] = ()
    """Where the implementation departs from the printed paper, one sentence each."""
    ladders: ClassVar[str] = "Any increasing ladder."
    """When a sharper answer may follow, in one sentence."""
    parameters: ClassVar[Mapping[str, str]] = {}
    """What a survey may set beside values and ladder: name -> meaning and default."""
    methods: ClassVar[tuple[str, ...]] = ("pooled", "stratified", "mle")
    """The methods of combining rungs that the estimator offers."""
    exclusive: ClassVar[bool] = True
    """Every device has exactly one of the labels, so that their shares sum to one."""
    adds_up: ClassVar[bool] = True
    """Shares of several labels may be added up: a device has one of them, and one answer tells about each."""
    open_strings: bool = False
    """A device may answer about any string, and the labels are only candidates that the answers are decoded with."""
    guarantee: Guarantee

    labels: tuple[str, ...]
    """What is estimated, one label per entry of Estimates."""
    ladder: tuple[float, ...]
    """The levels asked for."""
    answer: Answer
    groups: int = 1
    copies: int = 1
    """Independent answers that one device sends for one value, each under its own token (k-randomization)."""
    cards: tuple[int, ...] = ()
    """Numbers of the cards of every face in a deck, where a dealer hands them out; one deck per group. Else empty."""
    least_devices: int = 0
    """Devices that a window must have before anything of it may be published; 0 where the guarantee needs no crowd."""

    @classmethod
    @abstractmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Specification:
        """Build from the survey file; raise ParameterError with field, value and remedy."""

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.ladder)

    @property
    @abstractmethod
    def epsilons(self) -> tuple[float, ...]:
        """What the first i + 1 answers of a chain cost the person, exact, rounded up, lowest rung first.

        For the whole record (all bits, all keys), for one window. inf where nothing local can be promised.
        """

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is estimated, one entry per label: by default the share of every value."""
        return tuple(Quantity(label) for label in self.labels)

    @property
    def leading(self) -> NDArray[np.bool_]:
        """Tell which labels are of the kind of the first: a share of a key and its mean have no width in common."""
        first, *_ = quantities = self.quantities
        kind = (first.kind, first.unit, first.low, first.high)
        return np.array([(one.kind, one.unit, one.low, one.high) == kind for one in quantities])

    @property
    def one_hot(self) -> OneHot | None:
        """How answers are one-hot vectors; None where they are something else."""
        return None

    @property
    def downgrade(self) -> Downgrade | None:
        """How a server draws coarser answers from sharper ones; None where an answer has no kernel of its own."""
        return None

    @property
    def truth_probabilities(self) -> tuple[Mapping[str, float], ...]:
        """Per rung and kind of value the probability that an answer is the true value.

        Empty where an answer is not a single value.
        """
        return ({},) * self.rungs

    def sampling_epsilon(self, sample: Self, samples: int) -> float:  # noqa: ARG002  # for those that can
        """Return what `samples` noisy samples of one permanent answer cost together.

        This specification has one level, that of the permanent answer; each sample is drawn from that answer by
        `sample`, the same mechanism at the level of one sample. Both levels, and the result, are those of a whole
        answer.
        """
        raise ParameterError(
            "release.kind", "noisy_sampling", f"{self.name} has no noisy samples: it has one level; list that level"
        )

    def steps_from(self, earlier: Specification) -> tuple[Step, ...]:  # noqa: ARG002  # for those that can
        """Return how chains of `earlier`, the same mechanism with a shorter ladder, go on: a step per new rung.

        Raises:
            ParameterError: this mechanism has no forward step.
            LadderError: its ladder does not continue that of `earlier`.
        """
        raise ParameterError("continues", self.name, "its answers cannot be continued; write a new survey")

    def choices(self) -> tuple[str, ...]:
        """Return which parameters were chosen for a survey that does not set them, and why, one sentence each."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """Return what should be changed about values, ladder or parameters although they are valid."""
        return ()

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return all that decoding depends on, integer thresholds as decimal strings; the survey id hashes it."""

    def valid(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which answers (shape (n,) or (n, width)) a correct device could have sent; never raises."""
        if self.answer.kind == "index":
            return np.asarray(answers < self.answer.size)
        spare = self.answer.width * 8 - self.answer.size
        if spare == 0:
            return np.ones(len(answers), dtype=np.bool_)
        return np.asarray(answers[:, -1] >> (8 - spare) == 0)

    @property
    def symbol_dtype(self) -> str:
        """The dtype of one symbol on the wire."""
        return {1: "u1", 2: "<u2", 4: "<u4"}[self.answer.width]

    def symbols(self, answers: NDArray[np.int64]) -> NDArray[Any]:
        """Return symbols in the dtype of the wire."""
        return answers.astype(self.symbol_dtype)


S = TypeVar("S", bound=Specification)


class Randomizer(ABC, Generic[S]):
    """The device side of a mechanism: turns true values into chains of answers."""

    def __init__(self, specification: S) -> None:
        self.specification = specification

    @abstractmethod
    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Check true values and turn them into chain inputs, drawing once what must be drawn once (rounding, sampling).

        They tell the value: a ledger keeps them sealed with a key that is not in it, or not at all. Raises
        ParameterError for a value outside the domain.
        """

    @abstractmethod
    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""

    def truth(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return what the top channel is given for chain inputs: the inputs themselves, if nothing else is said."""
        return inputs

    def draw_more(self, earlier: S, inputs: NDArray[Any], answers: NDArray[Any], bits: Bits) -> NDArray[Any]:
        """Draw the answers of all rungs that this ladder has above that of `earlier`, each from the one before.

        `answers` are those of the top rung of `earlier` for these chain inputs. The result is [rung, device, ...] in
        the form of `Drawn.answers`. Keep it: a second draw would cost more than its level.
        """
        specification, truth, found = self.specification, self.truth(inputs), []
        sharpest = answers.astype(np.int64) if specification.answer.kind == "index" else answers
        for step in specification.steps_from(earlier):
            sharpest = step.draw(truth, sharpest, bits)
            found.append(specification.symbols(sharpest) if specification.answer.kind == "index" else sharpest)
        return np.stack(found)


def index_of(values: Sequence[str], labels: Sequence[str], *, field: str = "value") -> NDArray[np.int64]:
    """Return the position of each value among the labels; ParameterError names the first unknown value."""
    position = {label: i for i, label in enumerate(labels)}
    try:
        return np.array([position[value] for value in values], dtype=np.int64)
    except (KeyError, TypeError):
        unknown = next(value for value in values if not isinstance(value, str) or value not in position)
        some = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
        raise ParameterError(field, unknown, f"must be one of the survey's {len(labels)} values ({some})") from None


def one_group(devices: int) -> NDArray[np.uint16]:
    """Return the groups of devices where the survey has one group."""
    return np.zeros(devices, dtype=np.uint16)
