"""Events that tell values apart: never beyond what is declared, tight for plain mechanisms, counted as a loop would."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from estimators.inference.telling_events import BitEvents, SymbolEvents, telling_events
from estimators.mechanism import Specification
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.registry import randomizer_of
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.mechanisms.unary import OUE, SUE, Unary
from tests.support.checks import Example
from tests.support.examples import EXAMPLES

WITH_EVENTS = {
    "grr",
    "warner",
    "simmons",
    "christofides",
    "ewrr",
    "rr3_dagger",
    "rr3_ddagger",
    "rr3_club",
    "sue",
    "oue",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_mechanism_has_events_if_its_answers_and_its_promise_are_of_the_plain_form(example: Example) -> None:
    assert (telling_events(example.build().specification) is not None) == (example.name in WITH_EVENTS)


def test_too_many_values_have_no_events() -> None:
    assert telling_events(GRR([str(i) for i in range(64)], (1.0,))) is not None
    assert telling_events(GRR([str(i) for i in range(65)], (1.0,))) is None
    assert telling_events(SUE([str(i) for i in range(8)], (1.0,))) is not None
    assert telling_events(SUE([str(i) for i in range(9)], (1.0,))) is None
    assert telling_events(SUE(["only"], (1.0,))) is None


def event_chances(specification: Specification, rung: int) -> np.ndarray:
    """Return the probability of each event under each value by the exact channel of a rung."""
    events = telling_events(specification)
    if isinstance(specification, SymbolSpecification):
        assert isinstance(events, SymbolEvents)
        return specification.chain.channels[rung].matrix.T[events.symbols]
    assert isinstance(specification, Unary)
    assert isinstance(events, BitEvents)
    channel = specification.chain.channels[rung]
    own = np.eye(len(specification.labels), dtype=bool)
    set_bits = np.where(own, channel.ones[:, None], channel.zeros[:, None])
    return np.asarray(set_bits[events.ones] * (1.0 - set_bits[events.zeros]))


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example.name in WITH_EVENTS], ids=lambda example: example.name
)
def test_no_event_tells_more_than_is_declared_and_plain_mechanisms_tell_all_of_it(example: Example) -> None:
    specification = example.build().specification
    events = telling_events(specification)
    assert events is not None
    for rung, declared in enumerate(specification.epsilons):
        found = event_chances(specification, rung)
        ratios = [
            math.log(found[e, v] / found[e, w])
            for e in range(len(events))
            for v in np.flatnonzero(events.likely[e])
            for w in np.flatnonzero(events.unlikely[e])
            if found[e, w] > 0
        ]
        assert max(ratios) <= declared + 1e-9
        if example.name in ("grr", "warner", "ewrr", "sue", "oue"):
            assert max(ratios) == pytest.approx(declared, abs=1e-6)


@pytest.mark.parametrize(
    "specification", [GRR(("a", "b", "c"), (0.5, 1.0, 2.0)), OUE(("a", "b", "c"), (0.5, 1.0, 2.0))], ids=["grr", "oue"]
)
def test_counts_are_those_of_a_loop_over_devices(specification: Specification) -> None:
    events, rng = telling_events(specification), np.random.default_rng(5)
    assert events is not None
    devices = 200
    values = rng.integers(0, 3, size=devices)
    seen = rng.random((3, devices)) < 0.7
    drawn = randomizer_of(specification).draw(values, SeededBits(5))
    counts = events.count(values, drawn.answers, seen)
    expected = np.zeros((3, 2, len(events), 4), dtype=np.int64)
    for device, value in enumerate(values):
        for rung in range(3):
            happened = np.array([events.happened(drawn.answers[r, device : device + 1])[0] for r in range(rung + 1)])
            looks = [(0, bool(seen[rung, device]), happened[rung])]
            if rung > 0:
                looks.append((1, bool(seen[: rung + 1, device].all()), happened.all(axis=0)))
            for kind, arrived, hit in looks:
                for side, held in ((0, events.likely[:, value]), (2, events.unlikely[:, value])):
                    expected[rung, kind, :, side] += arrived & held
                    expected[rung, kind, :, side + 1] += arrived & held & hit
    assert np.array_equal(counts, expected)
    assert counts[1:, 1].any()
