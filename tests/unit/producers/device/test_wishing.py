"""Asking a device from outside for one level more: refused at once, granted once, or refused by the device with why."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from producers.device.agent import Device
from producers.device.ledger import Ledger, LedgerError
from producers.device.page import page_of
from producers.device.statement import as_data, read_statement
from producers.device.wishing import Wish, wish_next
from producers.survey.survey import Survey
from tests.support.continuing import on_demand as continued_on_demand
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, rungs

END = WEEK + WINDOW_MS
OPENS = END + 10_000


def on_demand(**changes: str) -> Survey:
    return survey(kind='kind = "on_demand"', opens='after = "10s"', **changes)


def ask(path: Path, asked: str, window_ms: int | None = None, now_ms: int = END) -> Wish:
    """Ask as another process does: through a ledger of its own."""
    ledger = Ledger(path)
    try:
        return wish_next(ledger, asked, window_ms, now_ms)
    finally:
        ledger.close()


def is_wished(path: Path) -> list[bool]:
    """Tell of each window, the newest first, whether its next level is shown as wished."""
    statement = read_statement(path, END)
    windows = as_data(statement)["surveys"][0]["windows"]
    wished = [bool(window["next"] and window["next"]["wished"]) for window in windows]
    assert page_of(statement, 0.5).count("asked for") == sum(wished)
    return wished


def test_a_wish_is_granted_once_when_its_level_opens(ledger: Path) -> None:
    asked, transport = on_demand(), MemoryTransport()
    with Device(ledger, [asked], transport, lifetime_epsilon=7) as device:
        device.observe(asked, "green", WEEK)
        device.tick(END)
        assert ask(ledger, "colour") == ask(ledger, asked.id, WEEK) == Wish(asked.id, WEEK, 1, 1.0)
        assert is_wished(ledger) == [True]
        assert read_statement(ledger, END).limit == 7, "asking does not change the person's bound"
        assert device.next_ms() == OPENS
        assert device.tick(OPENS - 1).released == 0
        assert device.tick(OPENS).released == 1
        assert is_wished(ledger) == [False]
        assert device.next_ms() is None
        device.tick(OPENS + 60_000)
        assert (rungs(transport, asked), device.odometer.epsilon) == ([0, 1], 1.0)
        ask(ledger, "colour", now_ms=OPENS + 60_000)
        device.tick(OPENS + 60_000)
        assert (rungs(transport, asked), device.odometer.epsilon) == ([0, 1, 2], 2.0)
        with pytest.raises(LedgerError, match="no level is left, the sharpest answer was released"):
            ask(ledger, "colour", now_ms=OPENS + 60_000)


def test_a_wish_is_for_a_rung_whoever_releases_it(ledger: Path) -> None:
    asked, transport = on_demand(), MemoryTransport()
    with Device(ledger, [asked], transport) as device, Device(ledger, [asked], transport) as other:
        device.observe(asked, "green", WEEK)
        ask(ledger, "colour")
        device.release_next(asked, now_ms=OPENS)
        assert is_wished(ledger) == [False], "the application has released it"
        assert device.tick(OPENS).released == 0
        ask(ledger, "colour")
        assert device.tick(OPENS).released + other.tick(OPENS).released == 1
        assert (sorted(rungs(transport, asked)), device.odometer.epsilon) == ([0, 1, 2], 2.0)


def test_the_newest_window_that_has_begun_and_has_a_level_left_is_meant(ledger: Path) -> None:
    asked, later = on_demand(), END + WINDOW_MS
    with Device(ledger, [asked], MemoryTransport(), outbox_limit=2) as device:
        for moment_ms in (WEEK, END, later):
            device.observe(asked, "green", moment_ms)
        assert ask(ledger, "colour", now_ms=later).window_ms == END, "the third has no room in the outbox yet"
        with pytest.raises(LedgerError, match=rf"window {later}: its first answer was not released yet"):
            ask(ledger, "colour", later, later)
        assert ask(ledger, "colour", WEEK, later).window_ms == WEEK
        assert is_wished(ledger) == [False, True, True]


@pytest.mark.parametrize(
    ("name", "window_ms", "now_ms", "reason"),
    [
        ("nobody", None, END, "'nobody': this device does not know it"),
        ("clock", None, END, "clock-.*: its levels open by the clock"),
        ("colour", END, END, f"window {END}: there are no answers that still count"),
        ("colour", WEEK, WEEK + 400_000, "there are no answers that still count"),
        ("colour", None, WEEK + 400_000, "there are no answers that still count"),
    ],
)
def test_what_cannot_be_wished_is_refused_at_once(
    ledger: Path, name: str, window_ms: int | None, now_ms: int, reason: str
) -> None:
    asked, clock = on_demand(), survey(name='name = "clock"')
    with Device(ledger, [asked, clock], MemoryTransport()) as device:
        for one in (asked, clock):
            device.observe(one, "green", WEEK)
        before = read_statement(ledger, 0)
        with pytest.raises(LedgerError, match=reason):
            ask(ledger, name, window_ms, now_ms)
        assert read_statement(ledger, 0) == before


@pytest.mark.parametrize(
    ("caps", "lifetime", "reason"),
    [
        ({"colour": 0.7}, "lifetime = 9", r"rung 1 \(level 1\) was asked for, and the person allows 0\.7 per window"),
        ({}, "lifetime = 0.8", r"rung 1 \(level 1\) would cost 0\.5 more, and 0\.3 of 0\.8 is left"),
    ],
)
def test_a_wish_that_cap_or_budget_forbids_is_gone_and_the_log_says_why_once(
    ledger: Path, caplog: pytest.LogCaptureFixture, caps: dict[str, float], lifetime: str, reason: str
) -> None:
    asked, transport = on_demand(lifetime=lifetime), MemoryTransport()
    with Device(ledger, [asked], transport, caps=caps) as device, caplog.at_level(logging.WARNING):
        device.observe(asked, "green", WEEK)
        for _ in range(2):
            ask(ledger, "colour")
            (refusal,) = device.tick(OPENS).refused
            assert is_wished(ledger) == [False]
            assert device.tick(OPENS).refused == ()
    assert [record.getMessage() for record in caplog.records] == [refusal]
    assert re.search(reason, refusal)
    with Device(ledger, [on_demand()], transport) as device:
        device.tick(OPENS + 1)
        assert device.odometer.epsilon == 0.5, "what was refused is not released later"
    assert rungs(transport, asked) == [0]


def test_a_wish_waits_while_the_outbox_is_full(ledger: Path) -> None:
    asked, transport = on_demand(), MemoryTransport()
    transport.away = True
    with Device(ledger, [asked], transport, outbox_limit=1) as device:
        device.observe(asked, "green", WEEK)
        ask(ledger, "colour")
        assert device.tick(OPENS).refused == ()
        assert is_wished(ledger) == [True]
        transport.away = False
        device.tick(OPENS + 60_000)
        device.tick(OPENS + 60_000)
    assert rungs(transport, asked) == [0, 1]


def test_a_wish_for_a_level_of_a_newer_file_waits_for_that_file(ledger: Path) -> None:
    (short, longer), transport = continued_on_demand(), MemoryTransport()
    with Device(ledger, [longer], transport) as device:
        device.observe(longer, "green", WEEK)
        device.release_next(longer, now_ms=OPENS)
        ask(ledger, "colour")
    with Device(ledger, [short], transport) as device:
        assert device.tick(OPENS).refused == ()
        assert is_wished(ledger) == [True]
    with Device(ledger, [longer], transport) as device:
        assert device.tick(OPENS).released == 1
        assert device.odometer.epsilon == 2.0


def test_what_is_taken_back_or_switched_off_is_wished_no_more(ledger: Path) -> None:
    asked, transport = on_demand(shards="shards = 16\nwithdrawable = true"), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.observe(asked, "green", END)
        for start_ms in (WEEK, END):
            ask(ledger, "colour", start_ms)
        device.withdraw(asked, window_ms=WEEK, now_ms=END)
        assert is_wished(ledger) == [True, False]
        device.consent(False, END)
        device.tick(OPENS + WINDOW_MS)
        assert device.odometer.epsilon == 1.0
    assert rungs(transport, asked) == [3, 3]
