"""What left a device, for its person to read: a statement of the ledger, without a value and without an answer."""

from __future__ import annotations

import math
import os
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from estimators.planning.odds import highest_percent, highest_suspicion
from producers.device.budget import as_epsilon, cost_units, limit_units
from producers.device.ledger import LedgerError
from producers.device.schema import PAID_UNITS, SCHEMA_VERSION, name_of

SUSPICION = 0.17
"""The suspicion for which a statement says how far it can rise: about one in six, as of a guess at a die."""


@dataclass(frozen=True)
class Level:
    """One released rung: its privacy level, when it was released and when it left, None where that is not recorded.

    charged is what its release added to what was spent.
    """

    rung: int
    epsilon: float
    released_ms: int | None
    sent_ms: int | None
    charged: float
    waiting: bool


@dataclass(frozen=True)
class NextLevel:
    """The next rung of a chain: its privacy level, what it would cost more than was paid, and whether it is wished."""

    rung: int
    epsilon: float
    costs: float
    wished: bool


@dataclass(frozen=True)
class WindowStatement:
    """One chain. epsilon is what all of its released answers together reveal, paid what was charged for it."""

    survey_id: str
    window_ms: int
    drawn_ms: int
    levels: tuple[Level, ...]
    paid: float
    following: NextLevel | None
    """None where nothing more can follow: the top was released, or the answers were erased."""
    withdrawn_ms: int | None = None
    """When its person took the answers back."""

    @property
    def epsilon(self) -> float:
        """What anyone who sees all of it holds: the level of the highest released rung."""
        return max((level.epsilon for level in self.levels), default=0.0)


@dataclass(frozen=True)
class SurveyStatement:
    """All that a survey got from this device. limit and left are infinite where there is no bound.

    left is what it may ask for at most; what has unlocked and its fair share can allow less.
    """

    name: str
    question: str
    protects: str
    spent: float
    unbounded: int
    limit: float
    left: float
    unlock: str | None
    windows: tuple[WindowStatement, ...]
    """Newest first."""


@dataclass(frozen=True)
class Statement:
    """All that left a device. limit is the person's own bound, infinite where there is none."""

    made_ms: int
    consent: bool
    spent: float
    unbounded: int
    limit: float
    left: float
    unlock: str | None
    waiting: int
    """Reports in the outbox; `withdrawals` of them take an answer back."""
    withdrawals: int
    surveys: tuple[SurveyStatement, ...]

    @property
    def epsilon(self) -> float:
        """What anyone who sees all of it holds, over the lifetime: infinite with an answer that has no finite cost."""
        return math.inf if self.unbounded else self.spent

    @property
    def spending(self) -> list[tuple[int, float]]:
        """When what was spent, in the order of time: moment and epsilon of every release with a known moment."""
        levels = (level for survey in self.surveys for window in survey.windows for level in window.levels)
        return sorted((level.released_ms, level.charged) for level in levels if level.released_ms is not None)


def switched_off(withdrawals: int) -> str:
    """Say what a device that is switched off still does: send the withdrawals that wait.

    >>> switched_off(2)
    'Consent is withdrawn: nothing is drawn, and nothing is sent but 2 withdrawals that still wait.'
    """
    waits = f" but {withdrawals:,} withdrawals that still wait" if withdrawals else ""
    return f"Consent is withdrawn: nothing is drawn{',' if waits else ''} and nothing is sent{waits}."


def meaning(epsilon: float, suspicion: float = SUSPICION) -> str:
    """Say what a level means for somebody who suspects something.

    >>> meaning(2.0)
    'anyone who sees all of it can raise a suspicion of 17 % to at most 60.3 %'
    """
    before = f"{100 * suspicion:g} %"
    if math.isinf(epsilon):
        return f"there is no bound: anyone who sees all of it may turn a suspicion of {before} into certainty"
    if epsilon == 0:
        return f"nobody can learn anything from it: a suspicion of {before} stays one of {before}"
    return (
        f"anyone who sees all of it can raise a suspicion of {before} to at most {highest_percent(suspicion, epsilon)}"
    )


def read_statement(path: str | Path, now_ms: int) -> Statement:
    """Read a ledger without changing it; LedgerError if this user is not its owner, or the file cannot be read."""
    path = Path(path)
    _check_rights(path)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                raise LedgerError(
                    f"{path} has ledger version {version}, and this program reads version {SCHEMA_VERSION}; start its "
                    "device once with this program, or use the program that wrote it"
                )
            # One snapshot: the device may be at work meanwhile.
            connection.execute("BEGIN")
            return _statement(connection, now_ms)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise LedgerError(f"{path} is not a ledger that can be read ({error}); name the file of a device") from None


def _check_rights(path: Path) -> None:
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} cannot be read ({error.strerror}); name the ledger of a device") from None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{path} is not a file; name the ledger of a device")
    if found.st_uid != os.geteuid():
        raise LedgerError(f"{path} belongs to another user; only the owner of a ledger may read it: run this as they")
    if found.st_mode & 0o077:
        raise LedgerError(
            f"{path} is open to other users (mode {found.st_mode & 0o777:04o}); what it holds may be known to them; "
            f"run: chmod 600 {path}"
        )


