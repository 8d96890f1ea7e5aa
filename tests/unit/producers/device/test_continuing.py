"""Levels added later: a chain goes on above its top, once, for the price of the new top; or not at all."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.channel import Channel
from estimators.channels.continuing import steps
from estimators.channels.forward import BitStep, DenseStep, RetentionStep, forward_rows
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import build, randomizer_of
from producers.device.agent import Device, ReleaseError
from producers.device.budget import cost_units
from producers.device.sealing import Seal
from producers.device.statement import read_statement
from producers.survey.survey import Survey
from producers.wire import frames as wire
from tests.support.checks import fractions_of, joint_law
from tests.support.continuing import LONGER, LONGEST, SHORT, on_demand
from tests.support.surveys import WEEK, WINDOW_MS
from tests.support.transports import MemoryTransport, Report

END = WEEK + WINDOW_MS
OPEN = END + 60_000
"""All rungs of all these surveys are open, and the window still counts."""
KEY = bytes(range(32))
CHAINS: dict[str, Callable[[list[float]], Chain | BitChain]] = {
    "three values": lambda ladder: Chain.retention(ladder, 3),
    "a smaller pool": lambda ladder: Chain.retention(ladder, 3, pool=2),
    "a bit of a vector": lambda ladder: BitChain.oue(ladder, 2),
    "a bit of a symmetric vector": lambda ladder: BitChain.sue(ladder, 2),
    "a small channel": lambda ladder: build("rr3_dagger", ["a", "b", "c"], ladder).chain,  # type: ignore[attr-defined]
}


def sent(transport: MemoryTransport, *surveys: Survey) -> list[Report]:
    """All (token, rung, answer) that were sent; frames name the first of these surveys that has their rung."""
    found = []
    for message in transport.messages:
        for header in wire.headers(message.value):
            assert isinstance(header, wire.Header)
            (of,) = (one for one in surveys if one.digest == header.digest)
            columns = wire.columns(message.value, header, of.layout)
            assert of is next(one for one in (SHORT, LONGER, LONGEST) if columns.rungs[0] < one.mechanism.rungs)
            found += [(columns.tokens[0].tobytes(), int(columns.rungs[0]), columns.answers[0].tobytes())]
    return found


def start(ledger: Path, asked: Survey, transport: MemoryTransport, **given: Any) -> Device:
    return Device(ledger, [asked], transport, **{"value_key": KEY, "lifetime_epsilon": 100.0, **given})


def answered(ledger: Path, transport: MemoryTransport, *, asked: Survey = SHORT, **given: Any) -> bytes:
    """Answer a window with a survey and release all of its levels; returns the stored answers."""
    with start(ledger, asked, transport, **given) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        device.tick(OPEN)
        chain = device._ledger.chain(asked.id, WEEK)
        assert chain is not None
        assert chain.answers is not None
        return chain.answers


def test_a_chain_goes_on_under_its_token_and_costs_the_new_top(ledger: Path) -> None:
    transport = MemoryTransport()
    before = answered(ledger, transport)
    with start(ledger, LONGER, transport) as device:
        device.tick(OPEN + 1)
        chain = device._ledger.chain(LONGER.id, WEEK)
        assert chain is not None
        assert chain.answers is not None
        assert chain.answers[: len(before)] == before
        assert chain.epsilons == (*SHORT.mechanism.epsilons, LONGER.mechanism.epsilons[-1])
        assert device.odometer.spent_units == cost_units(LONGER.mechanism.epsilons[-1])
        device.tick(OPEN + 2)
    found = sent(transport, SHORT, LONGER)
    assert len({token for token, _, _ in found}) == 1
    assert [rung for _, rung, _ in found] == [0, 1, 2]
    assert bytes(answer[0] for _, _, answer in found) == chain.answers
    headers = [header for message in transport.messages for header in wire.headers(message.value)]
    digests = [header.digest for header in headers if isinstance(header, wire.Header)]
    assert digests == [SHORT.digest, SHORT.digest, LONGER.digest]
    (window,) = read_statement(ledger, OPEN).surveys[0].windows
    assert [level.epsilon for level in window.levels] == list(chain.epsilons)
    assert window.paid == pytest.approx(2.0)
    with start(ledger, LONGEST, transport) as device:  # and once more, by two levels at a time
        device.tick(OPEN + 3)
        assert device.odometer.spent_units == cost_units(LONGEST.mechanism.epsilons[-1])
    assert [rung for _, rung, _ in sent(transport, SHORT, LONGER, LONGEST)] == [0, 1, 2, 4]


def test_a_survey_that_was_skipped_does_not_matter(ledger: Path) -> None:
    transport = MemoryTransport()
    answered(ledger, transport)
    with start(ledger, LONGEST, transport) as device:
        device.tick(OPEN + 1)
        chain = device._ledger.chain(LONGEST.id, WEEK)
        assert chain is not None
        assert len(chain.epsilons) == 5
        assert device.odometer.spent_units == cost_units(LONGEST.mechanism.epsilons[-1])


def test_what_is_answered_later_has_the_same_token_whichever_survey_is_known(tmp_path: Path) -> None:
    tokens = set()
    for number, asked in enumerate((SHORT, LONGER, LONGEST)):
        transport, ledger = MemoryTransport(), tmp_path / str(number)
        with start(ledger, asked, transport) as device:
            device._ledger.connection.execute("UPDATE device SET secret = ?", (bytes(32),))
            device.observe(asked, "green", WEEK)
            device.tick(WEEK)
        ((token, _, _),) = sent(transport, SHORT)
        tokens.add(token)
    assert len(tokens) == 1


def test_a_device_that_is_given_all_of_them_answers_the_newest(ledger: Path) -> None:
    transport = MemoryTransport()
    with Device(ledger, [LONGER, SHORT], transport, lifetime_epsilon=100.0) as device:
        for name in (SHORT, LONGER, LONGER.edition, LONGER.id, LONGER.name):
            assert device._known(name) is LONGER


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"value_key": None}, "nothing was kept to draw them from: pass value_key"),
        ({"value_key": bytes(32)}, "nothing was kept to draw them from: pass value_key, the same one at every start"),
    ],
)
def test_without_the_key_a_chain_ends_where_it_was_drawn(
    given: dict[str, Any], why: str, ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transport = MemoryTransport()
    before = answered(ledger, transport, value_key=given["value_key"] and KEY)
    with start(ledger, LONGER, transport, **given) as device, caplog.at_level(logging.WARNING):
        for _ in range(2):
            device.tick(OPEN + 1)
        chain = device._ledger.chain(LONGER.id, WEEK)
        assert chain is not None
        assert chain.answers == before
        assert device.odometer.epsilon == SHORT.mechanism.epsilons[-1]
    assert caplog.text.count(why) == 1
    assert [rung for _, rung, _ in sent(transport, SHORT, LONGER)] == [0, 1]


def test_a_seal_opens_only_what_it_closed() -> None:
    seal = Seal(KEY)
    closed = seal.closed(b"a value", b"here")
    assert seal.opened(closed, b"here") == b"a value"
    assert seal.closed(b"a value", b"here") != closed, "equal values do not look equal"
    assert b"value" not in closed
    flipped = bytes([closed[0] ^ 1]) + closed[1:]
    for wrong, about in ((closed, b"there"), (flipped, b"here"), (closed[:-1], b"here"), (b"", b"here")):
        assert seal.opened(wrong, about) is None
    assert Seal(bytes(32)).opened(closed, b"here") is None
    with pytest.raises(ValueError, match="at least 32 random bytes; got 31"):
        Seal(bytes(31))


def test_what_was_sealed_for_one_window_is_not_taken_for_another(ledger: Path) -> None:
    transport = MemoryTransport()
    with start(ledger, SHORT, transport) as device:
        device.observe(SHORT, "green", WEEK)
        device.observe(SHORT, "red", END)
        device.tick(END)
        execute = device._ledger.connection.execute
        rows = dict(execute("SELECT window_ms, sealed FROM chains").fetchall())
        execute("UPDATE chains SET sealed = ? WHERE window_ms = ?", (rows[END], WEEK))
    with start(ledger, LONGER, transport) as device:
        device.tick(OPEN)
        lengths = {
            start_ms: len(chain.epsilons)
            for start_ms in (WEEK, END)
            if (chain := device._ledger.chain(LONGER.id, start_ms))
        }
        assert lengths == {WEEK: 2, END: 3}


def test_values_are_sealed_until_the_window_expires_and_never_without_a_key(tmp_path: Path) -> None:
    for key, kept in ((KEY, True), (None, False)):
        folder = tmp_path / str(kept)
        folder.mkdir()
        with start(folder / "ledger", SHORT, MemoryTransport(), value_key=key) as device:
            device.observe(SHORT, "green", WEEK)
            chain = device._ledger.chain(SHORT.id, WEEK)
            assert chain is not None
            assert (chain.sealed is not None) == kept
            assert "sealed" not in repr(chain)
            device.tick(SHORT.expiry_ms(WEEK) + 1)
            assert device._ledger.connection.execute("SELECT answers, sealed FROM chains").fetchall() == [(None, None)]
            sealed = b"" if chain.sealed is None else chain.sealed
            assert not sealed or all(sealed not in path.read_bytes() for path in folder.iterdir())


def test_consent_that_is_withdrawn_erases_what_was_sealed(ledger: Path) -> None:
    transport = MemoryTransport()
    answered(ledger, transport)
    with start(ledger, LONGER, transport) as device:
        device.consent(False, OPEN)
        device.tick(OPEN + 1)
        assert device._ledger.connection.execute("SELECT COUNT(*) FROM chains").fetchone() == (0,)
    assert len(sent(transport, SHORT, LONGER)) == 2


def test_a_new_level_that_the_person_or_the_budget_does_not_allow_is_not_released(tmp_path: Path) -> None:
    wishes: tuple[dict[str, Any], ...] = ({"caps": {"colour": 1.5}}, {"lifetime_epsilon": 1.5})
    for number, given in enumerate(wishes):
        transport, ledger = MemoryTransport(), tmp_path / str(number)
        answered(ledger, transport)
        with start(ledger, LONGER, transport, **given) as device:
            told = device.tick(OPEN + 1)
            assert device.odometer.epsilon == 1.0
            assert bool(told.refused) == ("lifetime_epsilon" in given)
        assert [rung for _, rung, _ in sent(transport, SHORT, LONGER)] == [0, 1]


def test_a_level_that_was_added_can_be_released_on_demand(ledger: Path) -> None:
    short, longer = on_demand()
    assert (short.digest, longer.digest) == (SHORT.digest, LONGER.digest)
    transport = MemoryTransport()
    with start(ledger, short, transport) as device:
        device.observe(short, "green", WEEK)
        device.release_next(short, now_ms=END)
        assert device.release_next(short, now_ms=END) is None
        device.tick(END)
    with start(ledger, longer, transport) as device:
        device.release_next(longer, now_ms=OPEN)
        assert device.release_next(longer, now_ms=OPEN) is None
        device.tick(OPEN)
        assert device.odometer.spent_units == cost_units(longer.mechanism.epsilons[-1])
    assert sorted(rung for _, rung, _ in sent(transport, SHORT, LONGER)) == [0, 1, 2]


def test_a_shorter_survey_after_a_longer_one_releases_no_more_than_it_has(ledger: Path) -> None:
    """As where a gateway serves an older file again."""
    transport = MemoryTransport()
    with start(ledger, LONGER, transport) as device:
        device.observe(LONGER, "green", WEEK)
        device.tick(WEEK)
    with start(ledger, SHORT, transport) as device:
        device.tick(OPEN)
        assert device.next_ms() is None
        assert device.odometer.epsilon == pytest.approx(1.0)
    assert [rung for _, rung, _ in sent(transport, SHORT, LONGER)] == [0, 1]
    with start(ledger, SHORT, transport) as device, pytest.raises(ReleaseError):
        device.release_next(SHORT)


def law_of_step(step: object, lower: Channel, upper: Channel) -> list[list[tuple[Fraction, ...] | None]]:
    """Pr(sharper answer | answer, value) as the parts of a step draw it, as [value][answer]."""
    low, high = fractions_of(lower), fractions_of(upper)
    if isinstance(step, RetentionStep):

        def kept(value: int, given: int) -> Fraction:
            if value == given:
                return Fraction(1) if given >= step.lower.pool else step.keep_truth
            return step.keep_lie

        return [
            [
                tuple(kept(x, y) * (z == y) + (1 - kept(x, y)) * high[x][z] for z in range(len(high[x])))
                if low[x][y]
                else None
                for y in range(len(low[x]))
            ]
            for x in range(len(low))
        ]
    if isinstance(step, BitStep):
        odds = step.odds[0]
        return [[(1 - odds[x][y], odds[x][y]) for y in (0, 1)] for x in (0, 1)]
    assert isinstance(step, DenseStep)
    return forward_rows(step.lower, step.upper, step.kernel)


def single(chain: Chain | BitChain) -> Chain:
    """The chain itself, or that of one bit of a vector."""
    if isinstance(chain, Chain):
        return chain
    return Chain(chain.top.blocks[0].channel, tuple(kernel.blocks[0].channel for kernel in chain.kernels))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(("first", "then"), [([0.5], [1.5]), ([0.4, 0.9], [1.0, 2.5]), ([1.0], [3.0])])
def test_all_answers_together_cost_exactly_what_the_last_one_costs(
    name: str, first: list[float], then: list[float]
) -> None:
    """Exact, over rationals: every value, every sequence of answers, and every prefix of it."""
    earlier, later = CHAINS[name](first), CHAINS[name]([*first, *then])
    found, low, high = steps(earlier, later), single(earlier), single(later)
    law = dict(joint_law(fractions_of(low.top), [fractions_of(kernel) for kernel in low.kernels]))
    channels = [low.channels[-1], *high.channels[len(first) :]]
    for step, (lower, upper) in zip(found, pairwise(channels), strict=True):
        moves, longer = law_of_step(step, lower, upper), {}
        for answers, chances in law.items():
            for z in range(upper.outputs):
                rows = [row[answers[-1]] for row in moves]
                longer[*answers, z] = [
                    chance * (row[z] if row is not None else 0) for chance, row in zip(chances, rows, strict=True)
                ]
        law = longer
        last = fractions_of(upper)
        for answers, chances in law.items():
            # Of any two values each sequence tells what its last answer tells: no more and no less.
            for x, y in product(range(len(chances)), repeat=2):
                assert chances[x] * last[y][answers[-1]] == chances[y] * last[x][answers[-1]]
        for z in range(upper.outputs):
            marginal = [sum(c[x] for answers, c in law.items() if answers[-1] == z) for x in range(len(last))]
            assert marginal == [row[z] for row in last], "and it is an answer of the level that it is released as"


def test_the_ledger_charges_what_was_enumerated() -> None:
    for asked in (LONGER, LONGEST):
        top = asked.mechanism.chain.channels[-1]  # type: ignore[attr-defined]
        rows = fractions_of(top)
        worst = max(max(column) / min(column) for column in zip(*rows, strict=True))
        assert math.log(worst) <= asked.mechanism.epsilons[-1] <= math.log(worst) + 1e-12


@pytest.mark.parametrize(
    ("name", "values", "parameters", "value"),
    [
        ("grr", ["a", "b", "c"], {}, "b"),
        ("warner", ["no", "yes"], {}, "yes"),
        ("sue", ["a", "b", "c"], {}, "b"),
        ("oue", ["a", "b", "c"], {}, "b"),
        ("rappor", ["a", "b"], {"bits": 16}, "another"),
        ("mean", ["hours"], {"low": 0, "high": 24}, 7.5),
        ("ewrr", ["a", "b", "c"], {}, "c"),
    ],
)
def test_answers_of_new_rungs_have_the_form_of_the_others(
    name: str, values: list[str], parameters: dict[str, Any], value: object
) -> None:
    earlier, later = (build(name, values, ladder, **parameters) for ladder in ([0.5, 1.0], [0.5, 1.0, 2.0, 3.0]))
    bits, randomizer = SeededBits(3), randomizer_of(later)
    inputs = randomizer_of(earlier).encode([value] * 50, bits)
    drawn = randomizer_of(earlier).draw(inputs, bits)
    more = randomizer.draw_more(earlier, inputs, drawn.answers[-1], bits)
    whole = randomizer.draw(inputs, bits).answers
    assert (more.dtype, more.shape) == (whole.dtype, (2, *whole.shape[1:]))
    assert all(later.valid(rung).all() for rung in more)
