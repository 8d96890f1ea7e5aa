"""Who may spend how much: fair shares, reserves, budgets that unlock; and what a refusal says."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.device.accounts import Account, Budget, Claim, fair_shares
from producers.device.agent import Device
from producers.device.budget import UNBOUNDED, UNITS_PER_EPSILON, BudgetError
from producers.survey.unlocking import Unlock, parse_unlock
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, rungs

END = WEEK + WINDOW_MS
HOUR_MS = 3_600_000

CLAIMS = st.lists(
    st.builds(
        lambda low, more, weight: Claim(low, low + more, Fraction(weight, 4)),
        st.integers(0, 50),
        st.integers(0, 100),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 400), CLAIMS)
def test_shares_fit_the_budget_and_leave_nothing_that_somebody_needs(pot: int, claims: list[Claim]) -> None:
    shares = fair_shares(pot, claims)
    assert all(claim.low <= share <= claim.high for share, claim in zip(shares, claims, strict=True))
    lows = sum(claim.low for claim in claims)
    assert sum(shares) <= max(pot, lows)
    if sum(shares) < min(pot, sum(claim.high for claim in claims if claim.weight)):
        # What is left over is less than one unit for each: shares are whole units at one common level.
        assert pot - sum(shares) <= sum(math.ceil(claim.weight) for claim in claims)


@given(st.integers(0, 400), CLAIMS)
def test_nobody_gets_less_than_an_equal_part_by_what_others_ask(pot: int, claims: list[Claim]) -> None:
    """Unless the others have spent it before: what was spent is gone."""
    fresh = [Claim(0, claim.high, claim.weight) for claim in claims]
    weights = sum(claim.weight for claim in claims)
    for share, claim in zip(fair_shares(pot, fresh), fresh, strict=True):
        part = math.floor(pot * claim.weight / weights) if weights else 0
        assert share >= min(claim.high, part - math.ceil(claim.weight))


def test_a_greedy_survey_does_not_starve_another(ledger: Path) -> None:
    greedy, modest = survey(), survey(name='name = "shade"')
    with Device(ledger, [greedy, modest], MemoryTransport(), lifetime_epsilon=4.0) as device:
        device.observe(greedy, "red", WEEK)
        device.tick(END + 30_000)
        assert device.left(greedy) == 0.0
        with pytest.raises(
            BudgetError,
            match=r"window \d+: rung 0 \(level 0\.5\) would cost 0\.5 more, and 0 of this survey's share of 2 is left "
            r"on this device, which 2 surveys share in 4 \(2 spent on all surveys: colour 2\); it is not released",
        ):
            device.observe(greedy, "red", END)
        device.observe(modest, "red", END)
        device.tick(END + WINDOW_MS + 30_000)
        assert device.odometer.epsilon == 4.0
    with Device(ledger, [modest, survey(name='name = "third"')], MemoryTransport(), lifetime_epsilon=6.0) as device:
        assert device.left(modest) == 0.0, "what a survey spent that is gone does not come back"
        assert device.left("third") == 2.0


def test_what_a_survey_does_not_need_goes_to_the_others_and_the_person_may_weigh(ledger: Path) -> None:
    one, small = survey(), survey(name='name = "small"', lifetime="lifetime = 0.5")
    ended = survey(name='name = "ended"\nend = 2020-01-01')
    transport = MemoryTransport()
    with Device(ledger, [one, small, ended], transport, lifetime_epsilon=6.0) as device:
        assert device.left(one, WEEK) == 5.5
    shares = {"colour": 3.0, "shade": 1.0}
    with Device(ledger, [one, survey(name='name = "shade"')], transport, lifetime_epsilon=8.0, shares=shares) as device:
        assert (device.left(one), device.left("shade")) == (6.0, 2.0)
    with pytest.raises(ValueError, match="a share is a number, not negative"):
        Device(ledger, [one], transport, shares={"colour": -1.0})


def test_a_reserve_is_spent_whatever_the_others_spent(ledger: Path) -> None:
    other, poor = survey(), survey(name='name = "poor"', lifetime="lifetime = 1.5")
    kept = survey(name='name = "kept"', lifetime="lifetime = 1.5\nreserve = 0.5")
    with Device(ledger, [other, poor, kept], MemoryTransport()) as device:
        device.observe(other, "red", WEEK)
        device.tick(END + 30_000)
        with pytest.raises(BudgetError, match=r"0 of 1\.5 is left on this device"):
            device.observe(poor, "red", END)
        device.observe(kept, "red", END)
        (refused,) = device.tick(END + WINDOW_MS + 30_000).refused
        assert "rung 1 (level 1) would cost 0.5 more, and 0 of 0.5 that is reserved for this survey is left" in refused
        assert device.odometer.epsilon == 2.5


def test_a_budget_unlocks_over_time_and_what_waits_is_released_then(ledger: Path) -> None:
    asked = survey(retention='retention = "3d"', lifetime='lifetime = 4\nunlock = "1 per hour"')
    transport = MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        assert device.left(asked, WEEK) == 1.0
        device.observe(asked, "red", WEEK)
        assert not device.tick(END + 40_000).refused, "the rung below is paid"
        (refused,) = device.tick(END + 50_000).refused
        assert "0 of 1 that has unlocked for this survey is left, 1 more unlocks at 2026-" in refused
        assert device.next_ms() == WEEK + HOUR_MS
        assert device.tick(WEEK + HOUR_MS - 1).refused
        device.tick(WEEK + HOUR_MS)
        assert sorted(rungs(transport, asked)) == [0, 1, 2]
        assert device.left(asked, WEEK + 2 * HOUR_MS) == 1.0
        assert device.left(asked, WEEK + 900 * HOUR_MS) == 2.0, "the lifetime holds as well"
        assert device.left(asked, WEEK - HOUR_MS) == 0.0, "a clock that was set back unlocks nothing"


def test_the_persons_own_budget_unlocks_for_all_surveys_together(ledger: Path) -> None:
    one, other = survey(), survey(name='name = "shade"')
    with Device(ledger, [one, other], MemoryTransport(), lifetime_epsilon=5.0, unlock="1 per hour") as device:
        device.observe(one, "red", WEEK)
        device.observe(other, "red", WEEK)
        assert device.odometer.epsilon == 1.0
        with pytest.raises(BudgetError, match=r"share of 0\.5 .* in 1 that the person's budget has unlocked"):
            device.observe(one, "red", END)
        assert (device.left(one, WEEK + HOUR_MS), device.left(other, WEEK + HOUR_MS)) == (0.5, 0.5)
        assert device.left(one, WEEK + 99 * HOUR_MS) == 2.0


def test_what_does_not_pay_for_an_answer_at_first_pays_for_it_later(ledger: Path) -> None:
    one, other = survey(), survey(name='name = "shade"')
    with Device(ledger, [one, other], MemoryTransport(), lifetime_epsilon=5.0, unlock="0.5 per hour") as device:
        with pytest.raises(BudgetError, match=r"0\.25 of this survey's share of 0\.25"):
            device.observe(one, "red", WEEK)
        device.observe(one, "red", WEEK + HOUR_MS)
        assert device.odometer.epsilon == 0.5


def test_an_answer_without_a_finite_cost_needs_budgets_without_bound() -> None:
    budget = Budget([survey()], math.inf, None, {})
    assert not budget.allowance(survey(), 0, {}, WEEK).covers(UNBOUNDED)
    bounded = budget.allowance(survey(), 7, {"colour": Account(7, WEEK)}, WEEK)
    assert bounded.units == 100 * UNITS_PER_EPSILON - 7


@pytest.mark.parametrize(
    "text", ["", "1", "1 per", "per day", "0 per day", "-1 per day", "inf per day", "1 per 0s", "1 per moon"]
)
def test_unlocks_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"0\.5 per day"):
        parse_unlock(text)
    assert parse_unlock(" 2  per 12h ") == Unlock(2.0, 12 * HOUR_MS)
