"""What every mechanism offers: draw chains of answers on the device, turn a tally into estimates on the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.tally import Tally

if TYPE_CHECKING:
    from estimators.intervals.always_valid import YesNo


class ParameterError(ValueError):
    """A parameter of a mechanism cannot be right: which field, what came, what to do.

    >>> str(ParameterError("ladder", [2, 1], "levels must rise; sort them"))
    'ladder: levels must rise; sort them; got [2, 1]'
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}; got {value!r}")
        self.field, self.value, self.remedy = field, value, remedy


@dataclass(frozen=True)
class Answer:
    """How one answer looks: a symbol out of `size` (kind index), or `size` bits packed little-endian (kind bits)."""

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
class Guarantee:
    """What may be said to a person whose data it is: one sentence, the attacker it holds against, whether it is LDP."""

    sentence: str
    threat_model: str
    local: bool = True
    """False: not local differential privacy; a survey must accept the risk in so many words."""


class Mechanism(ABC):
    """One mechanism with fixed parameters and a ladder. Immutable; device and server use the same object.

    Subclasses are small: they build a chain of exact channels, say how a person's value becomes the chain's input
    (drawing once whatever must be drawn once), and how a tally becomes estimates.
    """

    name: ClassVar[str]
    """The word in survey files."""
    source: ClassVar[str]
    """The paper, with section or algorithm."""
    corrections: ClassVar[tuple[str, ...]] = ()
    """Where the implementation departs from the printed paper, one sentence each."""
    ladders: ClassVar[str] = "Any increasing ladder."
    """When a sharper answer may follow, in one sentence."""
    parameters: ClassVar[Mapping[str, str]] = {}
    """What a survey may set beside values and ladder: name -> meaning and default."""
    estimators: ClassVar[tuple[str, ...]] = ("pooled", "stratified", "mle")
    """The methods that `estimate` offers."""
    guarantee: Guarantee

    labels: tuple[str, ...]
    """What is estimated, one label per entry of Estimates."""
    ladder: tuple[float, ...]
    """The levels asked for."""
    answer: Answer
    groups: int = 1
    copies: int = 1
    """Independent answers that one device sends for one value, each under its own token (k-randomization)."""

    @classmethod
    @abstractmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Mechanism:
        """Build from what a survey file says; raise ParameterError with field, value and remedy."""

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

    @abstractmethod
    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Check true values and turn them into chain inputs, drawing once what must be drawn once (rounding, sampling).

        The result is what the ledger stores beside the answers. Raises ParameterError for a value outside the domain.
        """

    @abstractmethod
    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top."""

    @abstractmethod
    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Turn a tally into estimates. O(rungs x cells), independent of the number of users."""

    def yes_no(self, tally: Tally) -> YesNo | None:  # noqa: ARG002  # for those that can
        """See every label as a yes/no question of its own; None where answers do not allow it."""
        return None

    def always_valid(
        self, tally: Tally, *, alpha: float = 0.05
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return bounds per label that hold at all looks of a window's life together with probability 1 - alpha.

        For surveys whose rungs do not depend on values. None where the mechanism does not offer them.
        """
        questions = self.yes_no(tally)
        if questions is None:
            return None
        from estimators.intervals.always_valid import confidence_interval  # server side only: scipy

        return confidence_interval(questions, alpha)

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return all that decoding depends on, integer thresholds as decimal strings; the survey id hashes it."""

    @abstractmethod
    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the true quantity that `estimate` estimates, for a simulated fleet with these values."""

    def truth_parts(self, values: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return numerators and denominators of `truth` that add over parts of a fleet."""
        weights = np.full(len(self.labels), float(len(values)))
        return (self.truth(values) * weights if len(values) else np.zeros(len(self.labels))), weights

    @property
    def simulated_values(self) -> int:
        """Number of different true values that a simulated fleet picks from."""
        return len(self.labels)

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:  # noqa: ARG002
        """Turn picked value indices into true values as `encode` wants them, for simulated fleets only.

        words are spare uniform words, one per device, for mechanisms whose values have more to them than an index.
        """
        return np.array(self.labels, dtype=object)[picks]  # type: ignore[return-value]  # an array serves as a sequence

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


def index_of(values: Sequence[str], labels: Sequence[str], *, field: str = "value") -> NDArray[np.int64]:
    """Return the position of each value among the labels; ParameterError names the first stranger."""
    position = {label: i for i, label in enumerate(labels)}
    try:
        return np.array([position[value] for value in values], dtype=np.int64)
    except (KeyError, TypeError):
        stranger = next(value for value in values if not isinstance(value, str) or value not in position)
        some = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
        raise ParameterError(field, stranger, f"must be one of the survey's {len(labels)} values ({some})") from None
