"""What a device says when the budget does not pay for a value, and what it has released by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.device.agent import Device
from producers.device.budget import BudgetError
from tests.support.surveys import WEEK, survey
from tests.support.transports import MemoryTransport


def test_overlapping_windows_are_answered_all_or_none(ledger: Path) -> None:
    asked = survey(size='size = "1m"\nstep = "15s"', lifetime="lifetime = 1.9")
    transport = MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        with pytest.raises(
            BudgetError,
            match=r"rung 0 \(level 0\.5\) would cost 0\.5 more, and 0\.4 of 1\.9 is left.* nothing was released for",
        ):
            device.observe(asked, "green", WEEK + 45_000)
        assert device.odometer.epsilon == 0
        assert device.tick(WEEK + 45_000).waiting == 0
        assert transport.messages == []
        assert device.next_ms() is None
    with Device(ledger, [asked], transport, lifetime_epsilon=1.0) as device:
        assert device.left(asked) == 1.0


def test_a_refusal_counts_no_window_that_was_answered_before(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "30s"', lifetime="lifetime = 1.4"), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK + 35_000)
        assert device.tick(WEEK + 35_000).sent == 2
        with pytest.raises(BudgetError) as one:
            device.observe(asked, "green", WEEK + 65_000)
    assert f"window {WEEK + 60_000}: rung 0" in str(one.value)
    assert "all or none" not in str(one.value)
    assert str(one.value).endswith(f"; answered before, and as it was: window {WEEK + 30_000}")


def test_a_refusal_tells_new_windows_from_those_that_have_an_answer(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "15s"', lifetime="lifetime = 2.9"), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK + 45_000)
        with pytest.raises(BudgetError) as some:
            device.observe(asked, "green", WEEK + 75_000)
        assert device.odometer.epsilon == 4 * 0.5
    known = ", ".join(str(WEEK + after_ms) for after_ms in (30_000, 45_000))
    assert "belongs to 2 windows without an answer" in str(some.value)
    assert str(some.value).endswith(f"; answered before, and as it was: window {known}")
