"""The tables of a ledger, and how a ledger of an older version becomes one of today."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from pathlib import Path

import msgspec

SCHEMA_VERSION = 8
SECRET_BYTES = 32
_DIGITS = len("-00000000")
"""What follows the name in a survey id."""

_RELEASES = """
CREATE TABLE surveys (
    name TEXT PRIMARY KEY,
    survey_id TEXT NOT NULL,
    question TEXT NOT NULL,
    protects TEXT NOT NULL,
    lifetime_epsilon REAL,
    reserve_epsilon REAL NOT NULL DEFAULT 0,
    unlock TEXT,
    first_ms INTEGER,
    spent_units INTEGER NOT NULL DEFAULT 0,
    unbounded INTEGER NOT NULL DEFAULT 0,
    wiped_ms INTEGER,
    on_demand INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE releases (
    survey_id TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    rung INTEGER NOT NULL,
    released_ms INTEGER,
    sent_ms INTEGER,
    charged_units INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (survey_id, window_ms, rung)
);
"""

_WITHDRAWALS = """
CREATE TABLE withdrawals (
    survey_id TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    rung INTEGER NOT NULL,
    copy INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    jitter_ms INTEGER NOT NULL,
    frame BLOB NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (survey_id, window_ms, copy)
);
"""

_STANDING = """
CREATE TABLE standing (
    survey_id TEXT NOT NULL,
    mark BLOB NOT NULL,
    answers BLOB NOT NULL,
    groups BLOB NOT NULL,
    charged_units INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (survey_id, mark)
);
"""

_BULLETINS = """
CREATE TABLE bulletins (
    survey_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    open BLOB NOT NULL
);
"""

_SCHEMA = f"""
CREATE TABLE device (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    secret BLOB NOT NULL,
    spent_units INTEGER NOT NULL DEFAULT 0,
    unbounded INTEGER NOT NULL DEFAULT 0,
    lifetime_epsilon REAL,
    unlock TEXT,
    consent INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE chains (
    survey_id TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    answers BLOB,
    groups BLOB NOT NULL,
    epsilons BLOB NOT NULL,
    jitters_ms BLOB NOT NULL,
    drawn_ms INTEGER NOT NULL,
    released BLOB NOT NULL,
    charged_units INTEGER NOT NULL DEFAULT 0,
    expires_ms INTEGER NOT NULL,
    withdrawn_ms INTEGER,
    standing BLOB,
    sealed BLOB,
    wished INTEGER,
    PRIMARY KEY (survey_id, window_ms)
);
CREATE INDEX chains_alive ON chains (expires_ms) WHERE answers IS NOT NULL;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    survey_id TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    rung INTEGER NOT NULL,
    copy INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    ready_ms INTEGER NOT NULL,
    frame BLOB NOT NULL,
    withdrawal INTEGER NOT NULL DEFAULT 0,
    UNIQUE (survey_id, window_ms, rung, copy)
);
CREATE INDEX outbox_ready ON outbox (ready_ms);
{_RELEASES}
{_WITHDRAWALS}
{_STANDING}
{_BULLETINS}
"""

PAID_UNITS = """COALESCE(
    (SELECT charged_units FROM standing WHERE survey_id = chains.survey_id AND mark = chains.standing), charged_units
)"""
"""Of a row of `chains`: what was charged for its answers, in whichever windows they were released."""


def prepare(connection: sqlite3.Connection) -> int:
    """Create the tables, or bring those of an older version up to date; returns the version that the file has now.

    Inside the caller's transaction. A newer version is left alone.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        return version
    if version == 0:
        _execute(connection, _SCHEMA)
        connection.execute("INSERT INTO device (id, secret) VALUES (1, ?)", (os.urandom(SECRET_BYTES),))
    if version == 1:
        # Chains held the true value and its encoded form; nothing needs them.
        for column in ("value", "inputs"):
            connection.execute(f"ALTER TABLE chains DROP COLUMN {column}")
    if version in (1, 2):
        _add_releases(connection)
    if version in (1, 2, 3):
        _execute(connection, _WITHDRAWALS)
        connection.execute("ALTER TABLE chains ADD COLUMN withdrawn_ms INTEGER")
        connection.execute("ALTER TABLE outbox ADD COLUMN withdrawal INTEGER NOT NULL DEFAULT 0")
    if version in (1, 2, 3, 4):
        _execute(connection, _STANDING)
        connection.execute("ALTER TABLE chains ADD COLUMN standing BLOB")
    if version in (1, 2, 3, 4, 5):
        _execute(connection, _BULLETINS)
    if version in (1, 2, 3, 4, 5, 6):
        connection.execute("ALTER TABLE chains ADD COLUMN sealed BLOB")
    if version in (1, 2, 3, 4, 5, 6, 7):
        connection.execute("ALTER TABLE chains ADD COLUMN wished INTEGER")
    if version in (3, 4, 5, 6, 7):
        # Older ones have just got the table as it is today.
        connection.execute("ALTER TABLE surveys ADD COLUMN on_demand INTEGER NOT NULL DEFAULT 0")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return SCHEMA_VERSION


def create_private(path: Path) -> None:
    """Create the file for its owner only, or remove the rights of others: SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)


def name_of(survey_id: str) -> str:
    """Return the name of the survey with this id.

    >>> name_of("colour-of-hair-0a1b2c3d")
    'colour-of-hair'
    """
    return survey_id[:-_DIGITS]


def _add_releases(connection: sqlite3.Connection) -> None:
    """Add what version 3 has more: accounts of surveys, and when rungs were released, which is not known of old ones.

    The question of a survey follows when its device starts.
    """
    for column in ("lifetime_epsilon REAL", "unlock TEXT", "consent INTEGER NOT NULL DEFAULT 1"):
        connection.execute(f"ALTER TABLE device ADD COLUMN {column}")
    _execute(connection, _RELEASES)
    accounts: dict[str, list[tuple[str, int, int, bool]]] = defaultdict(list)
    rows = connection.execute("SELECT survey_id, window_ms, drawn_ms, epsilons, released, charged_units FROM chains")
    for survey_id, window_ms, drawn_ms, epsilons, released, charged in rows.fetchall():
        rungs = msgspec.json.decode(released)
        costs = msgspec.json.decode(epsilons)
        unbounded = any(costs[rung] is None for rung in rungs)
        accounts[name_of(survey_id)].append((survey_id, drawn_ms, charged, unbounded))
        connection.executemany(
            "INSERT INTO releases (survey_id, window_ms, rung) VALUES (?, ?, ?)",
            [(survey_id, window_ms, rung) for rung in rungs],
        )
    for name, chains in accounts.items():
        connection.execute(
            "INSERT INTO surveys (name, survey_id, question, protects, first_ms, spent_units, unbounded) "
            "VALUES (?, ?, '', '', ?, ?, ?)",
            (
                name,
                chains[-1][0],
                min(chain[1] for chain in chains),
                sum(chain[2] for chain in chains),
                sum(chain[3] for chain in chains),
            ),
        )


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";")):
        connection.execute(statement)
