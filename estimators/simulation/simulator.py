"""True values of simulated fleets and their true quantities, for every mechanism by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count, islice
from typing import Any, ClassVar, Generic

import numpy as np
from numpy.typing import NDArray

from estimators.mechanism import S, Specification, index_of
from estimators.mechanisms.improved_christofides import ImprovedChristofides
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.key_value import KeyValue
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.pum import PUM, declared_parts
from estimators.mechanisms.rappor import RAPPOR

Floats = NDArray[np.float64]

_NUMBERS = 101
"""Different numbers that a simulated fleet picks from where values are numbers."""
_OUTSIDE, _OTHERS = 16, 1_024
"""One in so many devices holds a string that is not among the candidates, and how many of those there are: enough that
their bits are spread as evenly as decoding takes them to be."""


class Simulator(Generic[S]):
    """Simulated true values of one mechanism: by default one of the labels, and the share of each."""

    jointly_encoded: ClassVar[str] = ""
    """Why the values of a whole fleet must be encoded in one call, where they must."""

    def __init__(self, specification: S) -> None:
        self.specification = specification

    @property
    def kinds(self) -> int:
        """Number of different true values that a simulated fleet picks from."""
        return len(self.specification.labels)

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:  # noqa: ARG002
        """Turn picked value indices into true values as the randomizer's `encode` takes them.

        words are spare uniform words, one per device, for mechanisms whose values have more to them than an index.
        """
        return np.array(self.specification.labels, dtype=object)[picks]  # type: ignore[return-value]  # an array serves

    def populate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Return `simulate` of a whole fleet, and where devices may hold values that nobody listed, a few of those."""
        return self.simulate(picks, words)

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the true quantities that the estimator estimates, for a fleet with these values."""
        labels = self.specification.labels
        return np.bincount(index_of(values, labels), minlength=len(labels)) / max(len(values), 1)

    def truth_parts(self, values: Sequence[Any]) -> tuple[Floats, Floats]:
        """Return numerators and denominators of `truth` that add over parts of a fleet."""
        labels = len(self.specification.labels)
        weights = np.full(labels, float(len(values)))
        return (self.truth(values) * weights if len(values) else np.zeros(labels)), weights


class MeanSimulator(Simulator[Mean]):
    """Numbers on an even grid over the range."""

    @property
    def kinds(self) -> int:
        """Number of different numbers."""
        return _NUMBERS

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:  # noqa: ARG002
        """Return numbers on an even grid over the range."""
        low, high = self.specification.low, self.specification.high
        numbers: list[float] = (low + (high - low) * picks / (_NUMBERS - 1)).tolist()
        return numbers

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the mean of the numbers, each clipped to the range, and that of their squares where it is asked."""
        numbers = self.specification.numbers(values)
        powers = range(1, self.specification.moments + 1)
        return np.array([(numbers**power).mean() if len(values) else np.nan for power in powers])


class RAPPORSimulator(Simulator[RAPPOR]):
    """Known strings; a fleet may hold others."""

    def populate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Return the picked strings; with an open list every sixteenth device holds one of many that nobody knows."""
        values = np.array(self.specification.labels, dtype=object)[picks]
        if self.specification.open_list:
            known = set(self.specification.labels)
            names = (f"another string {number}" for number in count())
            others = np.array(list(islice((name for name in names if name not in known), _OTHERS)), dtype=object)
            outside = words % _OUTSIDE == 0
            values[outside] = others[(words[outside] // _OUTSIDE % _OTHERS).astype(np.int64)]
        return values  # type: ignore[return-value]  # an array serves

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the share of every known string among the fleet."""
        labels = self.specification.labels
        position = {label: i for i, label in enumerate(labels)}
        known = [position[value] for value in values if value in position]
        return np.bincount(np.array(known, dtype=np.int64), minlength=len(labels)) / max(len(values), 1)


