"""Standing values: windows repeat the answers of a value under new tokens, at the price of one."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from itertools import product
from pathlib import Path

import pytest

from estimators.channels.chain import Chain
from producers.device.agent import Device
from producers.device.budget import BudgetError
from producers.survey.check import explain
from producers.survey.survey import Survey
from tests.support.checks import fractions_of, joint_law, max_ratio
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, reports

LATER = 40_000
"""After the end of a window its rungs are open."""


def standing(**changes: str) -> Survey:
    return survey(size='size = "1m"\nstanding = true', **changes)


def live(device: Device, asked: Survey, values: list[str], *, first: int = 0) -> None:
    """Answer window after window and release all rungs of each."""
    for number, value in enumerate(values, first):
        now_ms = WEEK + number * WINDOW_MS
        device.observe(asked, value, now_ms)
        device.tick(now_ms)
        device.tick(now_ms + WINDOW_MS + LATER)


def answers_of(transport: MemoryTransport, asked: Survey) -> list[tuple[bytes, ...]]:
    """The answers of every token, by rung, in the order of tokens."""
    found: dict[bytes, dict[int, bytes]] = {}
    for token, rung, answer in reports(transport, asked):
        found.setdefault(token, {})[rung] = answer
    return [tuple(rungs[rung] for rung in sorted(rungs)) for rungs in found.values()]


def test_many_windows_of_one_value_repeat_its_answers_and_cost_one_window(ledger: Path) -> None:
    asked, transport = standing(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        live(device, asked, ["green"] * 3)
    with Device(ledger, [asked], transport) as device:  # started again: the file knows the value
        live(device, asked, ["green"] * 3, first=3)
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1]
        marks = device._ledger.connection.execute("SELECT DISTINCT standing FROM chains").fetchall()
        assert len(marks) == 1
    told = answers_of(transport, asked)
    assert len(told) == 6, "every window has a token of its own"
    assert len(set(told)) == 1
    assert b"green" not in b"".join(path.read_bytes() for path in ledger.parent.iterdir())


def test_another_value_is_charged_and_one_that_comes_back_is_not(ledger: Path) -> None:
    asked, transport = standing(), MemoryTransport()
    top = asked.mechanism.epsilons[-1]
    with Device(ledger, [asked], transport) as device:
        live(device, asked, ["green", "red", "green", "green", "red"])
        assert device.odometer.epsilon == 2 * top
        charges = device._ledger.connection.execute("SELECT charged_units FROM chains ORDER BY window_ms").fetchall()
        assert [units > 0 for (units,) in charges] == [True, True, False, False, False]
    told = answers_of(transport, asked)
    assert told[0] == told[2] == told[3]
    assert told[1] == told[4]


def test_a_window_that_goes_further_than_those_before_pays_the_difference(ledger: Path) -> None:
    asked, transport = standing(), MemoryTransport()
    low, _, top = asked.mechanism.epsilons
    with Device(ledger, [asked], transport, caps={"colour": low}) as device:
        live(device, asked, ["green"])
        assert device.odometer.epsilon == low
    with Device(ledger, [asked], transport) as device:
        live(device, asked, ["green"], first=10)
        assert device.odometer.epsilon == top
        device.tick(WEEK + 20 * WINDOW_MS)


def test_overlapping_windows_share_one_chain(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "20s"\nstanding = true'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        chains = device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        assert len(chains) == 3
        assert len({chain.answers for chain in chains}) == 1
        assert device.odometer.epsilon == asked.mechanism.epsilons[0]


def test_without_budget_for_another_value_nothing_of_it_leaves(ledger: Path) -> None:
    asked, transport = standing(lifetime="lifetime = 2.2"), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        live(device, asked, ["green"])
        with pytest.raises(BudgetError, match="would cost"):
            live(device, asked, ["red"], first=1)
        live(device, asked, ["green"], first=2)
        assert len(answers_of(transport, asked)) == 2


def test_switching_off_forgets_values_and_their_answers(ledger: Path) -> None:
    asked, transport = standing(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        live(device, asked, ["green"])
        device.consent(False, WEEK)
        assert device._ledger.connection.execute("SELECT COUNT(*) FROM standing").fetchone() == (0,)
        device.consent(True)
        live(device, asked, ["green"], first=5)
        assert device.odometer.epsilon == 2 * asked.mechanism.epsilons[-1], "new answers are paid for"


def product_of(chances: Iterable[Fraction]) -> Fraction:
    return reduce(operator.mul, chances, Fraction(1))


def test_given_which_windows_had_the_same_value_all_of_them_cost_one_level_a_value() -> None:
    """Exact, over rationals: all histories of four windows of a person with two or three values, all transcripts.

    What a history reveals beyond its pattern (which windows had the same value) is bounded by one top level for each
    distinct value, and the bound is reached: it is what the ledger charges.
    """
    chain = Chain.retention([0.5, 2.0], 3)
    law = list(joint_law(fractions_of(chain.top), [fractions_of(kernel) for kernel in chain.kernels]))
    top = max_ratio(fractions_of(chain.channels[-1]))
    charged = survey(ladder="ladder = [0.5, 2.0]", opens='opens = ["0s", "10s"]').mechanism.epsilons[-1]

    def pattern(history: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(history.index(value) for value in history)

    by_pattern: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for history in product(range(3), repeat=4):
        by_pattern[pattern(history)].append(history)
    assert len(by_pattern) == 14, "the partitions of four windows into at most three values"
    for shape, histories in by_pattern.items():
        distinct = sorted(set(shape))
        worst = Fraction(1)
        # A transcript repeats the answers of each value, so one draw for each distinct value is all of it.
        for transcript in product(range(len(law)), repeat=len(distinct)):
            chances = [
                product_of(law[draw][1][history[place]] for draw, place in zip(transcript, distinct, strict=True))
                for history in histories
            ]
            worst = max(worst, max(chances) / min(chances))
        if len(distinct) < 3:
            assert worst == top ** len(distinct)
        assert worst <= top ** len(distinct)
        assert math.log(worst) <= charged * len(distinct)


def test_the_check_says_what_is_repeated_what_it_costs_and_what_it_reveals() -> None:
    told = explain(standing())
    text = " ".join(told.sentences)
    assert "All answers for one value together cost epsilon 2, however many windows repeat them" in text
    assert "pays for 50 different values with all rungs" in text
    assert sum("standing values:" in warning for warning in told.warnings) == 2
    assert not any("standing" in warning for warning in explain(survey()).warnings)
    assert standing().id != survey().id
