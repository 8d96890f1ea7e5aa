"""What the demo says of acknowledged reports that are not stored: waiting in Kafka, or lost."""

from __future__ import annotations

import numpy as np

from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import shards_of
from streams.local.demo_report import Audit, WindowJournal, audit_window
from tests.support.memory_store import MemoryStore
from tests.support.surveys import survey


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
