"""What the demo says of acknowledged reports that are not stored: waiting in Kafka, or lost."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import shards_of
from streams.local.demo_report import Audit, WindowJournal, audit_window, survey_entry, tier_entries
from tests.support.clock import ManualClock
from tests.support.exporter import record_of
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey


def test_a_window_is_listed_once_its_rungs_are_released_and_every_one_of_them_is_applied() -> None:
    known = survey(jitter='jitter = "5s"')
    tokens = np.random.default_rng(2).integers(0, 256, size=(30, TOKEN_BYTES), dtype=np.uint8)
    acked = np.repeat(np.array([0, 1, 2], dtype=np.int8), 10)
    journal = WindowJournal(known.id, WEEK, [tokens], [acked], np.array([15.0, 9.0, 6.0]), np.full(3, 30.0))
    assert journal.users_per_rung(3) == [10, 10, 10]

    def listed(rungs: list[int], now_ms: int) -> int:
        store = MemoryStore(ManualClock(WEEK))
        record = msgspec.structs.replace(record_of(known, WEEK, [0.5, 0.3, 0.2]), users=30, users_per_rung=rungs)
        secret = store.queue.lock(known.id, WEEK, 1_000) or b""
        assert store.estimates.save(known.id, WEEK, secret, record.encode(), WEEK + 600_000)
        return len(survey_entry(store, known, [journal], (), now_ms)[0]["windows"])

    released = WEEK + 60_000 + 30_000 + 5_000
    assert listed([10, 10, 10], released) == 1
    assert listed([10, 10, 10], released - 1) == 0
    assert listed([10, 20, 0], released) == 0, "as many users, but the last rung is not in the estimate"


def test_a_missing_report_is_backlog_in_a_shard_that_is_behind_and_lost_elsewhere() -> None:
    known = survey()
    tokens = np.random.default_rng(1).integers(0, 256, size=(1_000, TOKEN_BYTES), dtype=np.uint8)
    acked = np.zeros(len(tokens), dtype=np.int8)
    acked[:100] = -1  # never acknowledged, so never missing
    journal = WindowJournal(known.id, 0, tokens=[tokens], acked=[acked])
    shards = shards_of(tokens[100:], known.shards)
    store = MemoryStore()
    assert audit_window(store, known, journal) == Audit(backlog=0, lost=900, double=0)
    behind = {0, known.shards - 1}
    waiting = int(np.isin(shards, list(behind)).sum())
    assert 0 < waiting < 900
    assert audit_window(store, known, journal, behind) == Audit(backlog=waiting, lost=900 - waiting, double=0)
    everything = range(known.shards)
    assert audit_window(store, known, journal, everything) == Audit(backlog=900, lost=0, double=0)


def test_each_tier_says_what_it_was_told() -> None:
    whole = survey(shards="shards = 16\ntiers = {public = 0, owner = 2}")
    rows = [
        {"lower": 0.1, "upper": 0.3, "inside": True},
        {"lower": 0.2, "upper": 0.6, "inside": False},
        {"lower": None, "upper": None, "inside": False},
    ]
    entries: list[dict[str, Any]] = [{"windows": [{"estimates": rows}]}, {"windows": []}]
    public, owner = tier_entries([whole, *whole.tier_surveys], entries)
    assert (owner["tier"], owner["rung"], owner["windows"], owner["truths"], owner["inside"]) == ("owner", 2, 1, 3, 1)
    assert owner["band"] == pytest.approx(0.3)
    assert (public["tier"], public["survey"], public["band"]) == ("public", whole.tier_surveys[0].id, None)
    assert public["epsilon"] < owner["epsilon"]
    assert tier_entries([survey()], [{"windows": []}]) == []
