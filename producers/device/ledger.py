"""The durable state of a device: its secret, its chains, what it has spent. One SQLite file, also for the outbox.

What a device sends was committed here first (WAL, synchronous=FULL: a commit survives a power cut). The file is
readable by its owner only. Restoring an older copy of it would make the device draw answers twice; do not back it up.

The true value is never written in the clear: a chain is drawn whole, and what levels that are added later would need is
sealed with a key that is not here, or not kept. Both go when the window expires, like the answers of rungs to come.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from producers.device.accounts import Account
from producers.device.budget import Odometer
from producers.device.noted import NotedSurvey
from producers.device.schema import PAID_UNITS, SCHEMA_VERSION, SECRET_BYTES, create_private, name_of, prepare
from producers.device.stored import COLUMNS, LedgerError, StandingAnswers, StoredChain, Withdrawal, chain_of

__all__ = ["Ledger", "LedgerError", "StoredChain"]

BUSY_SECONDS = 30.0
"""How long one process waits for another that holds the file."""

_IS_RELEASED = "CAST(released AS TEXT) <> '[]'"


class Ledger:
    """The SQLite file of one device. Use it from one thread; several processes may share the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            create_private(self.path)
        except OSError as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be opened for writing ({error.strerror}); name a file in a folder of "
                "this user"
            ) from error
        self._log_holds_erased = True
        self.connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self.connection.close()
            raise LedgerError(
                f"{self.path} is not a ledger that can be read ({error}); if it is lost, move it away: the device then "
                "starts as a new one, with a new secret and nothing spent"
            ) from error
        except LedgerError:
            self.connection.close()
            raise

    @property
    def secret(self) -> bytes:
        """What tokens are made with. Read each time: withdrawn consent renews it, maybe in another process."""
        secret: bytes = self.connection.execute("SELECT secret FROM device").fetchone()[0]
        return secret

    @property
    def consent(self) -> bool:
        """Whether the person agrees to answer."""
        return bool(self.connection.execute("SELECT consent FROM device").fetchone()[0])

    def allow(self) -> None:
        """Note that the person agrees again; windows answered before are not answered a second time."""
        self.connection.execute("UPDATE device SET consent = 1")

    def wipe(self, now_ms: int) -> None:
        """Note that the person no longer agrees, and keep nothing but what was spent. Not inside a transaction.

        Chains, moments and outgoing reports are erased, and the secret is renewed, so that nobody who finds the file
        can tell which tokens it made. What has left and can be withdrawn is: these reports alone stay, until they are
        acknowledged. Of each survey the newest answered window is kept: a second answer for it, under another token,
        would be counted twice.
        """
        with self.transaction():
            for survey_id, window_ms in self.connection.execute(
                "SELECT survey_id, MAX(window_ms) FROM chains GROUP BY survey_id"
            ).fetchall():
                self.connection.execute(
                    "UPDATE surveys SET wiped_ms = MAX(COALESCE(wiped_ms, ?1), ?1) WHERE name = ?2",
                    (window_ms, name_of(survey_id)),
                )
            self._withdraw("1", (), now_ms)
            self.connection.execute("DELETE FROM outbox WHERE withdrawal = 0")
            for table in ("chains", "releases", "withdrawals", "standing"):
                self.connection.execute(f"DELETE FROM {table}")
            self.connection.execute("UPDATE device SET consent = 0, secret = ?", (os.urandom(SECRET_BYTES),))
        self._truncate_log()

    def keep_withdrawals(self, rows: Iterable[Withdrawal]) -> None:
        """Store the reports that would withdraw a chain, inside the caller's transaction."""
        self.connection.executemany(
            "INSERT INTO withdrawals (survey_id, window_ms, rung, copy, shard, jitter_ms, frame, expires_ms) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def withdraw(self, survey_id: str, window_ms: int, now_ms: int) -> bool:
        """Withdraw one chain: nothing more of it leaves but the withdrawal. Not inside a transaction.

        Returns whether there was something to withdraw: an answer that was released and still counts. A chain of which
        nothing was released is erased all the same, and never leaves. The window is not answered again; what it cost
        stays spent.
        """
        place = survey_id, window_ms
        with self.transaction():
            found = self._withdraw("survey_id = ? AND window_ms = ?", place, now_ms)
            erased = self.connection.execute(
                "UPDATE chains SET answers = NULL, sealed = NULL, withdrawn_ms = ? "
                f"WHERE survey_id = ? AND window_ms = ? AND (? OR NOT {_IS_RELEASED})",
                (now_ms, *place, found),
            ).rowcount
            if erased:
                for table in ("outbox WHERE withdrawal = 0 AND", "withdrawals WHERE"):
                    self.connection.execute(f"DELETE FROM {table} survey_id = ? AND window_ms = ?", place)
        self._truncate_log()
        return found

    def _withdraw(self, condition: str, values: tuple[Any, ...], now_ms: int) -> bool:
        """Put the withdrawals of chains with a released answer into the outbox; the caller forgets them."""
        released = f"SELECT survey_id, window_ms FROM chains WHERE {_IS_RELEASED}"
        found = self.connection.execute(
            "INSERT INTO outbox (survey_id, window_ms, rung, copy, shard, ready_ms, frame, withdrawal) "
            "SELECT survey_id, window_ms, rung, copy, shard, MIN(? + jitter_ms, expires_ms), frame, 1 FROM withdrawals "
            f"WHERE {condition} AND expires_ms >= ? AND (survey_id, window_ms) IN ({released})",
            (now_ms, *values, now_ms),
        ).rowcount
        return found > 0

    def wiped_ms(self, survey_id: str) -> int | None:
        """Return the newest window that was answered before the ledger was wiped, None if there is none."""
        row = self.connection.execute("SELECT wiped_ms FROM surveys WHERE name = ?", (name_of(survey_id),)).fetchone()
        return None if row is None else row[0]

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        # Erased values must not stay in free pages.
        self.connection.execute("PRAGMA secure_delete = ON")
        with self.transaction():
            version = prepare(self.connection)
            if version != SCHEMA_VERSION:
                raise LedgerError(
                    f"{self.path} has ledger version {version}; this program reads version {SCHEMA_VERSION}; use the "
                    "program that wrote it"
                )
        self._truncate_log()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes made inside at once, or none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back by itself, for instance on a full disk.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def odometer(self) -> Odometer:
        """Return what was spent so far, over all surveys."""
        spent, unbounded = self.connection.execute("SELECT spent_units, unbounded FROM device").fetchone()
        return Odometer(spent, unbounded)

    def accounts(self) -> dict[str, Account]:
        """Return what every survey has spent, by name."""
        rows = self.connection.execute("SELECT name, spent_units, first_ms FROM surveys")
        return {name: Account(spent_units, first_ms) for name, spent_units, first_ms in rows}

    def chain(self, survey_id: str, window_ms: int) -> StoredChain | None:
        """Return a chain, erased or not, or None if none was ever drawn."""
        row = self.connection.execute(
            f"SELECT {COLUMNS} FROM chains WHERE survey_id = ? AND window_ms = ?", (survey_id, window_ms)
        ).fetchone()
        return None if row is None else chain_of(row)

    def kept(self) -> list[StoredChain]:
        """Return all chains whose answers still exist, oldest window first."""
        rows = self.connection.execute(
            f"SELECT {COLUMNS} FROM chains WHERE answers IS NOT NULL ORDER BY window_ms, survey_id"
        )
        return [chain_of(row) for row in rows]

    def add(self, chain: StoredChain) -> None:
        """Store a new chain; a second one for the same survey and window is refused by the schema."""
        json = msgspec.json.encode
        self.connection.execute(
            f"INSERT INTO chains ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(chain.survey_id, chain.window_ms, chain.answers),
                *map(json, (chain.groups, chain.epsilons, chain.jitters_ms)),
                *(chain.drawn_ms, json(chain.released), chain.charged_units),
                *(chain.expires_ms, chain.standing, chain.sealed, chain.wished),
            ),
        )

    def standing(self, survey_id: str, mark: bytes) -> StandingAnswers | None:
        """Return the answers of a value, None if there are none yet."""
        row = self.connection.execute(
            "SELECT answers, groups, charged_units FROM standing WHERE survey_id = ? AND mark = ?", (survey_id, mark)
        ).fetchone()
        return None if row is None else StandingAnswers(row[0], tuple(msgspec.json.decode(row[1])), row[2])

    def keep_standing(self, survey_id: str, mark: bytes, chain: StoredChain) -> None:
        """Keep the answers of a chain as those of a value, inside the caller's transaction."""
        self.connection.execute(
            "INSERT INTO standing (survey_id, mark, answers, groups) VALUES (?, ?, ?, ?)",
            (survey_id, mark, chain.answers, msgspec.json.encode(chain.groups)),
        )

    def paid_units(self, chain: StoredChain) -> int:
        """Return what was charged for the answers of a chain, in whichever windows they were released."""
        place = chain.survey_id, chain.window_ms
        paid = f"SELECT {PAID_UNITS} FROM chains WHERE survey_id = ? AND window_ms = ?"
        units: int = self.connection.execute(paid, place).fetchone()[0]
        return units

    def begin(self, survey_id: str, now_ms: int) -> None:
        """Note when a survey first asked this device: budgets unlock from then on, also if nothing could be paid."""
        self.connection.execute(
            "UPDATE surveys SET first_ms = ? WHERE name = ? AND first_ms IS NULL", (now_ms, name_of(survey_id))
        )

    def wish(self, chain: StoredChain, rung: int | None) -> None:
        """Note up to which rung the person asks for answers, None: for no more; inside the caller's transaction."""
        self.connection.execute(
            "UPDATE chains SET wished = ? WHERE survey_id = ? AND window_ms = ?",
            (rung, chain.survey_id, chain.window_ms),
        )

    def release(self, chain: StoredChain, rung: int, increment: int, *, unbounded: bool, now_ms: int) -> None:
        """Mark a rung as released and charge for it; the caller puts it into the outbox in the same transaction."""
        execute = self.connection.execute
        execute(
            "UPDATE chains SET released = ?, charged_units = charged_units + ?, wished = NULL "
            "WHERE survey_id = ? AND window_ms = ?",
            (msgspec.json.encode((*chain.released, rung)), increment, chain.survey_id, chain.window_ms),
        )
        execute(
            "UPDATE standing SET charged_units = charged_units + ? WHERE survey_id = ? AND mark = ?",
            (increment, chain.survey_id, chain.standing),
        )
        execute(
            "UPDATE device SET spent_units = spent_units + ?, unbounded = unbounded + ?", (increment, int(unbounded))
        )
        execute(
            "INSERT INTO surveys (name, survey_id, question, protects, first_ms, spent_units, unbounded) "
            "VALUES (?, ?, '', '', ?, ?, ?) ON CONFLICT (name) DO UPDATE SET spent_units = spent_units + "
            "excluded.spent_units, unbounded = unbounded + excluded.unbounded, "
            "first_ms = COALESCE(first_ms, excluded.first_ms)",
            (name_of(chain.survey_id), chain.survey_id, now_ms, increment, int(unbounded)),
        )
        execute(
            "INSERT OR IGNORE INTO releases (survey_id, window_ms, rung, released_ms, charged_units) "
            "VALUES (?, ?, ?, ?, ?)",
            (chain.survey_id, chain.window_ms, rung, now_ms, increment),
        )

    def note(self, surveys: Iterable[NotedSurvey], lifetime_epsilon: float, unlock: str | None) -> None:
        """Store what the person's own page says of surveys, and the person's bounds; not inside a transaction."""
        with self.transaction():
            self.connection.execute("UPDATE device SET lifetime_epsilon = ?, unlock = ?", (lifetime_epsilon, unlock))
            self.connection.executemany(
                f"INSERT INTO surveys ({', '.join(NotedSurvey._fields)}) "
                f"VALUES ({', '.join('?' for _ in NotedSurvey._fields)}) ON CONFLICT (name) DO UPDATE SET "
                + ", ".join(f"{field} = excluded.{field}" for field in NotedSurvey._fields[1:]),
                surveys,
            )

    def erase_expired(self, now_ms: int) -> int:
        """Erase the answers of expired windows, released or not; what they cost stays recorded.

        Outgoing reports stay until they are acknowledged: they hold only what was released. Returns the number of
        erased chains. Not inside a transaction.
        """
        erased = self.connection.execute(
            "UPDATE chains SET answers = NULL, sealed = NULL WHERE answers IS NOT NULL AND expires_ms < ?", (now_ms,)
        ).rowcount
        self.connection.execute("DELETE FROM withdrawals WHERE expires_ms < ?", (now_ms,))
        if erased or self._log_holds_erased:
            self._truncate_log()
        return erased

    def _truncate_log(self) -> None:
        """Empty the write-ahead log, which still holds erased pages; tried again at the next call while others read."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        busy: int = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self.connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1_000)}")
        self._log_holds_erased = bool(busy)
