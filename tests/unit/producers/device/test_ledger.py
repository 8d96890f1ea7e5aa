"""The file that must not forget: private, durable, exact."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.device.budget import UNITS_PER_EPSILON, Odometer, cost_units
from producers.device.ledger import Ledger, LedgerError, StoredChain
from producers.device.outbox import Outbox, OutgoingReport
from producers.device.wishing import Wish, wish_next

CHAIN = StoredChain(
    survey_id="colour-00000000",
    window_ms=60_000,
    answers=b"\x01\x02\x03\x04\x05\x06",
    groups=(0, 7),
    epsilons=(0.1 + 0.2, 1.0, math.inf),
    jitters_ms=((0, 1), (2, 3), (4, 5)),
    drawn_ms=61_000,
    released=(),
    charged_units=0,
    expires_ms=100_000,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.touch(mode=0o666)
    path.chmod(0o666)
    ledger = Ledger(path)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "ledger.sqlite": 0o600,
        "ledger.sqlite-wal": 0o600,
        "ledger.sqlite-shm": 0o600,
    }
    ledger.close()


def test_commits_are_durable_and_erased_values_overwritten(ledger: Ledger) -> None:
    pragmas = {
        name: ledger.connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "secure_delete")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}


def test_the_secret_is_drawn_once_per_file(tmp_path: Path) -> None:
    first, other = Ledger(tmp_path / "a"), Ledger(tmp_path / "b")
    again = Ledger(tmp_path / "a")
    assert first.secret == again.secret != other.secret
    assert len(first.secret) == 32


def test_a_chain_comes_back_as_it_was_stored(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.add(CHAIN)
    assert ledger.chain(CHAIN.survey_id, CHAIN.window_ms) == CHAIN
    assert ledger.chain(CHAIN.survey_id, 0) is None
    assert CHAIN.answer(0, 0) == b"\x01"
    assert CHAIN.answer(2, 1) == b"\x06"
    with pytest.raises(sqlite3.IntegrityError), ledger.transaction():
        ledger.add(CHAIN)


def test_releases_are_charged_with_the_chain(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.add(CHAIN)
        ledger.release(CHAIN, 0, 30, unbounded=False, now_ms=62_000)
        ledger.release(replace(CHAIN, released=(0,)), 2, 0, unbounded=True, now_ms=63_000)
    stored = ledger.chain(CHAIN.survey_id, CHAIN.window_ms)
    assert stored is not None
    assert (stored.released, stored.highest, stored.charged_units) == ((0, 2), 2, 30)
    assert ledger.odometer() == Odometer(30, 1)


def test_a_transaction_that_fails_leaves_nothing(ledger: Ledger) -> None:
    def fails() -> None:
        with ledger.transaction():
            ledger.add(CHAIN)
            ledger.release(CHAIN, 0, 30, unbounded=False, now_ms=62_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert ledger.kept() == []
    assert ledger.odometer() == Odometer(0, 0)


def test_a_full_disk_leaves_nothing_half_done(ledger: Ledger) -> None:
    pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.connection.execute(f"PRAGMA max_page_count = {pages}")
    large = replace(CHAIN, answers=bytes(3 * 100_000))

    def store() -> None:
        with ledger.transaction():
            ledger.release(large, 0, 30, unbounded=False, now_ms=62_000)
            ledger.add(large)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        store()
    assert ledger.odometer() == Odometer(0, 0)
    ledger.connection.execute("PRAGMA max_page_count = 1000000")
    store()
    assert ledger.kept() == [large]


def test_expired_answers_are_erased_while_reports_still_wait(ledger: Ledger) -> None:
    outbox = Outbox(ledger)
    with ledger.transaction():
        ledger.add(CHAIN)
        ledger.release(CHAIN, 0, 30, unbounded=False, now_ms=62_000)
        outbox.put([OutgoingReport(CHAIN.survey_id, CHAIN.window_ms, 0, 0, 3, 61_000, b"frame")])
    assert ledger.erase_expired(CHAIN.expires_ms) == 0
    assert ledger.erase_expired(CHAIN.expires_ms + 1) == 1
    assert ledger.erase_expired(CHAIN.expires_ms + 1) == 0
    ((_, report),) = outbox.ready(61_000, 10)
    assert report.frame == b"frame", "what was released may still be sent"
    stored = ledger.chain(CHAIN.survey_id, CHAIN.window_ms)
    assert stored is not None
    assert stored.answers is None
    assert stored.charged_units == 30
    assert ledger.kept() == []
    with pytest.raises(LedgerError, match="erased when the window expired"):
        stored.answer(0, 0)


ANSWERS = b"all answers of one chain"


def bytes_of(folder: Path) -> bytes:
    """Return the bytes of the ledger and of all files beside it."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def test_erased_answers_leave_all_files_as_soon_as_no_other_process_reads(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.transaction():
        ledger.add(replace(CHAIN, answers=ANSWERS))
    assert ANSWERS in bytes_of(tmp_path)
    reader = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT COUNT(*) FROM chains").fetchone() == (1,)
    began = time.monotonic()
    assert ledger.erase_expired(CHAIN.expires_ms + 1) == 1
    assert time.monotonic() - began < 10, "a reader must not hold up the device"
    assert ANSWERS in bytes_of(tmp_path), "the reader still sees them: this is what the next call is for"
    reader.close()
    assert ledger.erase_expired(CHAIN.expires_ms + 1) == 0
    assert ANSWERS not in bytes_of(tmp_path)
    assert ledger.connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)