class PUMSimulator(Simulator[PUM]):
    """Values of which some are declared as sensitive by the person."""

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Return people of whom a quarter have declared their value under a tag, whatever the value."""
        labels, tags = self.specification.labels, self.specification.tags
        return [
            {"value": labels[pick], "personal": {tags[word // 4 % len(tags)]: [labels[pick]]}}
            if word % 4 == 0
            else labels[pick]
            for pick, word in zip(picks.tolist(), words.tolist(), strict=True)
        ]

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the share of every value among the fleet, personal or not."""
        return super().truth([declared_parts(value)[0] for value in values])


class DeckSimulator(Simulator[ImprovedChristofides]):
    """Values of people who are dealt cards."""

    jointly_encoded = "has one dealer"

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the share of both values among the fleet."""
        return super().truth([value["value"] if isinstance(value, Mapping) else value for value in values])


class RecordSimulator(Simulator[KRandomization]):
    """Records of labels that hold."""

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Return records: the picked label, each other one with a chance of a quarter; a single label in a third."""
        labels = self.specification.labels
        if len(labels) == 1:
            return [bool(word % 3 == 0) for word in words.tolist()]
        return [
            [label for j, label in enumerate(labels) if j == pick or word >> (2 * j % 60) & 3 == 3]
            for pick, word in zip(picks.tolist(), words.tolist(), strict=True)
        ]

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the share of records with each bit set."""
        return np.asarray(self.specification.matrix(values).sum(axis=0) / max(len(values), 1))


class KeyValueSimulator(Simulator[KeyValue]):
    """Tables of one or two keys with values in [-1, 1]."""

    @property
    def kinds(self) -> int:
        """One kind of simulated person per key."""
        return len(self.specification.keys)

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Give each person the picked key, and every second one a neighbouring key; values differ in law by key."""
        keys = self.specification.keys
        # The low bits of a word are free: picking a value looks at its high bits.
        second = (words & np.uint64(1)).astype(np.bool_) & (self.specification.kept_keys > 1) & (len(keys) > 1)
        first_unit = ((words >> np.uint64(1)) & np.uint64(0xFFFF)).astype(np.float64) / 0x10000
        second_unit = ((words >> np.uint64(17)) & np.uint64(0xFFF)).astype(np.float64) / 0x1000
        people: list[dict[str, float]] = []
        for pick, more, u, v in zip(
            picks.tolist(), second.tolist(), first_unit.tolist(), second_unit.tolist(), strict=True
        ):
            person = {keys[pick]: 2.0 * u ** (1 + pick % 3) - 1.0}
            if more:
                following = (pick + 1) % len(keys)
                person[keys[following]] = 2.0 * v ** (1 + following % 3) - 1.0
            people.append(person)
        return people

    def truth(self, values: Sequence[Any]) -> Floats:
        """Return the share of people with each key and the mean of their values (NaN without holders)."""
        numerators, denominators = self.truth_parts(values)
        blank = np.full(len(numerators), np.nan)
        return np.asarray(np.divide(numerators, denominators, out=blank, where=denominators > 0))

    def truth_parts(self, values: Sequence[Any]) -> tuple[Floats, Floats]:
        """Return numerators and denominators of `truth`: holders over people, and sums of values over holders."""
        mechanism = self.specification
        holders, sums = np.zeros(len(mechanism.keys)), np.zeros(len(mechanism.keys))
        for person in values:
            for key, value in person.items():
                holders[mechanism.position[key]] += 1.0
                sums[mechanism.position[key]] += value
        people = np.full(len(mechanism.keys), float(len(values)))
        return np.stack([holders, sums], axis=1).reshape(-1), np.stack([people, holders], axis=1).reshape(-1)


_SIMULATORS: dict[str, type[Simulator[Any]]] = {
    "mean": MeanSimulator,
    "rappor": RAPPORSimulator,
    "pum": PUMSimulator,
    "improved_christofides": DeckSimulator,
    "k_randomization": RecordSimulator,
    "lpp": KeyValueSimulator,
    "pckv_ue": KeyValueSimulator,
}
"""Mechanisms whose true values are more than one of the labels."""


@lru_cache(maxsize=256)
def simulator_of(specification: Specification) -> Simulator[Any]:
    """Return the simulated values of a mechanism. One object per specification."""
    return _SIMULATORS.get(specification.name, Simulator)(specification)
