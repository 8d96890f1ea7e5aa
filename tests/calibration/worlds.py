"""What is calibrated: every mechanism of the registry, with populations whose truth is known.

A world is a mechanism together with kinds of people: their true values, and how common each kind is. Mechanisms come
from the registry and from `tests.support.examples`, which every mechanism must be in; true quantities come from the
mechanism's simulator. A new mechanism is covered without a line here; a family whose true values are more than one of
the labels (keys, numbers, records) adds its own kinds of people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.mechanism import ParameterError, Specification
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.key_value import LPP, MINUS, PCKVUE, PLUS, KeyValue
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.pum import PUM
from estimators.mechanisms.registry import names
from estimators.simulation.simulator import simulator_of
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.mechanism import Mechanism, build

Floats = NDArray[np.float64]

SIZES = (2, 5, 50)
"""Numbers of values, where a mechanism takes any number."""
LADDERS = ((0.5, 1.0, 2.0), (1.0, 4.0), (0.1, 6.0))
VARIANTS: dict[str, dict[str, Any]] = {
    "simmons": {"coin": 0.2},
    "christofides": {"middle": 0.2},
    "improved_christofides": {"middle": 0.2, "block": 100},
    "rr3_dagger": {"p1": 0.7, "p2": 0.7},
    "rr3_ddagger": {"p1": 0.7, "p2": 0.8},
    "rr3_club": {"p1": 0.7, "p2": 0.8, "q": 0.8},
    "mean": {"low": -5, "high": 20, "unit": "degrees", "moments": 2},
    "pckv_ue": {"padding": 3},
    "rappor": {"bits": 32, "cohorts": 2, "hashes": 1},
    "mangat": {"sensitive": "no"},
    "urap": {"sensitive": ["a", "c"], "theta": 0.5},
    "pum": {"sensitive": ["a"], "tags": ["home", "work"], "base": "urap"},
    "k_randomization": {"least_records": 1_000, "copies": 4},
}
"""Other parameters than those of the examples, for every mechanism that has some."""
MEANS = (-1.0, -0.3, 0.0, 0.3, 1.0)
BIG, SMALL, FEW = 0.9, 0.02, 5


@dataclass(frozen=True)
class People:
    """Kinds of people: what each has, and the share of each kind in the population."""

    name: str
    values: tuple[Any, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class World:
    """A mechanism with kinds of people."""

    name: str
    ladder: tuple[float, ...]
    size: int
    people: People
    variant: bool = False
    """With the parameters of VARIANTS instead of the example's."""

    def __reduce__(self) -> tuple[type[World], tuple[Any, ...]]:
        """Travel to another process without what was computed from the fields."""
        return World, (self.name, self.ladder, self.size, self.people, self.variant)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism with all its sides."""
        example = example_of(self.name, variant=self.variant)
        return example.build(**arguments(example, self.size, self.ladder))

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """Numerators and denominators [kind, label] of the true quantities that one person of each kind adds."""
        pairs = [self.mechanism.simulator.truth_parts([value]) for value in self.people.values]
        return np.array([numerator for numerator, _ in pairs]), np.array([weight for _, weight in pairs])

    def truth(self, weights: Floats) -> Floats:
        """Return the true quantities of people of whom each kind has these numbers or shares; NaN where nobody."""
        numerators, denominators = (weights @ part for part in self.parts)
        blank = np.full(len(numerators), np.nan)
        return np.asarray(np.divide(numerators, denominators, out=blank, where=denominators > 0))

    @cached_property
    def classes(self) -> dict[str, NDArray[np.int64]]:
        """Labels by how common they are, or by their mean; labels without a truth are in no class."""
        found: dict[str, list[int]] = {}
        truth = self.truth(np.array(self.people.weights))
        for place, (quantity, true) in enumerate(zip(self.mechanism.specification.quantities, truth, strict=True)):
            if np.isfinite(true):
                kind = f"mean {true:.2g}" if quantity.kind == "mean" else share_class(float(true))
                found.setdefault(kind, []).append(place)
        return {kind: np.array(places) for kind, places in found.items()}

    @cached_property
    def cells(self) -> tuple[NDArray[np.int64], ...]:
        """The cells of a tally that tell about each label: its own one, those of its key, otherwise all."""
        specification = self.mechanism.specification
        size, labels = specification.answer.cells, len(specification.labels)
        if isinstance(specification, LPP):
            return tuple(np.array([3 * (i // 2) + PLUS, 3 * (i // 2) + MINUS]) for i in range(labels))
        if isinstance(specification, PCKVUE):
            return tuple(np.array([i // 2, labels // 2 + i // 2]) for i in range(labels))
        order = getattr(specification, "places", np.arange(labels))
        if size == labels:
            return tuple(np.array([place]) for place in order)
        return (np.arange(size),) * labels


def share_class(share: float) -> str:
    """Return a word for how common a value is."""
    if share <= 0.0:
        return "absent"
    if share >= 1.0 - 1e-12:
        return "all"
    return "big" if share >= 0.3 else "small"


def example_of(name: str, *, variant: bool = False) -> Example:
    """Return the example of a mechanism, or its variant."""
    found = next((example for example in EXAMPLES if example.name == name), None)
    if found is None:
        raise LookupError(f"mechanism {name!r} has no example; add one to tests/support/examples.py")
    return replace(found, parameters=VARIANTS[name]) if variant else found


def arguments(example: Example, size: int, ladder: tuple[float, ...]) -> dict[str, Any]:
    """Return what a mechanism is built from, with so many values and this ladder."""
    values = (*example.values, *(f"v{i}" for i in range(len(example.values), size)))[:size]
    # A parameter that lists values keeps those that are left.
    parameters = {
        key: [entry for entry in given if entry in values]
        if isinstance(given, list) and set(given) <= set(example.values)
        else given
        for key, given in example.parameters.items()
    }
    return {"values": values, "ladder": ladder, "parameters": parameters}


def possible(example: Example, size: int, ladder: tuple[float, ...]) -> bool:
    """Tell whether the mechanism takes so many values and this ladder."""
    chosen = arguments(example, size, ladder)
    try:
        build(example.name, chosen["values"], chosen["ladder"], chosen["parameters"])
    except ParameterError:
        return False
    return True


def sizes_of(example: Example) -> tuple[int, ...]:
    """Return the numbers of values to try."""
    taken = tuple(size for size in SIZES if possible(example, size, example.ladder))
    return taken or (len(example.values),)


def ladders_of(example: Example, size: int) -> tuple[tuple[float, ...], ...]:
    """Return the ladders to try; mechanisms with one level only have their own."""
    taken = tuple(ladder for ladder in LADDERS if possible(example, size, ladder))
    return taken or (example.ladder,)


def worlds(only: Collection[str] = (), *, sizes: Collection[int] = ()) -> Iterator[World]:
    """Yield every mechanism, size, ladder and population; of some mechanisms and sizes, if given."""
    for name in names():
        if only and name not in only:
            continue
        example = example_of(name)
        for size in sizes_of(example):
            if sizes and size not in sizes:
                continue
            for ladder in ladders_of(example, size):
                first = example.build(**arguments(example, size, ladder))
                for people in populations(first.specification):
                    yield World(name, ladder, size, people)
    for name in VARIANTS:
        if not sizes and (not only or name in only):
            yield from _variants(name)


def _variants(name: str) -> Iterator[World]:
    """Yield the variant of a mechanism with few values, one ladder and all populations."""
    example = example_of(name, variant=True)
    size = sizes_of(example)[:2][-1]
    ladder = ladders_of(example, size)[:2][-1]
    built = example.build(**arguments(example, size, ladder))
    for people in populations(built.specification):
        yield World(name, ladder, size, people, variant=True)


def populations(specification: Specification) -> tuple[People, ...]:
    """Return the populations of a mechanism."""
    if isinstance(specification, KeyValue):
        return key_value_people(specification)
    if isinstance(specification, Mean):
        return number_people(specification)
    if isinstance(specification, KRandomization):
        return record_people(specification)
    simulator = simulator_of(specification)
    picks = np.arange(simulator.kinds)
    # Odd words: plain values, where a word decides about more than the value.
    values = tuple(simulator.simulate(picks, np.ones(len(picks), dtype=np.uint64)))
    found = value_people(values)
    return tuple(declared(specification, people) for people in found) if isinstance(specification, PUM) else found


def value_people(values: Sequence[Any]) -> tuple[People, ...]:
    """One value is common, a few are rare and the rest absent; all equally common; everybody has the same."""
    kinds = len(values)
    few = min(FEW, max((kinds - 1) // 2, 1))
    uneven = np.zeros(kinds)
    uneven[1 : few + 1] = SMALL if kinds != 3 else 5 * SMALL
    uneven[0] = 1.0 - uneven.sum()
    single = np.zeros(kinds)
    single[0] = 1.0
    laws = {"uneven": uneven, "equal": np.full(kinds, 1.0 / kinds), "single": single}
    return tuple(People(name, tuple(values), tuple(law.tolist())) for name, law in laws.items())


def declared(specification: PUM, people: People) -> People:
    """A quarter of the people declare their value as sensitive, whatever it is."""
    tag = specification.tags[0]
    plain = [value if isinstance(value, str) else value["value"] for value in people.values]
    personal = [{"value": value, "personal": {tag: [value]}} for value in plain]
    weights = [0.75 * weight for weight in people.weights] + [0.25 * weight for weight in people.weights]
    return People(people.name, (*plain, *personal), tuple(weights))


def key_value_people(specification: KeyValue) -> tuple[People, ...]:
    """Means from -1 to 1, of equal values or of values at both ends; and keys that few people have."""
    keys = specification.keys
    chosen = [MEANS[i % len(MEANS)] for i in range(min(len(keys), len(MEANS)))] if len(keys) > 2 else [-1.0, 0.3]
    laws: list[tuple[str, list[float], list[float]]] = [
        ("means", [0.9 / len(chosen)] * len(chosen), chosen),
        ("rare keys", [0.9, *[0.02] * min(len(keys) - 1, 4)], [1.0, -1.0, 0.3, 0.0, -0.3][: min(len(keys), 5)]),
    ]
    if len(keys) == 2:
        laws.append(("other means", [0.45, 0.45], [0.0, 1.0]))
    found = []
    for name, shares, means in laws:
        values: list[dict[str, float]] = [{}]
        weights = [1.0 - sum(shares)]
        for place, (key, share, mean) in enumerate(zip(keys, shares, means, strict=False)):
            if place % 2 or abs(mean) == 1.0:
                values.append({key: mean})
                weights.append(share)
            else:
                values += [{key: 1.0}, {key: -1.0}]
                weights += [share * (1.0 + mean) / 2.0, share * (1.0 - mean) / 2.0]
        found.append(People(name, tuple(values), tuple(weights)))
    if specification.kept_keys > 1:
        pairs = tuple({key: 0.5, keys[(place + 1) % len(keys)]: -0.5} for place, key in enumerate(keys))
        found.append(People("two keys", ({}, *pairs), (0.2, *[0.8 / len(keys)] * len(keys))))
    return tuple(found)


def number_people(specification: Mean) -> tuple[People, ...]:
    """Numbers at one end, at both ends, and inside."""
    low, high = specification.low, specification.high
    inner = low + 0.3 * (high - low)
    return (
        People("lowest", (low, high), (1.0, 0.0)),
        People("both ends", (low, high), (0.98, 0.02)),
        People("inside", (inner, high), (0.9, 0.1)),
    )


def record_people(specification: KRandomization) -> tuple[People, ...]:
    """Records of which the first label is common and the second rare; and records that list everything or nothing."""
    labels = list(specification.labels)
    return (
        People("uneven", (labels[:1], labels[:2], []), (0.6, 0.02, 0.38)),
        People("single", (labels, []), (1.0, 0.0)),
    )


def encoded_alike(mechanism: Mechanism, value: Any) -> bool:
    """Tell whether a true value is always encoded to the same input."""
    first = mechanism.encode([value] * 64, SeededBits(1, "alike"))
    return bool(np.all(first == first[0]))