def make_older(ledger: Ledger, version: int) -> None:
    """Take away what versions 3 to 8 added."""
    ledger.connection.execute("ALTER TABLE chains DROP COLUMN wished")
    ledger.connection.execute("ALTER TABLE chains DROP COLUMN sealed")
    ledger.connection.execute("ALTER TABLE chains DROP COLUMN standing")
    ledger.connection.execute("ALTER TABLE chains DROP COLUMN withdrawn_ms")
    ledger.connection.execute("ALTER TABLE outbox DROP COLUMN withdrawal")
    for table in ("surveys", "releases", "withdrawals", "standing", "bulletins"):
        ledger.connection.execute(f"DROP TABLE {table}")
    for column in ("lifetime_epsilon", "unlock", "consent"):
        ledger.connection.execute(f"ALTER TABLE device DROP COLUMN {column}")
    ledger.connection.execute(f"PRAGMA user_version = {version}")


def test_a_ledger_of_the_second_version_keeps_what_was_spent_and_gets_accounts(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    with ledger.transaction():
        for window_ms, survey_id in ((1, CHAIN.survey_id), (2, CHAIN.survey_id), (1, "two-words-00000000")):
            chain = replace(CHAIN, window_ms=window_ms, survey_id=survey_id)
            ledger.add(chain)
            ledger.release(chain, 0, 30, unbounded=False, now_ms=62_000)
        ledger.release(replace(chain, released=(0,)), 2, 0, unbounded=True, now_ms=63_000)
        make_older(ledger, 2)
    ledger.close()
    opened = Ledger(path)
    assert opened.odometer() == Odometer(90, 1)
    accounts = opened.connection.execute("SELECT name, first_ms, spent_units, unbounded FROM surveys ORDER BY name")
    assert accounts.fetchall() == [("colour", 61_000, 60, 0), ("two-words", 61_000, 30, 1)]
    moments = opened.connection.execute("SELECT rung, released_ms, sent_ms FROM releases WHERE survey_id LIKE 'two%'")
    assert moments.fetchall() == [(0, None, None), (2, None, None)]


def test_a_ledger_of_the_seventh_version_takes_wishes(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    with ledger.transaction():
        ledger.add(CHAIN)
        ledger.release(CHAIN, 0, 30, unbounded=False, now_ms=62_000)
        ledger.connection.execute("ALTER TABLE chains DROP COLUMN wished")
        ledger.connection.execute("ALTER TABLE surveys DROP COLUMN on_demand")
        ledger.connection.execute("PRAGMA user_version = 7")
    ledger.close()
    opened = Ledger(path)
    assert opened.kept() == [replace(CHAIN, released=(0,), charged_units=30)]
    assert opened.odometer() == Odometer(30, 0)
    with pytest.raises(LedgerError, match="its levels open by the clock"):
        wish_next(opened, "colour", None, 62_000)
    opened.connection.execute("UPDATE surveys SET on_demand = 1")
    assert wish_next(opened, "colour", None, 62_000) == Wish(CHAIN.survey_id, CHAIN.window_ms, 1, 1.0)
    opened.close()
    assert Ledger(path).kept() == [replace(CHAIN, released=(0,), charged_units=30, wished=1)]


def test_a_ledger_of_the_first_version_loses_its_values_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    secret = ledger.secret
    with ledger.transaction():
        for number in range(50):
            ledger.add(replace(CHAIN, window_ms=number))
        ledger.connection.execute("ALTER TABLE chains ADD COLUMN value BLOB")
        ledger.connection.execute("ALTER TABLE chains ADD COLUMN inputs BLOB")
        ledger.connection.execute("UPDATE chains SET value = ?, inputs = ?", (b"the true value", b"as it was encoded"))
        make_older(ledger, 1)
    ledger.close()
    assert b"the true value" in bytes_of(tmp_path)
    opened = Ledger(path)
    assert b"the true value" not in bytes_of(tmp_path)
    assert b"as it was encoded" not in bytes_of(tmp_path)
    assert opened.secret == secret
    assert opened.kept() == [replace(CHAIN, window_ms=number) for number in range(50)]


def test_the_outbox_is_bounded_but_never_stuck(ledger: Ledger) -> None:
    outbox = Outbox(ledger, limit=2)
    assert outbox.has_room(3)
    outbox.put([OutgoingReport("s", 0, 0, copy, 0, 10 + copy, b"") for copy in range(2)])
    assert len(outbox) == 2
    assert not outbox.has_room(1)
    assert outbox.next_ready_ms() == 10
    assert [report.copy for _, report in outbox.ready(10, 5)] == [0]
    with pytest.raises(ValueError, match="at least one report; got 0"):
        Outbox(ledger, limit=0)


def test_a_rung_cannot_be_put_twice(ledger: Ledger) -> None:
    outbox = Outbox(ledger)
    outbox.put([OutgoingReport("s", 0, 1, 0, 0, 10, b"one")])
    with pytest.raises(sqlite3.IntegrityError):
        outbox.put([OutgoingReport("s", 0, 1, 0, 0, 10, b"other")])


def test_files_that_are_no_ledgers_are_refused(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(os.urandom(5000))
    with pytest.raises(LedgerError, match=r"rubbish is not a ledger that can be read .* move it away"):
        Ledger(rubbish)
    newer = Ledger(tmp_path / "newer")
    newer.connection.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(LedgerError, match="has ledger version 9; this program reads version 8"):
        Ledger(tmp_path / "newer")
    with pytest.raises(LedgerError, match=r"cannot be opened for writing \(No such file or directory\); name a file"):
        Ledger(tmp_path / "nowhere" / "ledger")


@given(st.lists(st.floats(0, 20), max_size=30))
def test_sums_of_costs_are_never_too_small(epsilons: list[float]) -> None:
    charged = sum(cost_units(epsilon) for epsilon in epsilons)
    exact = sum(map(Fraction, epsilons), Fraction(0)) * UNITS_PER_EPSILON
    assert exact <= charged < exact + len(epsilons) + 1
