"""Totals and averages of the graph of people and keys, and their bands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from estimators.estimates import Derived, Population
from estimators.inference.key_value import KeyValueParameters
from estimators.inference.key_value_pooling import KeyValueCounts, pool_key_values
from estimators.mechanisms.key_value import LPP, PCKVUE
from tests.support.mechanism import whole
from tests.support.simulate import simulated_tally, simulated_values

KEYS = ["bread", "milk", "salt"]
LADDER = [0.5, 1.0, 3.0]


@pytest.mark.parametrize("name", ["lpp", "pckv_ue"])
@pytest.mark.parametrize("method", ["pooled", "stratified"])
def test_a_graph_adds_up_its_items(name: str, method: Any) -> None:
    kind = LPP if name == "lpp" else PCKVUE
    parameters = {} if name == "lpp" else {"padding": 3}
    mechanism = whole(kind.build(KEYS, LADDER, parameters))
    people = simulated_values(mechanism, 30_000, 9)
    tally = simulated_tally(mechanism, people, 9)
    derived = {one.name: one for one in mechanism.estimate(tally, method=method).derived}
    edges = sum(len(person) for person in people)
    weight = sum(sum(person.values()) for person in people)
    # Five standard errors, fixed seed: a check of scale, not of law.
    assert abs(derived["edges"].value - edges) < 5 * math.sqrt(derived["edges"].variance)
    assert abs(derived["weight"].value - weight) < 5 * math.sqrt(derived["weight"].variance)
    ratio = derived["mean edge weight"]
    assert ratio.lower < weight / edges < ratio.upper
    assert derived["density"].value == pytest.approx(derived["edges"].value / (30_000 * 3))
    assert derived["average degree"].value == pytest.approx(2 * derived["edges"].value / 30_003)


def one_rung(parameters: KeyValueParameters, users: int, plus: list[int], minus: list[int]) -> KeyValueCounts:
    asked = np.full((1, len(plus)), users)
    return KeyValueCounts.of([parameters], asked, np.array([plus]), np.array([minus]), np.array([users * len(plus)]))


def graph_of(counts: KeyValueCounts, population: Population = "sampling") -> dict[str, Derived]:
    labels = [str(number) for number in range(2 * counts.users.shape[1])]
    return {one.name: one for one in pool_key_values(labels, counts, population=population).derived}


def test_a_graph_without_edges_has_no_mean_weight_and_says_so() -> None:
    empty = one_rung(KeyValueParameters(0.9, 0.9, 0.9), 100, [5, 5], [5, 5])
    found = graph_of(empty)["mean edge weight"]
    assert math.isnan(found.value)
    assert (found.lower, found.upper) == (-1.0, 1.0)
    assert "the mean edge weight is not estimable: too few people have any key" in pool_key_values("abcd", empty).notes


def test_totals_of_signs_that_nobody_told_have_a_band() -> None:
    silent = graph_of(one_rung(KeyValueParameters(0.997, 0.997, 0.999), 50, [0, 0], [0, 0]), "fleet")
    for name in ("edges", "weight"):
        # One of 50 people with the key is told with probability .997: nobody was, in .86 of windows at a share of .003.
        assert silent[name].upper - silent[name].value > 100 * 0.003, name
    alike = graph_of(one_rung(KeyValueParameters(0.997, 0.997, 0.999), 50, [50, 50], [0, 0]), "fleet")
    assert alike["mean edge weight"].lower < 0.97, "one opposite value among a hundred may be left untold"


def asked_fleets(fleet: list[tuple[int, int]]) -> Iterator[tuple[Fraction, list[int]]]:
    """Yield all ways to ask half of a fleet about each of two keys, and all noisy answers, with their probabilities."""
    keep = Fraction(3, 4)
    half = len(fleet) // 2
    parts = list(combinations(range(len(fleet)), half))
    for part in parts:
        held = [fleet[i][0 if i in part else 1] for i in range(len(fleet))]
        for told in product((0, 1), repeat=len(fleet)):
            chance = math.prod(
                (keep if a == b else 1 - keep for a, b in zip(held, told, strict=True)), start=Fraction(1)
            )
            yield chance / len(parts), [sum(told[i] for i in part), sum(told) - sum(told[i] for i in part)]


@pytest.mark.parametrize(
    "fleet",
    [
        [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1)],
        [(1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)],
        [(1, 1), (1, 0), (0, 1), (0, 0), (1, 0), (0, 0)],
    ],
    ids=["one of two", "both or none", "independent"],
)
def test_keys_that_go_together_are_why_a_fleet_gets_no_smaller_variance(fleet: list[tuple[int, int]]) -> None:
    """Over fractions: the variances of the keys, less the spread of how many keys a person has, is the exact variance.

    That spread is 0 where everybody has one of two keys, and nobody is asked about both: no more than the least may be
    taken out of the sum.
    """
    users, half, gain = len(fleet), len(fleet) // 2, Fraction(1, 2)
    mean = square = estimated = Fraction(0)
    for chance, counts in asked_fleets(fleet):
        rates = [Fraction(count, half) for count in counts]
        edges = users * sum(((rate - Fraction(1, 4)) / gain for rate in rates), start=Fraction(0))
        variance = sum((rate * (1 - rate) / (gain**2 * (half - 1)) for rate in rates), start=Fraction(0))
        mean, square = mean + chance * edges, square + chance * edges**2
        estimated += chance * users**2 * variance
    degrees = [sum(person) for person in fleet]
    assert mean == sum(degrees)
    middle = Fraction(sum(degrees), users)
    spread = sum(((degree - middle) ** 2 for degree in degrees), start=Fraction(0)) / (users - 1)
    assert square - mean**2 == estimated - users * spread


def test_the_least_spread_of_the_number_of_keys_is_no_error_of_a_fleet() -> None:
    parameters = KeyValueParameters(0.95, 0.95, 0.95)
    counts = one_rung(parameters, 10_000, [3_500], [0])
    sampled, fleet = (graph_of(counts, population)["edges"] for population in ("sampling", "fleet"))
    share, error = sampled.value / 10_000, 3 * math.sqrt(sampled.variance) / 10_000
    least = min(end * (1 - end) for end in (share - error, share + error))
    assert sampled.variance - fleet.variance == pytest.approx(10_000 * least)
    whole_number = one_rung(parameters, 10_000, [9_500], [0])
    alike = [graph_of(whole_number, population)["edges"].variance for population in ("sampling", "fleet")]
    assert alike[0] == alike[1], "everybody may have the key"
