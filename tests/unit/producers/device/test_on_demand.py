"""Release on demand: one more level because the person says so, at the price of the highest one."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from estimators.channels.chain import Chain
from producers.device.agent import Device, ReleaseError
from producers.device.budget import BudgetError
from producers.survey.survey import Survey, SurveyError
from tests.support.checks import fractions_of, joint_law, max_ratio
from tests.support.surveys import INDEPENDENT, WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, reports, rungs

END = WEEK + WINDOW_MS


def on_demand(after: str = "10s", **changes: str) -> Survey:
    return survey(kind='kind = "on_demand"', opens=f'after = "{after}"', **changes)


def test_a_level_is_released_when_the_person_says_so_and_not_by_the_clock(ledger: Path) -> None:
    asked, transport = on_demand(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        assert device.release_next(asked, now_ms=WEEK) is None
        (chain,) = device.observe(asked, "green", WEEK)
        with pytest.raises(ReleaseError, match=rf"no level is released before {END + 10_000}"):
            device.release_next(asked, now_ms=END + 9_999)
        device.tick(END + 200_000)
        assert rungs(transport, asked) == [0]
        assert device.next_ms() is None
        released = device.release_next("colour", now_ms=END + 200_000)
        assert released is not None
        assert released.released == (0, 1)
        assert device.next_ms() is None or device.next_ms() == END + 200_000
        device.tick(END + 200_000)
        assert device.odometer.epsilon == 1.0
        device.release_next(asked, window_ms=WEEK, now_ms=END + 200_001)
        device.tick(END + 200_001)
        assert [answer for _, _, answer in reports(transport, asked)] == [chain.answer(rung, 0) for rung in range(3)]
        assert device.odometer.epsilon == 2.0
        assert device.release_next(asked, now_ms=END + 200_002) is None
        assert device.release_next(asked, window_ms=END, now_ms=END + 200_002) is None


def test_demands_obey_cap_budget_and_expiry(ledger: Path) -> None:
    asked = on_demand(lifetime="lifetime = 1.2")
    with Device(ledger, [asked], MemoryTransport(), caps={"colour": 1.5}) as device:
        device.observe(asked, "green", WEEK)
        assert device.release_next(asked, now_ms=END + 10_000) is not None
        assert device.release_next(asked, now_ms=END + 10_000) is None, "the person's cap"
    with Device(ledger, [asked], MemoryTransport()) as device:
        with pytest.raises(BudgetError, match=r"rung 2 \(level 2\) would cost 1 more, and 0\.2 of 1\.2 is left"):
            device.release_next(asked, now_ms=END + 10_000)
        assert device.odometer.epsilon == 1.0
        assert device.release_next(asked, now_ms=asked.expiry_ms(WEEK) + 1) is None
    with (
        Device(ledger, [survey(name='name = "clock"')], MemoryTransport()) as device,
        pytest.raises(ReleaseError, match="its levels open by the clock"),
    ):
        device.release_next("clock", now_ms=WEEK)


def test_rungs_on_demand_are_accepted_from_their_common_opening_on() -> None:
    asked = on_demand("10m", retention='retention = "1h"')
    assert asked.opens_ms == (0, 600_000, 600_000)
    assert asked.accepted_ms == (540_000, 540_000)
    assert on_demand("0s").accepted_ms == (0, 0)
    assert asked.id == survey().id, "how levels are released is no part of the id"


def test_whichever_levels_people_choose_together_they_cost_the_highest() -> None:
    """Exact, over rationals: all sets of released rungs, all values, all answers of a small chain."""
    chain = Chain.retention([0.5, 1.0, 2.0], 3)
    law = list(joint_law(fractions_of(chain.top), [fractions_of(kernel) for kernel in chain.kernels]))
    charged = survey().mechanism.epsilons
    for size in range(1, chain.rungs + 1):
        for chosen in combinations(range(chain.rungs), size):
            seen: dict[tuple[int, ...], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 3)
            for answers, chances in law:
                key = tuple(answers[rung] for rung in chosen)
                seen[key] = [sum(pair, Fraction(0)) for pair in zip(seen[key], chances, strict=True)]
            worst = max(max(chances) / min(chances) for chances in seen.values())
            assert worst == max_ratio(fractions_of(chain.channels[chosen[-1]]))
            assert math.log(worst) <= charged[chosen[-1]] <= math.log(worst) + 1e-12


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"lifetime": INDEPENDENT}, "release.kind", "people decide which rung they release"),
        ({"ladder": "ladder = [1.0]"}, "release.ladder", "one level leaves nothing to release on demand"),
        ({"lifetime": 'lifetime = 9\nunlock = "often"'}, "budget.unlock", "such as"),
        ({"lifetime": "lifetime = 9\nreserve = 10"}, "budget.reserve", "from 0 to the lifetime of 9"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(changes: dict[str, str], field: str, reason: str) -> None:
    with pytest.raises(SurveyError, match=reason) as refused:
        on_demand(**changes)
    assert refused.value.field == field
