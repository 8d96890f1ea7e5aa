"""The books: offers, sales, deliveries, and which answers of which chains were sold. One SQLite file.

A sale, its answers and its receipt are one transaction (WAL, synchronous=FULL), so there is neither without the other.
Processes that share the file take turns. Answers that are in the books go back to Redis where it has lost them, and the
other way round: neither a Redis that went back nor a copy of the books lets a level be drawn twice.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from streams.failures import OutsideError
from streams.market.levels import Place

BUSY_SECONDS: Final = 60.0
"""How long one process waits for a sale of another."""

_SCHEMA: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE levels (
    survey TEXT NOT NULL, rung INTEGER NOT NULL, epsilon REAL NOT NULL, PRIMARY KEY (survey, rung)
) WITHOUT ROWID;
CREATE TABLE offers (
    id INTEGER PRIMARY KEY, survey TEXT NOT NULL, first_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,
    rung INTEGER NOT NULL, price INTEGER NOT NULL, made_ms INTEGER NOT NULL,
    UNIQUE (survey, first_ms, end_ms, rung)
);
CREATE TABLE sales (
    id INTEGER PRIMARY KEY, buyer TEXT NOT NULL, offer INTEGER NOT NULL REFERENCES offers, paid INTEGER NOT NULL,
    sold_ms INTEGER NOT NULL, UNIQUE (buyer, offer)
);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, sale INTEGER NOT NULL REFERENCES sales, receipt BLOB NOT NULL
);
CREATE TABLE chains (
    id INTEGER PRIMARY KEY, survey TEXT NOT NULL, window_ms INTEGER NOT NULL, shard INTEGER NOT NULL,
    name BLOB NOT NULL, UNIQUE (survey, window_ms, shard, name)
);
CREATE TABLE answers (
    chain INTEGER NOT NULL REFERENCES chains, rung INTEGER NOT NULL, answer BLOB NOT NULL, sold INTEGER NOT NULL,
    PRIMARY KEY (chain, rung)
) WITHOUT ROWID;
CREATE TABLE delivered (
    delivery INTEGER NOT NULL REFERENCES deliveries, chain INTEGER NOT NULL, rung INTEGER NOT NULL,
    PRIMARY KEY (delivery, chain)
) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


class Offer(NamedTuple):
    """The windows in [first_ms, end_ms) of a survey, up to a rung, at a price in hundredths."""

    id: int
    survey: str
    first_ms: int
    end_ms: int
    rung: int
    price: int


class Sale(NamedTuple):
    """What a buyer bought, and what was paid for it in hundredths; for an upgrade the difference."""

    id: int
    buyer: str
    offer: Offer
    paid: int
    sold_ms: int


class Holding(NamedTuple):
    """What a buyer holds of some windows: the sale of the highest level, and all that was paid for them."""

    sale: Sale
    paid: int


class Delivery(NamedTuple):
    """A delivery with its signed receipt."""

    id: int
    sale: int
    receipt: bytes


class Delivered(NamedTuple):
    """A delivered answer."""

    window_ms: int
    shard: int
    place: Place
    answer: bytes


_OFFER: Final = "id, survey, first_ms, end_ms, rung, price"
_SALE: Final = (
    "SELECT s.id, s.buyer, s.paid, s.sold_ms, o.id, o.survey, o.first_ms, o.end_ms, o.rung, o.price "
    "FROM sales s JOIN offers o ON o.id = s.offer"
)


class Books:
    """The books in one file. Use them from one thread; several processes may share the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            # For its owner only: SQLite gives its side files the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            with self.transaction():
                if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        self._connection.execute(statement)
                    facts = (("id", secrets.token_hex(8).encode()), ("secret", secrets.token_bytes(32)))
                    self._connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
            self.id, self.secret = self._fact("id"), self._fact("secret")
        except (OSError, sqlite3.Error) as error:
            raise OutsideError(f"the books {path} cannot be used ({error}); name others with --books") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; other processes wait."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _fact(self, name: str) -> bytes:
        found = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return b"" if found is None else bytes(found[0])

    @property
    def key(self) -> str:
        """The public key of all receipts; empty before the first."""
        return self._fact("key").decode()

    def use_key(self, public: str) -> None:
        """Note the public key of all receipts."""
        self._connection.execute("INSERT OR IGNORE INTO facts VALUES ('key', ?)", (public.encode(),))

    # Offers and sales.

    def add_offer(self, offer: Offer, epsilons: Iterable[float], made_ms: int) -> Offer:
        """Enter an offer, and what the levels of its survey cost; return it with its number."""
        levels = [(offer.survey, rung, epsilon) for rung, epsilon in enumerate(epsilons)]
        self._connection.executemany("INSERT OR IGNORE INTO levels VALUES (?, ?, ?)", levels)
        number = self._connection.execute(
            "INSERT INTO offers (survey, first_ms, end_ms, rung, price, made_ms) VALUES (?, ?, ?, ?, ?, ?)",
            (*offer[1:], made_ms),
        ).lastrowid
        assert number is not None
        return offer._replace(id=number)

    def offers(self) -> list[Offer]:
        """Return all offers, in their order."""
        return [Offer(*row) for row in self._connection.execute(f"SELECT {_OFFER} FROM offers ORDER BY id")]

    def epsilons(self, survey: str) -> dict[int, float]:
        """Return what the levels of a survey cost, by rung."""
        rows = self._connection.execute("SELECT rung, epsilon FROM levels WHERE survey = ? ORDER BY rung", (survey,))
        return dict(rows.fetchall())

    def add_sale(self, buyer: str, offer: Offer, paid: int, sold_ms: int) -> Sale:
        """Enter a sale; return it with its number."""
        number = self._connection.execute(
            "INSERT INTO sales (buyer, offer, paid, sold_ms) VALUES (?, ?, ?, ?)", (buyer, offer.id, paid, sold_ms)
        ).lastrowid
        assert number is not None
        return Sale(number, buyer, offer, paid, sold_ms)

    def sales(self, buyer: str | None = None) -> list[Sale]:
        """Return the sales, of a buyer or of all, in their order."""
        found = self._connection.execute(f"{_SALE} WHERE s.buyer = ? OR ? IS NULL ORDER BY s.id", (buyer, buyer))
        return [Sale(number, who, Offer(*offer), paid, at) for number, who, paid, at, *offer in found]

    def buyers(self) -> list[str]:
        """Return all who bought something, by name."""
        return [row[0] for row in self._connection.execute("SELECT DISTINCT buyer FROM sales ORDER BY buyer")]

    def holdings(self, buyer: str) -> list[Holding]:
        """Return what a buyer holds, one entry for each range of windows."""
        by_range: dict[tuple[str, int, int], list[Sale]] = {}
        for sale in self.sales(buyer):
            by_range.setdefault(sale.offer[1:4], []).append(sale)
        return [
            Holding(max(sales, key=lambda sale: sale.offer.rung), sum(sale.paid for sale in sales))
            for sales in by_range.values()
        ]

    # Answers.

    def answers(self, survey: str, window_ms: int) -> dict[int, dict[Place, bytes]]:
        """Return the answers of a window that are in the books, by shard."""
        rows = self._connection.execute(
            "SELECT c.shard, c.name, a.rung, a.answer FROM chains c JOIN answers a ON a.chain = c.id "
            "WHERE c.survey = ? AND c.window_ms = ?",
            (survey, window_ms),
        )
        found: dict[int, dict[Place, bytes]] = {}
        for shard, name, rung, answer in rows:
            found.setdefault(shard, {})[Place(name, rung)] = answer
        return found

    def keep(
        self, survey: str, window_ms: int, shard: int, held: Mapping[Place, bytes], sold: Mapping[bytes, int]
    ) -> dict[bytes, int]:
        """Enter all that is known of the chains of a shard, and which rung of each was sold; return their numbers."""
        place = (survey, window_ms, shard)
        self._connection.executemany(
            "INSERT OR IGNORE INTO chains (survey, window_ms, shard, name) VALUES (?, ?, ?, ?)",
            [(*place, name) for name in {one.name for one in held}],
        )
        numbers = dict(
            self._connection.execute(
                "SELECT name, id FROM chains WHERE survey = ? AND window_ms = ? AND shard = ?", place
            ).fetchall()
        )
        self._connection.executemany(
            "INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET sold = max(sold, excluded.sold)",
            [(numbers[one.name], one.rung, answer, sold.get(one.name) == one.rung) for one, answer in held.items()],
        )
        return numbers

    def forget_unsold(self, survey: str, before_ms: int) -> None:
        """Forget what nobody bought of windows that started before a time: nothing is drawn from it any more."""
        self._connection.execute(
            "DELETE FROM answers WHERE NOT sold AND chain IN "
            "(SELECT id FROM chains WHERE survey = ? AND window_ms < ?)",
            (survey, before_ms),
        )

    # Deliveries.

    def next_delivery(self) -> int:
        """Return the number of the next delivery."""
        return int(self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM deliveries").fetchone()[0])

    def add_delivery(self, delivery: Delivery, chains: Iterable[tuple[int, int]]) -> None:
        """Enter a delivery with its answers, as (number of the chain, rung)."""
        self._connection.execute("INSERT INTO deliveries VALUES (?, ?, ?)", delivery)
        self._connection.executemany(
            "INSERT INTO delivered VALUES (?, ?, ?)", [(delivery.id, chain, rung) for chain, rung in chains]
        )

    def deliveries(self, sale: int | None = None) -> list[Delivery]:
        """Return the deliveries, of a sale or all, in their order."""
        found = self._connection.execute(
            "SELECT id, sale, receipt FROM deliveries WHERE sale = ? OR ? IS NULL ORDER BY id", (sale, sale)
        )
        return [Delivery(*row) for row in found]

    def delivered(self, delivery: int) -> list[Delivered]:
        """Return the answers of a delivery."""
        rows = self._connection.execute(
            "SELECT c.window_ms, c.shard, c.name, d.rung, a.answer FROM delivered d JOIN chains c ON c.id = d.chain "
            "JOIN answers a ON a.chain = d.chain AND a.rung = d.rung WHERE d.delivery = ?",
            (delivery,),
        )
        return [Delivered(window, shard, Place(name, rung), answer) for window, shard, name, rung, answer in rows]

    def losses(self) -> dict[tuple[str, int], dict[int, int]]:
        """Return how many chains of each (survey, window) have lost which rung: the highest that was sold of them."""
        rows = self._connection.execute(
            "SELECT survey, window_ms, rung, count(*) FROM (SELECT c.survey, c.window_ms, max(a.rung) AS rung "
            "FROM chains c JOIN answers a ON a.chain = c.id WHERE a.sold GROUP BY c.id) "
            "GROUP BY survey, window_ms, rung ORDER BY survey, window_ms, rung"
        )
        found: dict[tuple[str, int], dict[int, int]] = {}
        for survey, window_ms, rung, chains in rows:
            found.setdefault((survey, window_ms), {})[rung] = chains
        return found

    def highest_sold(self) -> list[tuple[str, int, int, bytes, int]]:
        """Return (survey, window, shard, name, rung) of every chain of which something was sold: the highest rung."""
        return self._connection.execute(
            "SELECT c.survey, c.window_ms, c.shard, c.name, max(a.rung) FROM chains c JOIN answers a ON a.chain = c.id "
            "WHERE a.sold GROUP BY c.id ORDER BY c.survey, c.window_ms, c.shard, c.name"
        ).fetchall()
