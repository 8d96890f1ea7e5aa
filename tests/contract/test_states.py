"""Small states that are replaced by compare-and-set, and reports per shard: the same in every store."""

from __future__ import annotations

from producers.clock import system_clock
from streams.store.contract import ShardBatch, Store
from streams.store.shape import Key, Shape
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.clock import later
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, packed, token_in

SURVEY = "colour-01234567"


def test_a_state_is_replaced_only_by_one_who_has_seen_it(store: Store) -> None:
    assert store.states.get(SURVEY, "checkpoints", WINDOW) == b""
    assert store.states.swap(SURVEY, "checkpoints", WINDOW, b"", b"one", later())
    assert not store.states.swap(SURVEY, "checkpoints", WINDOW, b"", b"other", later()), "two workers spend one alpha"
    assert store.states.get(SURVEY, "checkpoints", WINDOW) == b"one"
    assert store.states.swap(SURVEY, "checkpoints", WINDOW, b"one", b"two", later())
    assert store.states.get(SURVEY, "checkpoints", WINDOW) == b"two"


def test_states_of_other_windows_surveys_and_names_are_others(store: Store) -> None:
    assert store.states.swap(SURVEY, "first", None, b"", b"\x00\xff", later())
    assert store.states.get(SURVEY, "first") == b"\x00\xff"
    assert (
        store.states.get(SURVEY, "first", WINDOW)
        == store.states.get(SURVEY, "last")
        == store.states.get("else-0", "first")
        == b""
    )


def test_a_state_goes_at_its_time(store: Store) -> None:
    assert store.states.swap(SURVEY, "first", None, b"", b"gone", system_clock() - 1)
    assert store.states.get(SURVEY, "first") == b""


def test_every_report_is_counted_for_its_shard(store: Store) -> None:
    assert store.log.shard_reports(CATEGORICAL.id) == []
    shape = Shape.of(CATEGORICAL)
    for shard, copies in ((1, 3), (2, 1)):
        key = Key(CATEGORICAL.id, WINDOW, shard)
        reports = [Report(token_in(shard, 7, CATEGORICAL), 0, b"\x01")] * copies
        cached = Cached.of(store.log.load([key], shape, Table.of_log)[key])
        store.log.apply([ShardBatch(TOPIC, 1, shard, 0, 0, [fold(key, cached, packed(CATEGORICAL, reports), shape)])])
    counted = store.log.shard_reports(CATEGORICAL.id)
    assert len(counted) == CATEGORICAL.shards
    assert (counted[1], counted[2], sum(counted)) == (3, 1, 4), (
        "copies are counted too: they are what a flood is made of"
    )
