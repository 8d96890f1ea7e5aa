"""Among conflicting reports the winner does not depend on the order of values, and every implementation picks it."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from streams.store.shape import Shape
from streams.worker.precedence import compare, tie_hash
from streams.worker.table import Table
from tests.support import precedence as plain
from tests.support.paths import DOCS
from tests.support.reports import CATEGORICAL, Report, packed
from tests.support.stats import assert_law

VECTOR = re.compile(
    r"^\| `(?P<token>[0-9a-f]{26})` \| `(?P<answer>[0-9a-f]+)` \| `(?P<hash>[0-9a-f]{16})` \|$", re.MULTILINE
)


def row_of(token: bytes, rung: int, answer: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    raw = token[:13] + bytes([rung + 1]) + answer
    return np.frombuffer(raw + bytes(-len(raw) % 8), dtype=np.uint64).reshape(1, -1)


@pytest.mark.parametrize(
    ("raw", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_the_plain_hash_has_the_published_values(raw: bytes, seed: int, expected: int) -> None:
    assert plain.xxh64(raw, seed) == expected


@pytest.mark.parametrize("width", [1, 2, 3, 10, 11, 18, 19, 40, 64, 300])
def test_the_compiled_hash_is_the_plain_one_for_entries_of_any_length(width: int) -> None:
    rng = random.Random(width)
    for _ in range(30):
        token, answer = rng.randbytes(13), rng.randbytes(width)
        assert int(tie_hash(row_of(token, rng.randrange(200), answer), 0)) == plain.tie_hash(token, answer)


def test_the_documented_vectors_hold() -> None:
    found = list(VECTOR.finditer((DOCS / "store.md").read_text(encoding="utf-8")))
    assert len(found) >= 5
    for vector in found:
        token, answer = bytes.fromhex(vector["token"]), bytes.fromhex(vector["answer"])
        assert f"{int(tie_hash(row_of(token, 3, answer), 0)):016x}" == vector["hash"]


@pytest.mark.parametrize("width", [1, 2, 17])
def test_entries_of_a_token_are_in_one_total_order(width: int) -> None:
    rng = random.Random(width)
    token = rng.randbytes(13)
    answers = [rng.randbytes(width) for _ in range(12)]
    rows = {(rung, answer): row_of(token, rung, answer) for rung in range(3) for answer in answers}
    best = None
    for held in rows:
        best = plain.winner(token, best, held)
    for one, other in itertools.product(rows, repeat=2):
        order = compare(rows[one], 0, rows[other], 0)
        assert order == -compare(rows[other], 0, rows[one], 0)
        assert (order == 0) == (one == other)
        assert (order > 0) == (one != other and plain.winner(token, one, other) == one)
    assert all(compare(rows[best], 0, row, 0) >= 0 for row in rows.values() if best is not None)


def test_restored_ledgers_do_not_move_shares_in_the_order_of_values() -> None:
    """A ledger restored from a backup draws its chain again: both answers are honest, and either may count.

    With "the greater answer counts" the last of five equal values gets 9/25 of such tokens and the first 1/25.
    """
    rng = np.random.default_rng(10)
    devices, values = 20_000, 5
    tokens = rng.integers(0, 256, size=(devices, 13), dtype=np.uint8)
    draws = rng.integers(0, values, size=(2, devices), dtype=np.uint8)
    rows = np.zeros((2, devices, 16), dtype=np.uint8)
    rows[:, :, :13], rows[:, :, 13], rows[:, :, 14] = tokens, 1, draws
    table = Table(Shape.of(CATEGORICAL))
    for restored in rows:
        table.fold(np.ascontiguousarray(restored).view(np.uint64))
    counts = table.tally().counts[0, 0]
    assert counts.sum() == devices
    assert_law(counts, [1 / values] * values)


def test_the_winner_is_the_same_in_any_order_and_after_any_repetition() -> None:
    token = random.Random(4).randbytes(16)
    reports = [Report(token, 1, bytes([answer])) for answer in range(5)]
    winners = set()
    for order in itertools.permutations(reports):
        table = Table(Shape.of(CATEGORICAL))
        table.fold(packed(CATEGORICAL, [*order, *order[:2]]))
        winners.add(table.live())
    assert len(winners) == 1
