"""What noisy samples of a permanent answer cost: closed forms against all sequences of samples, over fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import BitChannel
from estimators.channels.channel import Channel
from estimators.channels.noisy_sampling import sampling_epsilon
from estimators.mechanism import ParameterError
from estimators.mechanisms.registry import build, sampling_levels

Outcome = tuple[int, ...]
Law = dict[Outcome, Fraction]
PERMANENT, SAMPLE = 2.0, 1.0

CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("grr", ("a", "b", "c"), {}),
    ("warner", ("a", "b"), {}),
    ("simmons", ("a", "b"), {"coin": 0.3}),
    ("ewrr", ("a", "b", "c"), {}),
    ("rr3_dagger", ("a", "b", "c"), {}),
    ("rr3_ddagger", ("a", "b", "c"), {}),
    ("rr3_club", ("a", "b", "c"), {}),
    ("sue", ("a", "b", "c"), {}),
    ("oue", ("a", "b"), {}),
    ("mean", (), {"low": 0.0, "high": 1.0}),
    ("urr", ("a", "b", "c"), {"sensitive": ["a", "b"]}),
    ("mangat", ("a", "b"), {}),
    ("urap", ("a", "b", "c"), {"sensitive": ["a", "b"]}),
    ("urap", ("a", "b", "c"), {"sensitive": ["a"]}),
    ("pum", ("a", "b"), {"sensitive": ["a"], "tags": ["home"]}),
    ("pum", ("a", "b"), {"sensitive": ["a"], "tags": ["home"], "base": "urap"}),
]


def symbol_law(channel: Channel, symbols: Outcome) -> Law:
    """Return the law of the answers to some symbols, each through the channel on its own."""
    law: Law = {(): Fraction(1)}
    for symbol in symbols:
        row = [Fraction(entry, channel.denominator) for entry in channel.row(symbol)]
        law = {(*told, y): p * row[y] for told, p in law.items() for y in range(channel.outputs) if row[y]}
    return law


def bit_law(channel: BitChannel, vector: Outcome) -> Law:
    """Return the law of a noisy vector of bits."""
    blocks = [block for block in channel.blocks for _ in range(block.size)]
    law: Law = {(): Fraction(1)}
    for bit, block in zip(vector, blocks, strict=True):
        one = Fraction(block.one if bit else block.zero, block.denominator)
        law = {(*told, y): p * (one if y else 1 - one) for told, p in law.items() for y in (0, 1)}
    return {told: p for told, p in law.items() if p}


def one_hot(size: int) -> list[Outcome]:
    return [tuple(int(i == j) for j in range(size)) for i in range(size)]


def exact_loss(
    inputs: Sequence[Outcome],
    permanent: Callable[[Outcome], Law],
    sample: Callable[[Outcome], Law],
    samples: int,
) -> float:
    """Return the loss over all sequences that every input may give; others are revealing, and not protected."""
    laws: dict[Outcome, dict[tuple[Outcome, ...], Fraction]] = {}
    noisy = {z: sample(z) for x in inputs for z in permanent(x)}
    for x in inputs:
        found: dict[tuple[Outcome, ...], Fraction] = {}
        for z, chance in permanent(x).items():
            for drawn in product(noisy[z].items(), repeat=samples):
                sequence = tuple(told for told, _ in drawn)
                found[sequence] = found.get(sequence, Fraction(0)) + chance * math.prod(p for _, p in drawn)
        laws[x] = found
    common = set.intersection(*(set(law) for law in laws.values()))
    worst = max(max(law[s] for law in laws.values()) / min(law[s] for law in laws.values()) for s in common)
    return math.log(worst)


def enumerated(name: str, values: Sequence[str], parameters: Mapping[str, Any], samples: int) -> float:
    once, noisy = (build(name, values, level, **parameters).chain for level in (PERMANENT, SAMPLE))  # type: ignore[attr-defined]
    if isinstance(once, BitChain):
        inputs = one_hot(once.top.size)
        return exact_loss(inputs, lambda v: bit_law(once.top, v), lambda v: bit_law(noisy.top, v), samples)
    inputs = [(x,) for x in range(once.top.inputs)]
    return exact_loss(inputs, lambda v: symbol_law(once.top, v), lambda v: symbol_law(noisy.top, v), samples)


@pytest.mark.parametrize(("name", "values", "parameters"), CASES, ids=lambda case: str(case)[:24])
@pytest.mark.parametrize("samples", [1, 2])
def test_levels_are_those_of_all_sequences_of_samples(
    name: str, values: tuple[str, ...], parameters: dict[str, Any], samples: int
) -> None:
    level = sampling_levels(name, values, PERMANENT, SAMPLE, samples, **parameters)[-1]
    assert level == pytest.approx(enumerated(name, values, parameters, samples), rel=1e-12)


@pytest.mark.parametrize("keys", [1, 2])
def test_a_key_value_vector_pays_for_all_its_positions(keys: int) -> None:
    names = ["bread", "milk"][:keys]
    once, noisy = (build("pckv_ue", names, level).chain.top for level in (PERMANENT, SAMPLE))  # type: ignore[attr-defined]
    tables = [v for v in product((0, 1, 2), repeat=keys) if sum(symbol > 0 for symbol in v) <= 1]
    wanted = exact_loss(tables, lambda v: symbol_law(once, v), lambda v: symbol_law(noisy, v), 2)
    assert sampling_levels("pckv_ue", names, PERMANENT, SAMPLE, 2)[-1] == pytest.approx(wanted, rel=1e-12)


def test_a_key_of_lpp_costs_what_its_channel_costs() -> None:
    once, noisy = (build("lpp", ["bread"], level).chain.top for level in (PERMANENT, SAMPLE))  # type: ignore[attr-defined]
    inputs = [(x,) for x in range(3)]
    wanted = exact_loss(inputs, lambda v: symbol_law(once, v), lambda v: symbol_law(noisy, v), 3)
    assert sampling_levels("lpp", ["bread", "milk"], PERMANENT, SAMPLE, 3)[-1] == pytest.approx(wanted, rel=1e-12)


def test_a_rappor_string_pays_for_twice_its_hashes() -> None:
    """Two strings without a common bit differ in 2h bits; the published curve is the one of a single bit."""
    levels = sampling_levels("rappor", ["a"], 4.0, 2.0, 3, bits=16, hashes=2)
    assert levels == pytest.approx([4 * sampling_epsilon(1.0, 0.5, k) for k in (1, 2, 3)], rel=1e-12)
    assert levels == pytest.approx([0.909345175, 1.735123322, 2.419251000], rel=1e-9)
    once, noisy = (build("rappor", ["a"], level, bits=4, hashes=2).chain.top for level in (4.0, 2.0))  # type: ignore[attr-defined]
    filters: list[Outcome] = [(1, 1, 0, 0), (0, 0, 1, 1)]
    wanted = exact_loss(filters, lambda v: bit_law(once, v), lambda v: bit_law(noisy, v), 1)
    assert levels[0] == pytest.approx(wanted, rel=1e-12)


def test_cards_cost_what_the_samples_of_one_yes_or_no_cost() -> None:
    """A sample of a face shows the face or its mirror image, as one of Warner's answers would."""
    once = build("christofides", ["no", "yes"], PERMANENT, middle=0.2).chain.top  # type: ignore[attr-defined]
    mirror = Fraction(1) / (1 + Fraction(math.exp(SAMPLE)))

    def shown(face: Outcome) -> Law:
        other = (once.outputs - 1 - face[0],)
        return {face: Fraction(1)} if other == face else {face: 1 - mirror, other: mirror}

    wanted = exact_loss([(0,), (1,)], lambda v: symbol_law(once, v), shown, 3)
    level = sampling_levels("christofides", ["no", "yes"], PERMANENT, SAMPLE, 3, middle=0.2)[-1]
    assert level == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_the_curve_rises_to_the_permanent_level_and_stays_in_range(size: int) -> None:
    for permanent, sample in [(1e-9, 1e-9), (0.3, 2.0), (20.0, 0.01), (20.0, 20.0)]:
        levels = [sampling_epsilon(permanent, sample, k, size) for k in (1, 2, 50, 10_000)]
        assert levels == sorted(levels)
        assert 0 < levels[0] <= sample * (1 + 1e-12) or size == 1
        assert levels[-1] <= permanent * (1 + 1e-12)
    assert sampling_epsilon(math.inf, 0.5, 3, size) == pytest.approx(1.5)


def test_five_values_do_not_cost_what_a_bit_costs() -> None:
    assert sampling_epsilon(2.0, 1.0, 1, 5) == pytest.approx(0.6084393, abs=1e-7)
    assert sampling_epsilon(2.0, 1.0, 1) == pytest.approx(0.7353257, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "parameters"), [("improved_christofides", {}), ("k_randomization", {"least_records": 100})]
)
def test_mechanisms_of_one_level_have_no_samples(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="no noisy samples"):
        sampling_levels(name, ["no", "yes"], 2.0, 1.0, 3, **parameters)
