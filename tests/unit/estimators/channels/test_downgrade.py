"""Downgrades: in every order of draws, beside whatever a device released, all answers have the law of one chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import chain as joined
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import count_ones
from estimators.channels.chain import Chain
from estimators.channels.channel import Channel
from estimators.channels.downgrade import BitDowngrade, Known, SymbolDowngrade
from estimators.exact.randomness import SecureBits, SeededBits
from estimators.mechanisms.key_value import LPP
from estimators.mechanisms.registry import build
from tests.support.checks import Example, fractions_of, joint_law
from tests.support.examples import EXAMPLES
from tests.support.stats import assert_law

LADDER = (0.5, 1.0, 2.0)
Held = tuple[tuple[int, int], ...]
"""What is known of one report: (rung, symbol), lowest rung first."""


def chain_of(name: str) -> Chain:
    specification = build(name, ["a", "b", "c"][: 2 if name in ("warner", "mangat") else 3], LADDER)
    chain: Chain = specification.chain  # type: ignore[attr-defined]
    return chain


SYMBOLS: Mapping[str, Callable[[], tuple[Channel, tuple[Channel, ...]]]] = {
    "grr": lambda: parts(Chain.retention(LADDER, 3)),
    "urr": lambda: parts(Chain.retention(LADDER, 3, pool=2)),
    "urr, fewer sensitive values": lambda: parts(Chain.nested(LADDER, 3, [3, 2, 1])),
    "mangat": lambda: parts(chain_of("mangat")),
    "three elements": lambda: parts(chain_of("rr3_club")),
    "lpp, of one key": lambda: parts(LPP(["k"], LADDER).chain),
    "a bit of sue": lambda: bit(BitChain.sue(LADDER, 2)),
    "a bit of oue": lambda: bit(BitChain.oue(LADDER, 2)),
    "a level twice": lambda: parts(Chain.retention((0.5, 1.0, 1.0), 2)),
}


def parts(chain: Chain) -> tuple[Channel, tuple[Channel, ...]]:
    return chain.top, chain.kernels


def bit(chain: BitChain) -> tuple[Channel, tuple[Channel, ...]]:
    return chain.top.blocks[0].channel, tuple(kernel.blocks[0].channel for kernel in chain.kernels)


def after(levels: SymbolDowngrade, held: Held, rung: int) -> list[tuple[Held, Fraction]]:
    """Return what may be known once `rung` was drawn, with its exact probability."""
    above = min((known for known in held if known[0] > rung), default=None)
    assert above is not None
    under = max((known for known in held if known[0] < rung), default=None)
    weights = levels.weights(rung, above, under)
    total = sum(weights)
    return [
        (tuple(sorted((*held, (rung, symbol)))), Fraction(weight, total))
        for symbol, weight in enumerate(weights)
        if weight
    ]


@pytest.mark.parametrize("name", SYMBOLS)
def test_every_order_of_draws_has_exactly_the_law_of_the_chain(name: str) -> None:
    # Whatever the device released itself below its sharpest answer; the others are drawn in any order.
    top, kernels = SYMBOLS[name]()
    levels = SymbolDowngrade(kernels, top.outputs)
    law = dict(joint_law(fractions_of(top), [fractions_of(kernel) for kernel in kernels]))
    lower = range(len(kernels))
    for released in joined.from_iterable(combinations(lower, count) for count in range(len(kernels) + 1)):
        for order in permutations(set(lower) - set(released)):
            found: dict[Held, list[Fraction]] = {}
            for sequence, chances in law.items():
                held = tuple((rung, sequence[rung]) for rung in (*released, len(kernels)))
                before = found.setdefault(held, [Fraction(0)] * len(chances))
                found[held] = [one + more for one, more in zip(before, chances, strict=True)]
            for rung in order:
                found = {
                    held: [chance * odds for chance in chances]
                    for known, chances in found.items()
                    if any(chances)
                    for held, odds in after(levels, known, rung)
                }
            drawn = {tuple(symbol for _, symbol in held): chances for held, chances in found.items() if any(chances)}
            assert drawn == {sequence: chances for sequence, chances in law.items() if any(chances)}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", ["grr", "urr", "urr, fewer sensitive values", "lpp, of one key", "a bit of oue", "three elements"]
)
def test_draws_have_the_law_of_their_weights(name: str) -> None:
    top, kernels = SYMBOLS[name]()
    levels, bits, reports = SymbolDowngrade(kernels, top.outputs), SeededBits(3, name), 4_000
    for sharp in range(top.outputs):
        above = Known(2, np.full(reports, sharp, dtype=np.uint8))
        for coarse in (None, *range(top.outputs)):
            under = None if coarse is None else Known(0, np.full(reports, coarse, dtype=np.uint8))
            weights = levels.weights(1, (2, sharp), None if coarse is None else (0, coarse))
            drawn, possible = levels.draw(1, above, under, bits)
            assert possible.all() == (sum(weights) > 0)
            assert drawn.dtype == np.uint8
            if sum(weights):
                counts = np.bincount(drawn, minlength=len(weights))
                assert_law(counts, [weight / sum(weights) for weight in weights])


@pytest.mark.statistical
def test_a_bridge_of_many_values_leaves_out_neither_end() -> None:
    size, reports = 300, 30_000
    levels = SymbolDowngrade(Chain.retention((0.01, 0.02, 0.03), size).kernels, size)
    above, under = Known(2, np.full(reports, 7, dtype="<u2")), Known(0, np.full(reports, 299, dtype="<u2"))
    drawn, _ = levels.draw(1, above, under, SeededBits(5))
    weights = levels.weights(1, (2, 7), (0, 299))
    assert_law(np.bincount(drawn, minlength=size), [weight / sum(weights) for weight in weights])


def test_answers_that_no_chain_has_are_told_apart() -> None:
    # The second value is not sensitive: nobody whose sharp answer names a sensitive one can have answered it before.
    levels = SymbolDowngrade(Chain.retention(LADDER, 2, pool=1).kernels, 2)
    sharp, coarse = np.array([0, 0, 1, 1], dtype=np.uint8), np.array([0, 1, 0, 1], dtype=np.uint8)
    drawn, possible = levels.draw(1, Known(2, sharp), Known(0, coarse), SecureBits())
    assert possible.tolist() == [True, False, True, True]
    assert drawn[[0, 3]].tolist() == [0, 1]
    vectors = BitDowngrade(build("urap", ["a", "b"], LADDER, sensitive=["a"]).chain.kernels, 2)  # type: ignore[attr-defined]
    packed = [np.array([[0], [0]], dtype=np.uint8), np.array([[0], [2]], dtype=np.uint8)]
    assert vectors.draw(1, Known(2, packed[0]), Known(0, packed[1]), SecureBits()).possible.tolist() == [True, False]


def test_kernels_between_rungs_are_products() -> None:
    chain = Chain.retention(LADDER, 3)
    levels = SymbolDowngrade(chain.kernels, 3)
    assert fractions_of(levels.kernel(0, 2)) == fractions_of(chain.kernels[1].then(chain.kernels[0]))
    assert fractions_of(chain.top.then(levels.kernel(0, 2))) == fractions_of(chain.channels[0])
    assert fractions_of(levels.kernel(1, 1)) == fractions_of(levels.kernel(2, 2))
    with pytest.raises(ValueError, match="rungs 0 to 2; got 1 below 3"):
        levels.kernel(1, 3)


@pytest.mark.statistical
@pytest.mark.parametrize("example", [one for one in EXAMPLES if len(one.ladder) > 1], ids=lambda one: one.name)
def test_every_family_with_a_kernel_has_downgrades(example: Example) -> None:
    mechanism, reports, rungs = example.build(), 3_000, len(example.ladder)
    values = mechanism.simulate(np.arange(reports) % mechanism.simulator.kinds, SeededBits(1).words(reports))
    drawn = mechanism.draw(mechanism.encode(values, SeededBits(2)), SeededBits(3))
    downgrade, top = mechanism.specification.downgrade, Known(rungs - 1, drawn.answers[-1])
    assert downgrade is not None
    lowest = downgrade.draw(0, top, None, SeededBits(4))
    middle = downgrade.draw(1, top, Known(0, lowest.answers), SeededBits(5))
    for rung, found in ((0, lowest), (1, middle)):
        assert found.possible.all()
        assert mechanism.valid(found.answers).all()
        assert found.answers.dtype == drawn.answers.dtype
        # As often as the devices' own answers of that rung: every symbol, or every bit.
        own, theirs = (cells(answers, mechanism.answer.size) for answers in (drawn.answers[rung], found.answers))
        assert np.abs(own - theirs).max() < 6 * (reports / 2) ** 0.5


def cells(answers: NDArray[Any], size: int) -> NDArray[np.int64]:
    return np.bincount(answers, minlength=size) if answers.ndim == 1 else count_ones(answers, size)


def test_mechanisms_of_one_level_whose_answers_depend_on_each_other_have_none() -> None:
    names = {one.name for one in EXAMPLES if one.build().specification.downgrade is None}
    assert names == {"improved_christofides", "k_randomization"}