def _statement(connection: sqlite3.Connection, now_ms: int) -> Statement:
    spent, unbounded, limit, unlock, consent = connection.execute(
        "SELECT spent_units, unbounded, lifetime_epsilon, unlock, consent FROM device"
    ).fetchone()
    limit = math.inf if limit is None else limit
    waiting = {tuple(row) for row in connection.execute("SELECT DISTINCT survey_id, window_ms, rung FROM outbox")}
    windows: dict[str, list[WindowStatement]] = {}
    for window in _windows(connection, waiting):
        windows.setdefault(name_of(window.survey_id), []).append(window)
    surveys = [
        SurveyStatement(
            name=name,
            question=question,
            protects=protects,
            spent=as_epsilon(own),
            unbounded=own_unbounded,
            limit=math.inf if lifetime is None else lifetime,
            left=min(
                _left(spent, limit),
                max(_left(spent, math.inf if lifetime is None else lifetime), _left(own, reserve)),
            ),
            unlock=own_unlock,
            windows=tuple(windows.get(name, ())),
        )
        for name, question, protects, own, own_unbounded, lifetime, reserve, own_unlock in connection.execute(
            "SELECT name, question, protects, spent_units, unbounded, lifetime_epsilon, reserve_epsilon, unlock "
            "FROM surveys ORDER BY name"
        )
    ]
    reports, withdrawals = connection.execute("SELECT COUNT(*), COALESCE(SUM(withdrawal), 0) FROM outbox").fetchone()
    return Statement(
        made_ms=now_ms,
        consent=bool(consent),
        spent=as_epsilon(spent),
        unbounded=unbounded,
        limit=limit,
        left=_left(spent, limit),
        unlock=unlock,
        waiting=reports,
        withdrawals=withdrawals,
        surveys=tuple(surveys),
    )


def _left(spent_units: int, limit: float) -> float:
    units = limit_units(limit)
    return math.inf if units is None else max(0.0, as_epsilon(units - spent_units))


def _windows(connection: sqlite3.Connection, waiting: set[tuple[Any, ...]]) -> list[WindowStatement]:
    """Return all chains, the newest window first. Answers are not read, only whether there are any."""
    moments: dict[tuple[str, int], list[tuple[int, int | None, int | None, int]]] = {}
    for survey_id, window_ms, *moment in connection.execute(
        "SELECT survey_id, window_ms, rung, released_ms, sent_ms, charged_units FROM releases ORDER BY rung"
    ):
        moments.setdefault((survey_id, window_ms), []).append(tuple(moment))
    found = []
    for survey_id, window_ms, drawn_ms, epsilons, charged, paid_units, kept, withdrawn_ms, wished in connection.execute(
        f"SELECT survey_id, window_ms, drawn_ms, epsilons, charged_units, {PAID_UNITS}, answers IS NOT NULL, "
        "withdrawn_ms, wished FROM chains ORDER BY window_ms DESC, survey_id"
    ):
        costs = [math.inf if cost is None else float(cost) for cost in msgspec.json.decode(epsilons)]
        levels = tuple(
            Level(rung, costs[rung], released_ms, sent_ms, as_epsilon(own), (survey_id, window_ms, rung) in waiting)
            for rung, released_ms, sent_ms, own in moments.get((survey_id, window_ms), ())
        )
        following = None
        rung = max((level.rung for level in levels), default=-1) + 1
        if kept and rung < len(costs):
            price = cost_units(costs[rung])
            costs_more = math.inf if price < 0 else as_epsilon(max(price - paid_units, 0))
            following = NextLevel(rung, costs[rung], costs_more, wished == rung)
        paid = as_epsilon(charged)
        found.append(WindowStatement(survey_id, window_ms, drawn_ms, levels, paid, following, withdrawn_ms))
    return found


def as_data(statement: Statement, suspicion: float = SUSPICION) -> dict[str, Any]:
    """Return the statement under stable keys; what has no finite number is null."""

    def may_become(epsilon: float) -> float:
        return highest_suspicion(suspicion, epsilon)

    return {
        "made_ms": statement.made_ms,
        "consent": statement.consent,
        "spent": statement.spent,
        "unbounded": statement.unbounded,
        "limit": _finite(statement.limit),
        "left": _finite(statement.left),
        "unlock": statement.unlock,
        "waiting": statement.waiting,
        "withdrawals": statement.withdrawals,
        "suspicion": suspicion,
        "may_become": may_become(statement.epsilon),
        "surveys": [
            {
                "name": survey.name,
                "question": survey.question,
                "protects": survey.protects,
                "spent": survey.spent,
                "unbounded": survey.unbounded,
                "limit": _finite(survey.limit),
                "left": _finite(survey.left),
                "unlock": survey.unlock,
                "windows": [
                    {
                        "id": window.survey_id,
                        "window_ms": window.window_ms,
                        "drawn_ms": window.drawn_ms,
                        "epsilon": _finite(window.epsilon),
                        "paid": window.paid,
                        "may_become": may_become(window.epsilon),
                        "withdrawn_ms": window.withdrawn_ms,
                        "released": [_level_data(level) for level in window.levels],
                        "next": None
                        if window.following is None
                        else {
                            "rung": window.following.rung,
                            "epsilon": _finite(window.following.epsilon),
                            "costs": _finite(window.following.costs),
                            "may_become": may_become(window.following.epsilon),
                            "wished": window.following.wished,
                        },
                    }
                    for window in survey.windows
                ],
            }
            for survey in statement.surveys
        ],
    }


def _level_data(level: Level) -> dict[str, Any]:
    return {
        "rung": level.rung,
        "epsilon": _finite(level.epsilon),
        "released_ms": level.released_ms,
        "sent_ms": level.sent_ms,
        "waiting": level.waiting,
    }


def _finite(number: float) -> float | None:
    return None if math.isinf(number) else number
