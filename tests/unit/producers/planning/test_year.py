"""A planned year against the ledgers of real devices: how long the budget lasts, and what people who stop early pay."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.device.agent import Device
from producers.device.budget import BudgetError
from producers.planning.year import year_of
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport

WINDOWS = 12


def answered(path: Path, budget: float, cap: float | None = None) -> tuple[int, float]:
    """Answer in window after window; return in how many the device reached its last rung, and what it has spent."""
    asked = survey(lifetime=f"lifetime = {budget}")
    complete, top = 0, asked.mechanism.epsilons[-1] if cap is None else cap
    with Device(path, [asked], MemoryTransport(), caps={} if cap is None else {asked.name: cap}) as device:
        for number in range(WINDOWS):
            start_ms, before = WEEK + number * WINDOW_MS, device.odometer.epsilon
            try:
                device.observe(asked, "green", start_ms)
            except BudgetError:
                continue
            device.tick(start_ms)
            device.tick(start_ms + WINDOW_MS + 30_000)
            complete += device.odometer.epsilon - before == pytest.approx(top)
        return complete, device.odometer.epsilon


@pytest.mark.parametrize("left_over", [0.0, 0.7])
def test_the_budget_pays_for_as_many_windows_as_planned(tmp_path: Path, left_over: float) -> None:
    top = survey().mechanism.epsilons[-1]
    budget = 5 * top + left_over * top
    planned = year_of(survey(lifetime=f"lifetime = {budget}"), stops=(0.0, 0.0, 1.0), changes=0)
    complete, spent = answered(tmp_path / "ledger.sqlite", budget)
    assert planned.windows_paid == complete == 5
    assert spent <= budget


def test_people_who_stop_early_pay_what_is_planned_on_average(tmp_path: Path) -> None:
    levels = survey().mechanism.epsilons
    year = year_of(survey(), stops=(1 / 3, 1 / 3, 1 / 3), changes=0)
    spent = [answered(tmp_path / f"{rung}.sqlite", 100.0, cap)[1] for rung, cap in enumerate(levels)]
    assert year.fresh_mean is not None
    assert sum(spent) / 3 / WINDOWS == pytest.approx(year.fresh_mean / year.windows)
    assert year.fresh is not None
    assert max(spent) / WINDOWS == pytest.approx(year.fresh / year.windows)
