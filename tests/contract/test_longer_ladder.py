"""A log goes on when the ladder of its survey grows, and a process that does not know of it leaves it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.store.contract import ShardBatch, Store, StoreCorruptError
from streams.store.ladders import LongerLadderError
from streams.store.shape import Key, Shape
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, oracle, packed, token_in

KEY = Key(CATEGORICAL.id, WINDOW, 1)
LONG = Shape.of(CATEGORICAL)
SHORT = replace(LONG, rungs=2)


def reports(*rungs: int, user: int = 1) -> list[Report]:
    return [Report(token_in(1, user, CATEGORICAL), rung, b"\2") for rung in rungs]


def load(store: Store, shape: Shape) -> Cached:
    return Cached.of(store.log.load([KEY], shape, Table.of_log)[KEY])


def write(store: Store, cached: Cached, some: list[Report], shape: Shape, *, next_: int = 1) -> bool:
    """Apply reports as a writer with this copy; tells whether the store took them."""
    change = fold(KEY, cached, packed(CATEGORICAL, some), shape)
    (outcome,) = store.log.apply([ShardBatch(TOPIC, 1, 1, 0, next_, (change,), limit=next_)])
    return not outcome.contended


def test_counts_of_the_shorter_ladder_are_read_and_go_on_with_the_longer_one(store: Store) -> None:
    first = [*reports(1), *reports(0, user=2)]
    assert write(store, load(store, SHORT), first, SHORT)
    tally = store.estimates.tally(KEY.survey_id, WINDOW, CATEGORICAL.shards, LONG)
    assert tally == oracle(CATEGORICAL, first), "rungs that nobody is on"
    (counts,) = (
        one for one in store.estimates.counts(KEY.survey_id, WINDOW, LONG, topic=TOPIC, partitions=2) if one.stamp
    )
    assert counts.exact
    cached = load(store, LONG)
    assert cached.table.tally() == oracle(CATEGORICAL, first)
    assert write(store, cached, reports(3), LONG, next_=2)
    expected = oracle(CATEGORICAL, [*first, *reports(3)])
    assert store.estimates.tally(KEY.survey_id, WINDOW, CATEGORICAL.shards, LONG) == expected
    assert load(store, LONG).table.tally() == expected
    counted = store.estimates.counts(KEY.survey_id, WINDOW, LONG, topic=TOPIC, partitions=2)
    assert all(one.exact for one in counted), "what an estimate contains can still be said"


def test_a_process_that_knows_the_shorter_ladder_leaves_the_longer_one_alone(store: Store) -> None:
    old = load(store, SHORT)
    assert write(store, old, reports(1), SHORT)
    behind = load(store, SHORT)
    assert write(store, load(store, LONG), reports(3), LONG, next_=2)
    seen = store.log.seen([KEY])
    assert not write(store, behind, reports(0, user=2), SHORT, next_=3), "its copy is no longer the log"
    for read in (
        lambda: load(store, SHORT),
        lambda: store.estimates.tally(KEY.survey_id, WINDOW, CATEGORICAL.shards, SHORT),
        lambda: store.estimates.counts(KEY.survey_id, WINDOW, SHORT, topic=TOPIC, partitions=2),
    ):
        with pytest.raises(LongerLadderError, match=r"has 4 rungs and the survey here 2: another survey continues it"):
            read()
    assert store.log.seen([KEY]) == seen
    assert store.estimates.tally(KEY.survey_id, WINDOW, CATEGORICAL.shards, LONG) == oracle(CATEGORICAL, reports(3))


def test_a_tally_of_other_answers_is_no_shorter_ladder(store: Store) -> None:
    assert write(store, load(store, SHORT), reports(1), SHORT)
    other = replace(LONG, size=LONG.size + 1)
    with pytest.raises(StoreCorruptError):
        store.estimates.tally(KEY.survey_id, WINDOW, CATEGORICAL.shards, other)
