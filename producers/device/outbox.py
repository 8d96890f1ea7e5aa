"""Outgoing reports, in the same file as the ledger: after a crash the same bytes are sent again, never others."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from producers.device.ledger import Ledger
from producers.survey.survey import Survey

log = logging.getLogger(__name__)

LIMIT = 10_000
"""Reports a device keeps while no broker answers. Smaller refuses new rungs sooner; larger only takes disk space."""


class OutgoingReport(NamedTuple):
    """One report, encoded as a frame of its own, and when it may be sent."""

    survey_id: str
    window_ms: int
    rung: int
    copy: int
    shard: int
    ready_ms: int
    frame: bytes


class Outbox:
    """A bounded queue. When it is full new reports wait in their chain; what is in it stays until acknowledged."""

    def __init__(self, ledger: Ledger, limit: int = LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"an outbox must hold at least one report; got {limit}")
        self._connection, self.limit = ledger.connection, limit

    def __len__(self) -> int:
        count: int = self._connection.execute("SELECT COUNT(*) FROM outbox").fetchone()[0]
        return count

    def has_room(self, reports: int) -> bool:
        """Tell whether that many more reports fit; an empty outbox takes any number, or they could never be sent."""
        held = len(self)
        return held == 0 or held + reports <= self.limit

    def put(self, reports: Iterable[OutgoingReport]) -> None:
        """Add reports, inside the caller's transaction."""
        self._connection.executemany(
            "INSERT INTO outbox (survey_id, window_ms, rung, copy, shard, ready_ms, frame) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            reports,
        )

    def ready(self, now_ms: int, limit: int) -> list[tuple[int, OutgoingReport]]:
        """Return up to `limit` reports that may be sent, the longest waiting first, with their numbers."""
        rows = self._connection.execute(
            "SELECT id, survey_id, window_ms, rung, copy, shard, ready_ms, frame FROM outbox WHERE ready_ms <= ? "
            "ORDER BY ready_ms, id LIMIT ?",
            (now_ms, limit),
        )
        return [(row[0], OutgoingReport(*row[1:])) for row in rows]

    def next_ready_ms(self) -> int | None:
        """Return when the next report may be sent, None if there is none."""
        ready: int | None = self._connection.execute("SELECT MIN(ready_ms) FROM outbox").fetchone()[0]
        return ready

    def remove(self, numbers: Iterable[int], now_ms: int) -> None:
        """Delete reports that the broker has acknowledged, and note when their rung had left; in one transaction."""
        for number in numbers:
            self._connection.execute(
                "UPDATE releases SET sent_ms = ? WHERE (survey_id, window_ms, rung) IN "
                "(SELECT survey_id, window_ms, rung FROM outbox WHERE id = ?)",
                (now_ms, number),
            )
            self._connection.execute("DELETE FROM outbox WHERE id = ?", (number,))

    def drop(self, numbers: Iterable[int]) -> None:
        """Delete reports that will never be taken, inside the caller's transaction."""
        self._connection.executemany("DELETE FROM outbox WHERE id = ?", ((number,) for number in numbers))

    def without_expired(self, surveys: Iterable[Survey], now_ms: int) -> set[str]:
        """Delete the reports of surveys that have expired, and return their ids; not inside a transaction.

        What was charged for them stays charged.
        """
        expired = {survey.id for survey in surveys if now_ms >= survey.stops_ms}
        for survey_id in expired:
            dropped = self._connection.execute("DELETE FROM outbox WHERE survey_id = ?", (survey_id,)).rowcount
            if dropped:
                log.warning("%s has expired: %d reports that had not left are dropped", survey_id, dropped)
        return expired

    def postpone(self, numbers: Iterable[int], ready_ms: int) -> None:
        """Keep reports until later, inside the caller's transaction."""
        rows = ((ready_ms, number) for number in numbers)
        self._connection.executemany("UPDATE outbox SET ready_ms = ? WHERE id = ?", rows)
