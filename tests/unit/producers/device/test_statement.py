"""The person's own page: what left, when, at what cost, what it means; no value, and for the owner alone."""

from __future__ import annotations

import math
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from estimators.planning.odds import highest_percent, highest_suspicion
from producers.device.agent import Device
from producers.device.ledger import Ledger, LedgerError
from producers.device.page import MOST_WINDOWS, page_of
from producers.device.statement import as_data, meaning, read_statement
from tests.support.surveys import INDEPENDENT, WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport

END = WEEK + WINDOW_MS


def test_it_says_what_left_when_and_at_what_cost(ledger: Path) -> None:
    asked, transport = survey(question='question = "Which <b>colour</b>?"'), MemoryTransport()
    with Device(ledger, [asked], transport, lifetime_epsilon=5.0) as device:
        device.observe(asked, "green", WEEK + 5)
        device.tick(WEEK + 5)
        device.observe(asked, "green", END)
        device.tick(END + 10_000)
        transport.away = True
        device.tick(END + WINDOW_MS + 10_000)
        found = read_statement(ledger, END + WINDOW_MS + 20_000)
        odometer = device.odometer
    (told,) = found.surveys
    newest, oldest = told.windows
    assert (found.spent, found.left, found.limit, found.waiting) == (odometer.epsilon, 2.0, 5.0, 2)
    assert [(level.epsilon, level.released_ms, level.sent_ms) for level in oldest.levels] == [
        (0.5, WEEK + 5, WEEK + 5),
        (1.0, END + 10_000, END + 10_000),
        (2.0, END + WINDOW_MS + 10_000, None),
    ]
    assert [level.waiting for level in oldest.levels] == [False, False, True]
    assert (oldest.epsilon, oldest.paid, oldest.following) == (2.0, 2.0, None)
    assert newest.following is not None
    assert (newest.paid, newest.following.epsilon, newest.following.costs) == (1.0, 2.0, 1.0)
    assert sum(more for _, more in found.spending) == found.spent
    data = as_data(found, 0.17)
    assert data["may_become"] == highest_suspicion(0.17, 3.0)
    assert data["surveys"][0]["windows"][0]["next"]["may_become"] == highest_suspicion(0.17, 2.0)
    page = page_of(found, 0.17)
    assert "Which &lt;b&gt;colour&lt;/b&gt;?" in page
    assert "anyone who sees all of it can raise a suspicion of 17 % to at most 80.5 %" in page
    assert "waits to be sent" in page
    assert "<script" not in page
    assert "http:" not in page
    assert "green" not in page + str(data), "no value is shown"


def test_a_chain_that_was_paid_at_once_is_told_as_such_and_an_erased_one_has_nothing_to_follow(ledger: Path) -> None:
    asked = survey(lifetime=INDEPENDENT)
    with Device(ledger, [asked], MemoryTransport()) as device:
        device.observe(asked, "red", WEEK)
        (window,) = read_statement(ledger, WEEK).surveys[0].windows
        assert (window.paid, window.epsilon) == (2.0, 0.5)
        assert window.following is not None
        assert window.following.costs == 0.0
        device.tick(asked.expiry_ms(WEEK) + 1)
        assert read_statement(ledger, WEEK).surveys[0].windows[0].following is None


def test_one_more_level_of_a_repeated_window_costs_what_the_ledger_then_charges(ledger: Path) -> None:
    asked = survey(size='size = "1m"\nstanding = true')
    with Device(ledger, [asked], MemoryTransport()) as device:
        device.observe(asked, "green", WEEK)
        device.tick(END + 10_000)
        device.observe(asked, "green", END)
        found = read_statement(ledger, END + 10_000)
        newest, oldest = found.surveys[0].windows
        assert newest.following is not None
        assert oldest.following is not None
        assert (newest.paid, newest.following.epsilon, newest.following.costs) == (0.0, 1.0, 0.0)
        assert (oldest.paid, oldest.following.epsilon, oldest.following.costs) == (1.0, 2.0, 1.0)
        assert [window["next"]["costs"] for window in as_data(found)["surveys"][0]["windows"]] == [0.0, 1.0]
        page = page_of(found, 0.17)
        for told in (newest.following, oldest.following):
            assert f"<td>{told.costs:g}<small>then at most {highest_percent(0.17, told.epsilon)}</small></td>" in page
        device.tick(END + WINDOW_MS + 10_000)
        assert device.odometer.epsilon == found.spent + newest.following.costs + oldest.following.costs
        newest = read_statement(ledger, END).surveys[0].windows[0]
        assert newest.following is not None
        assert (newest.epsilon, newest.following.costs) == (1.0, 0.0), "the window before has paid for the top"


def test_answers_without_a_finite_cost_have_no_bound(ledger: Path) -> None:
    chains = Ledger(ledger)
    with Device(ledger, [survey()], MemoryTransport()) as device:
        (chain,) = device.observe("colour", "red", WEEK)
    with chains.transaction():
        chains.release(chain, 2, 0, unbounded=True, now_ms=END)
    chains.close()
    found = read_statement(ledger, END)
    assert math.isinf(found.epsilon)
    assert as_data(found)["may_become"] == 1.0
    assert "may turn a suspicion of 17 % into certainty" in page_of(found, 0.17)
    assert meaning(0.0) == "nobody can learn anything from it: a suspicion of 17 % stays one of 17 %"


def test_only_the_owner_may_read_it_and_only_while_nobody_else_can(ledger: Path, tmp_path: Path) -> None:
    Ledger(ledger).close()
    before = ledger.read_bytes()
    ledger.chmod(0o640)
    with pytest.raises(LedgerError, match=r"is open to other users \(mode 0640\); .* run: chmod 600"):
        read_statement(ledger, 0)
    ledger.chmod(0o600)
    assert read_statement(ledger, 0).surveys == ()
    with (
        patch("producers.device.statement.os.geteuid", return_value=os.geteuid() + 1),
        pytest.raises(LedgerError, match="belongs to another user; only the owner"),
    ):
        read_statement(ledger, 0)
    assert ledger.read_bytes() == before
    with pytest.raises(LedgerError, match=r"cannot be read \(No such file or directory\)"):
        read_statement(tmp_path / "none", 0)
    assert not (tmp_path / "none").exists()
    with pytest.raises(LedgerError, match="is not a file"):
        read_statement(tmp_path, 0)


def test_files_that_are_no_ledgers_of_today_are_refused(ledger: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database, though longer than a header of a hundred bytes would have to be " * 3)
    text.chmod(0o600)
    with pytest.raises(LedgerError, match="is not a ledger that can be read"):
        read_statement(text, 0)
    older = Ledger(ledger)
    older.connection.execute("PRAGMA user_version = 2")
    older.close()
    with pytest.raises(LedgerError, match=r"has ledger version 2, .* start its device once with this program"):
        read_statement(ledger, 0)


def test_a_page_of_many_windows_is_cut_and_says_so(ledger: Path) -> None:
    asked = survey(lifetime="lifetime = 1000000")
    with Device(ledger, [asked], MemoryTransport(), lifetime_epsilon=math.inf) as device:
        device._ledger.connection.execute("PRAGMA synchronous = OFF")  # nothing here outlives the machine
        for window in range(MOST_WINDOWS + 7):
            device.observe(asked, "red", WEEK + window * WINDOW_MS)
    page = page_of(read_statement(ledger, END), 0.17)
    assert page.count("<tr>") == MOST_WINDOWS + 1
    assert "7 older windows" in page
