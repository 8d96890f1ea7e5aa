"""Downgrades: every level of a report is drawn once, in any order of requests."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.channel import ChannelError
from estimators.channels.downgrade import Downgrades
from estimators.exact.randomness import SeededBits
from tests.support.checks import fractions_of, joint_law
from tests.support.stats import assert_law

LADDER = (0.5, 1.0, 2.0)


def downgrades(size: int = 3, pool: int | None = None) -> tuple[Downgrades, dict[tuple[Hashable, int], int]]:
    stored: dict[tuple[Hashable, int], int] = {}
    return Downgrades(Chain.retention(LADDER, size, pool=pool), stored), stored


def test_a_level_is_drawn_once_and_stored_before_anyone_sees_it() -> None:
    levels, stored = downgrades()
    bits = SeededBits(1)
    for report in range(50):
        levels.receive(report, 2, report % 3)
        first = levels.answer(report, 0, bits)
        assert stored[report, 0] == first
        assert all(levels.answer(report, 0, bits) == first for _ in range(5))


def test_an_answer_of_another_process_that_came_first_counts() -> None:
    levels, stored = downgrades()
    levels.receive("r", 2, 1)

    class Racing(dict[tuple[Hashable, int], int]):
        def setdefault(self, key: tuple[Hashable, int], default: int = 0) -> int:
            return super().setdefault(key, (default + 1) % 3)

    racing = Racing(stored)
    levels = Downgrades(levels.chain, racing)
    assert levels.answer("r", 1, SeededBits(2)) == racing["r", 1]


def test_what_cannot_be_is_refused() -> None:
    levels, _ = downgrades()
    levels.receive("r", 1, 0)
    levels.receive("r", 1, 0)
    with pytest.raises(ValueError, match="already answered otherwise; a rung is never drawn twice"):
        levels.receive("r", 1, 2)
    with pytest.raises(KeyError, match="no answer at rung 2 or above; ask the device"):
        levels.answer("r", 2, SeededBits(1))
    with pytest.raises(ValueError, match="rungs 0 to 2; got 3"):
        levels.answer("r", 3, SeededBits(1))
    with pytest.raises(ValueError, match=r"must be in \[0, 3\); got 7"):
        levels.receive("r", 0, 7)
    with pytest.raises(ChannelError, match="need a chain of retention channels"):
        Downgrades(BitChain.oue((1.0,), 3), {})  # type: ignore[arg-type]


def test_kernels_between_rungs_are_products() -> None:
    levels, _ = downgrades()
    chain = levels.chain
    assert fractions_of(levels.kernel_between(0, 2)) == fractions_of(chain.kernels[1].then(chain.kernels[0]))
    assert fractions_of(chain.top.then(levels.kernel_between(0, 2))) == fractions_of(chain.channels[0])


@pytest.mark.statistical
@pytest.mark.parametrize(("size", "pool"), [(3, 3), (3, 2)])
@pytest.mark.parametrize("order", list(permutations((0, 1))), ids=["upwards", "downwards"])
def test_every_order_of_requests_has_the_law_of_the_chain(size: int, pool: int, order: tuple[int, ...]) -> None:
    # From the top answer on; a request for the lowest level first makes the middle one a bridge. One share per law.
    levels, stored = downgrades(size, pool)
    bits, reports = SeededBits(3, *order), 4_000
    kernels = [fractions_of(kernel) for kernel in levels.chain.kernels]
    for top in range(size):
        counts: dict[tuple[int, ...], int] = {}
        for report in range(reports):
            levels.receive((top, report), 2, top)
            for rung in order:
                levels.answer((top, report), rung, bits)
            seen = tuple(stored[(top, report), rung] for rung in range(3))
            counts[seen] = counts.get(seen, 0) + 1
        point = (tuple(Fraction(int(y == top)) for y in range(size)),)
        law = {sequence: chances[0] for sequence, chances in joint_law(point, kernels)}
        sequences = [(low, middle, top) for low, middle in product(range(size), repeat=2)]
        assert_law([counts.get(s, 0) for s in sequences], [float(law[s]) for s in sequences])
        assert sum(counts.values()) == sum(counts.get(s, 0) for s in sequences)


@pytest.mark.statistical
def test_two_buyers_of_one_level_hold_the_same_answer() -> None:
    levels, _ = downgrades()
    for report in range(200):
        levels.receive(report, 2, 0)
        assert levels.answer(report, 1, SeededBits(1, report)) == levels.answer(report, 1, SeededBits(2, report))
    assert len({levels.answer(report, 1, SeededBits(4)) for report in range(200)}) == 3


def test_the_chain_of_a_market_has_one_answer_per_level() -> None:
    ladder = [round(0.1 + 0.01 * i, 2) for i in range(91)]
    levels = Downgrades(Chain.retention(ladder, 5), {})
    levels.receive("r", 90, 4)
    bits = SeededBits(9)
    asked = np.random.default_rng(1).permutation(91)
    answers = {int(rung): levels.answer("r", int(rung), bits) for rung in asked}
    assert answers == {rung: levels.answer("r", rung, bits) for rung in range(91)}
