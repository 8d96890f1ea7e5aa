"""Putting another log in the place of one: the same tests on the store in memory and on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from streams.store.contract import NO_STAMP, Key, Seen, Shape, ShardBatch, Store
from streams.store.redis import RedisStore
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.memory_store import MemoryStore
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, oracle, packed, token_in

KEY = Key(CATEGORICAL.id, WINDOW, 1)
SHAPE = Shape.of(CATEGORICAL)


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.real)])
def store(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Store]:
    if request.param == "redis":
        real = RedisStore.connect(request.getfixturevalue("redis_url"), prefix=key_prefix)
        yield real
        real.close()
    else:
        yield MemoryStore()


def reports(*users: int, rung: int = 0) -> list[Report]:
    return [Report(token_in(1, user, CATEGORICAL), rung, bytes([user % 5])) for user in users]


def table(*users: int) -> Table:
    made = Table(SHAPE)
    made.fold(packed(CATEGORICAL, reports(*users)))
    return made


def count(store: Store, *users: int) -> None:
    """Count reports as a worker does."""
    cached = Cached.of(store.load([KEY], SHAPE)[KEY])
    change = fold(KEY, cached, packed(CATEGORICAL, reports(*users)), SHAPE)
    [outcome] = store.apply([ShardBatch(TOPIC, 0, KEY.shard, 0, 0, [change])])
    assert not outcome.contended


def test_another_log_takes_the_place_of_one(store: Store) -> None:
    count(store, 1, 2)
    count(store, 3)
    seen = store.seen([KEY])[KEY]
    assert seen.segments == 2
    assert store.replace(KEY, seen, table(2, 4))
    assert store.load([KEY], SHAPE)[KEY].table.tally() == oracle(CATEGORICAL, reports(2, 4))
    assert store.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE) == oracle(CATEGORICAL, reports(2, 4))
    assert store.seen([KEY])[KEY] not in (seen, Seen(NO_STAMP, 0))
    count(store, 5)
    assert store.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 3


def test_a_log_that_somebody_changed_meanwhile_stays(store: Store) -> None:
    nothing = store.seen([KEY])[KEY]
    assert nothing == Seen(NO_STAMP, 0)
    count(store, 1)
    seen = store.seen([KEY])[KEY]
    count(store, 2)
    for old in (nothing, seen):
        assert not store.replace(KEY, old, table(4))
    assert store.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 2


def test_a_log_appears_where_none_was_and_goes_where_none_should_be(store: Store) -> None:
    assert store.replace(KEY, store.seen([KEY])[KEY], table(1))
    assert store.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 1
    assert store.replace(KEY, store.seen([KEY])[KEY], table())
    assert store.seen([KEY])[KEY] == Seen(NO_STAMP, 0)
    count(store, 2)
    assert store.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 1


def test_every_key_of_a_replaced_log_has_a_life(redis_url: str, key_prefix: str) -> None:
    store = RedisStore.connect(redis_url, prefix=key_prefix)
    assert store.replace(KEY, store.seen([KEY])[KEY], table(1))
    client = redis.Redis.from_url(redis_url)
    lives = {name: client.pexpiretime(name) for name in client.scan_iter(f"{key_prefix}*")}
    assert set(lives.values()) == {SHAPE.expires_ms(WINDOW)}
    assert len(lives) == 3
    client.close()
    store.close()
