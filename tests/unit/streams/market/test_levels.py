"""What all buyers together are delivered costs exactly the highest level among it: enumerated over rationals.

One chain of yes or no. Its device releases rungs, buyers buy rungs, and the report log keeps all answers, the last one
alone, or forgets and finds lower ones again. The draws are those of the market's own code: a stand-in for the kernels
returns each possible answer in turn, and notes its exact probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest

from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.channels.downgrade import Coarser, Known, SymbolDowngrade
from estimators.exact.randomness import Bits, SecureBits, SeededBits
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.registry import build
from streams.market.failures import ContradictionError
from streams.market.levels import Place, Released, merged, packed, released, sold_at, unpacked
from streams.store.shape import Shape
from tests.support.checks import fractions_of, joint_law, max_ratio

CHAIN = Chain(RetentionChannel(2, 2, 3, 1), (RetentionChannel(2, 2, 1, 1), RetentionChannel(2, 2, 2, 1)))
"""With small numbers: the law of a script is a sum of hundreds of products."""
KERNELS = SymbolDowngrade(CHAIN.kernels, 2)
LAW = dict(joint_law(fractions_of(CHAIN.top), [fractions_of(kernel) for kernel in CHAIN.kernels]))
NAME = b"thirteen byte"
SHAPE = Shape("index", 2, 1, 3, 1)


@dataclass
class EveryDraw:
    """Stands in for the kernels: follows a path of answers, 0 where it ends, and notes what was possible."""

    path: list[int]
    odds: Fraction = Fraction(1)
    taken: list[tuple[int, list[int]]] = field(default_factory=list)

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:  # noqa: ARG002  # follows a path
        known = None if under is None else (under.rung, int(under.answers[0]))
        weights = KERNELS.weights(rung, (above.rung, int(above.answers[0])), known)
        possible = [symbol for symbol, weight in enumerate(weights) if weight]
        step = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append((step, possible))
        self.odds *= Fraction(weights[possible[step]], sum(weights))
        return Coarser(np.array([possible[step]], dtype=np.uint8), np.array([True]))

    def next(self) -> EveryDraw | None:
        """Return the next path, None after the last."""
        for place in range(len(self.taken) - 1, -1, -1):
            step, possible = self.taken[place]
            if step + 1 < len(possible):
                return EveryDraw([*(before for before, _ in self.taken[:place]), step + 1])
        return None


class Event(NamedTuple):
    """A rung that the device releases, or that somebody buys."""

    sells: bool
    rung: int


def scripts() -> Iterator[list[Event]]:
    """Yield every way in which a device may release rungs, lowest first, with up to two sales after each."""
    for count in (1, 2, 3):
        for rungs in combinations(range(3), count):
            for sales in product(*([(), (0,), (2,), (0, 1), (1, 0)] for _ in rungs)):
                yield [
                    event
                    for rung, bought in zip(rungs, sales, strict=True)
                    for event in (Event(False, rung), *(Event(True, one) for one in bought))
                ]


def remembered(log: str, step: int, given: list[int]) -> list[int]:
    """Return which of the released rungs the report log has: all, the last, or both in turn."""
    return given if log == "all" or (log == "finds again" and step % 2) else given[-1:]


def played(script: list[Event], log: str, answers: tuple[int, ...], draws: EveryDraw) -> tuple[tuple[int, int], ...]:
    """Return what the buyers were delivered, as (rung, answer), for one chain and one path of draws."""
    mechanism = GRR(["no", "yes"], (0.5, 1.0, 2.0))
    mechanism.__dict__["downgrade"] = draws
    held: dict[Place, bytes] = {}
    given: list[int] = []
    delivered = []
    for step, event in enumerate(script):
        if not event.sells:
            given.append(event.rung)
            continue
        known = {Place(NAME, rung): bytes([answers[rung]]) for rung in remembered(log, step, given)}
        found = Released(known, {NAME: given[-1]}, frozenset())
        sold = sold_at(event.rung, mechanism, SHAPE, found, held, SecureBits())
        rung = sold.rungs[NAME]
        assert rung == min(event.rung, given[-1])
        assert all(sold.held[place] == cell for place, cell in held.items()), "an answer was replaced"
        held = sold.held
        delivered.append((rung, held[Place(NAME, rung)][0]))
    return tuple(delivered)


@pytest.mark.parametrize("log", ["all", "last", "finds again"])
def test_all_deliveries_together_cost_the_highest_level_among_them(log: str) -> None:
    checked = 0
    for script in scripts():
        if not any(event.sells for event in script):
            continue
        law: dict[tuple[tuple[int, int], ...], list[Fraction]] = {}
        for answers, chances in LAW.items():
            draws: EveryDraw | None = EveryDraw([])
            while draws is not None:
                seen = played(script, log, answers, draws)
                before = law.setdefault(seen, [Fraction(0), Fraction(0)])
                law[seen] = [one + chance * draws.odds for one, chance in zip(before, chances, strict=True)]
                draws = draws.next()
        assert [sum(column) for column in zip(*law.values(), strict=True)] == [1, 1]
        assert all(len(dict(seen)) == len(set(seen)) for seen in law), "two answers of one level"
        highest = max(rung for seen in law for rung, _ in seen)
        rows = tuple(zip(*law.values(), strict=True))
        assert max_ratio(rows) == max_ratio(fractions_of(CHAIN.channels[highest]))
        checked += 1
    assert checked > 200


def test_two_draws_of_one_level_would_cost_more() -> None:
    kernel, top = fractions_of(KERNELS.kernel(0, 2)), fractions_of(CHAIN.top)
    twice = tuple(
        tuple(
            sum((row[z] * kernel[z][a] * kernel[z][b] for z in (0, 1)), Fraction(0))
            for a, b in product((0, 1), repeat=2)
        )
        for row in top
    )
    once = max_ratio(fractions_of(CHAIN.channels[0]))
    assert max_ratio(twice) > once


def entry(name: bytes, rung: int, answer: int) -> bytes:
    return packed(SHAPE, {Place(name, rung): bytes([answer])})


def test_the_log_tells_what_was_released() -> None:
    other = b"another chain"
    log = entry(NAME, 0, 1) + entry(NAME, 2, 0) + entry(other, 1, 1) + entry(NAME, 0, 1)
    found = released(SHAPE, log, entry(NAME, 1, 1) + entry(other, 2, 0))
    assert found.tops == {NAME: 2, other: 1}
    assert found.answers == {
        Place(NAME, 0): b"\1",
        Place(NAME, 1): b"\1",
        Place(NAME, 2): b"\0",
        Place(other, 1): b"\1",
    }
    # A broken device: of a lower rung neither answer is taken.
    again = released(SHAPE, log + entry(NAME, 0, 0))
    assert Place(NAME, 0) not in again.answers
    assert again.tops == found.tops


def test_a_withdrawn_chain_is_not_sold_and_what_was_known_of_it_is_dropped() -> None:
    shape = Shape("index", 2, 1, 4, 1, withdrawable=True)
    log = packed(shape, {Place(NAME, 1): b"\1"}) + packed(shape, {Place(NAME, 3): b"\0"})
    found = released(shape, log)
    assert (found.tops, found.answers, found.withdrawn) == ({}, {}, frozenset([NAME]))
    mechanism = build("grr", ["no", "yes"], (0.5, 1.0, 2.0))
    sold = sold_at(0, mechanism, shape, found, {Place(NAME, 1): b"\1"}, SecureBits())
    assert (sold.rungs, sold.held) == ({}, {})


def test_answers_that_no_chain_has_stay_at_their_lower_level() -> None:
    # A value that is not sensitive is never the answer of somebody whose sharper answer names a sensitive one.
    mechanism = build("urr", ["hidden", "open"], (0.5, 1.0, 2.0), sensitive=["hidden"])
    held = {Place(NAME, 0): b"\1"}
    found = Released({Place(NAME, 2): b"\0"}, {NAME: 2}, frozenset())
    sold = sold_at(1, mechanism, SHAPE, found, held, SecureBits())
    assert (sold.rungs, sold.drawn, sold.broken) == ({NAME: 0}, 0, 1)


@pytest.mark.parametrize(
    ("name", "values", "parameters"),
    [
        ("rappor", ["a", "b"], {"bits": 12, "cohorts": 3}),
        ("mean", ["age"], {"low": 0.0, "high": 1.0, "moments": 2}),
        ("pckv_ue", ["bread", "milk", "eggs"], {}),
        ("grr", [str(i) for i in range(300)], {}),
    ],
)
def test_answers_of_every_form_keep_their_group_and_are_valid(
    name: str, values: list[str], parameters: dict[str, object]
) -> None:
    mechanism = build(name, values, (0.5, 1.0, 2.0), **parameters)
    answer = mechanism.answer
    shape = Shape(answer.kind, answer.size, answer.width, mechanism.rungs, mechanism.groups)
    group = b"\1\0" if mechanism.groups > 1 else b""
    names = [bytes([i]) * 13 for i in range(40)]
    found = Released(
        {Place(one, 2): bytes(answer.width) + group for one in names}, dict.fromkeys(names, 2), frozenset()
    )
    first = sold_at(0, mechanism, shape, found, {}, SeededBits(1))
    then = sold_at(1, mechanism, shape, found, first.held, SeededBits(2))
    assert (first.drawn, then.drawn, then.broken) == (40, 40, 0)
    cells = [then.held[Place(one, 1)] for one in names]
    assert {cell[answer.width :] for cell in cells} == {group}
    answers = np.frombuffer(b"".join(cell[: answer.width] for cell in cells), dtype=np.uint8).reshape(40, -1)
    wire = answers.view(mechanism.symbol_dtype).reshape(-1) if answer.kind == "index" else answers
    assert mechanism.valid(wire).all()
    assert len(set(cells)) > 1
    assert dict(unpacked(shape, packed(shape, then.held))) == then.held


def test_redis_and_books_must_not_differ() -> None:
    stored, booked = {Place(NAME, 0): b"\1"}, {Place(NAME, 1): b"\0"}
    assert merged("colour", stored, booked) == stored | booked
    with pytest.raises(ContradictionError, match=r"colour: Redis and the books have 1 answers .* that differ"):
        merged("colour", stored, {Place(NAME, 0): b"\0"})
