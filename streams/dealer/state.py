"""What the dealer has dealt: one SQLite file. A card is committed (WAL, synchronous=FULL) before it is handed out.

A deck is kept as the numbers of its cards that are left, and each card is drawn from those: in this way the order of
cards to come exists nowhere before they are dealt. Restoring an older copy of the file would deal cards twice.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from estimators.channels.decks import draw_card
from estimators.exact.randomness import Bits, SecureBits
from streams.failures import OutsideError

BUSY_SECONDS: Final = 30.0
"""How long one request waits for another that holds the file."""

_SCHEMA: Final = """
CREATE TABLE decks (
    survey TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    block INTEGER NOT NULL,
    cards_left BLOB NOT NULL,
    PRIMARY KEY (survey, window_ms, block)
);
CREATE TABLE dealt (
    survey TEXT NOT NULL,
    window_ms INTEGER NOT NULL,
    claim BLOB NOT NULL,
    block INTEGER NOT NULL,
    card INTEGER NOT NULL,
    PRIMARY KEY (survey, window_ms, claim)
);
PRAGMA user_version = 1;
"""


@dataclass(frozen=True)
class Card:
    """A dealt card: its block and its face, 1 to L; `again` if the same claim was given it before."""

    block: int
    face: int
    again: bool = False


class Ask(NamedTuple):
    """A claim for a card of one window, and the decks of its survey: the cards of one, and how many there are."""

    survey: str
    window_ms: int
    claim: bytes
    cards: tuple[int, ...]
    blocks: int


class DealerState:
    """The decks of all windows in one file. Use it from one thread at a time; several processes may share the file."""

    def __init__(self, path: str | Path, bits: Bits | None = None) -> None:
        self._bits = bits or SecureBits()
        try:
            # For its owner only: SQLite gives its side files the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA secure_delete = ON")
            with self._transaction():
                if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        self._connection.execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise OutsideError(
                f"the dealer's file {path} cannot be used ({error}); name another with THAW_DEALER_FILE"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def deal(self, asked: Sequence[Ask]) -> list[Card | None]:
        """Return the card of every claim: the one that it was dealt before, or a new one; None if all are dealt.

        One commit for all of them, before the return: a card that was handed out is never dealt again. A card whose
        holder never answers stays dealt: the holder may still answer.
        """
        with self._transaction():
            return [self._card(ask) for ask in asked]

    def _card(self, ask: Ask) -> Card | None:
        known = self._connection.execute(
            "SELECT block, card FROM dealt WHERE survey = ? AND window_ms = ? AND claim = ?",
            (ask.survey, ask.window_ms, ask.claim),
        ).fetchone()
        if known is not None:
            return Card(known[0], known[1], again=True)
        block, left = self._deck(ask.survey, ask.window_ms, ask.cards)
        if block >= ask.blocks:
            return None
        face = draw_card(left, self._bits)
        left[face - 1] -= 1
        self._connection.execute(
            "INSERT OR REPLACE INTO decks VALUES (?, ?, ?, ?)",
            (ask.survey, ask.window_ms, block, msgspec.json.encode(left)),
        )
        self._connection.execute(
            "INSERT INTO dealt VALUES (?, ?, ?, ?, ?)", (ask.survey, ask.window_ms, ask.claim, block, face)
        )
        return Card(block, face)

    def _deck(self, survey: str, window_ms: int, cards: tuple[int, ...]) -> tuple[int, list[int]]:
        """Return the block that is dealt now and its cards that are left; a full deck where the last one is dealt."""
        newest = self._connection.execute(
            "SELECT block, cards_left FROM decks WHERE survey = ? AND window_ms = ? ORDER BY block DESC LIMIT 1",
            (survey, window_ms),
        ).fetchone()
        if newest is None:
            return 0, list(cards)
        left = msgspec.json.decode(newest[1], type=list[int])
        return (newest[0], left) if sum(left) else (newest[0] + 1, list(cards))

    def forget(self, survey: str, before_ms: int) -> int:
        """Forget who was dealt what in the windows of a survey that started before a time; return how many cards.

        Nobody is dealt a card of such a window any more. What is not kept cannot be given to the collector.
        """
        with self._transaction():
            place = (survey, before_ms)
            forgotten = self._connection.execute("DELETE FROM dealt WHERE survey = ? AND window_ms < ?", place).rowcount
            self._connection.execute("DELETE FROM decks WHERE survey = ? AND window_ms < ?", place)
        return forgotten
