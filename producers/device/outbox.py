"""Reports on their way out, in the same file as the ledger: a crash resends the same bytes, never other ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from producers.device.ledger import Ledger

LIMIT = 10_000
"""Reports a device keeps while the broker is away. Smaller refuses new rungs sooner; larger only takes disk space."""


class Letter(NamedTuple):
    """One report, encoded as a frame of its own, and when it may leave."""

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
        """Tell whether that many more reports fit; an empty outbox takes any number, or they could never leave."""
        held = len(self)
        return held == 0 or held + reports <= self.limit

    def put(self, letters: Iterable[Letter]) -> None:
        """Add letters, inside the caller's transaction."""
        self._connection.executemany(
            "INSERT INTO outbox (survey_id, window_ms, rung, copy, shard, ready_ms, frame) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            letters,
        )

    def ready(self, now_ms: int, limit: int) -> list[tuple[int, Letter]]:
        """Return up to `limit` letters that may leave, the longest waiting first, with their numbers."""
        rows = self._connection.execute(
            "SELECT id, survey_id, window_ms, rung, copy, shard, ready_ms, frame FROM outbox WHERE ready_ms <= ? "
            "ORDER BY ready_ms, id LIMIT ?",
            (now_ms, limit),
        )
        return [(row[0], Letter(*row[1:])) for row in rows]

    def next_ready_ms(self) -> int | None:
        """Return when the next letter may leave, None if there is none."""
        ready: int | None = self._connection.execute("SELECT MIN(ready_ms) FROM outbox").fetchone()[0]
        return ready

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget letters that the broker has acknowledged."""
        self._connection.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number in numbers])
