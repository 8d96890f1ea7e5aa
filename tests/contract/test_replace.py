"""Replacing a report log: the same tests on the store in memory and on a real Redis."""

from __future__ import annotations

import redis

from streams.store.contract import NO_STAMP, Seen, ShardBatch, Store
from streams.store.redis import RedisStore
from streams.store.shape import Key, Shape
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, oracle, packed, token_in

KEY = Key(CATEGORICAL.id, WINDOW, 1)
SHAPE = Shape.of(CATEGORICAL)


def reports(*users: int, rung: int = 0) -> list[Report]:
    return [Report(token_in(1, user, CATEGORICAL), rung, bytes([user % 5])) for user in users]


def table(*users: int) -> Table:
    made = Table(SHAPE)
    made.fold(packed(CATEGORICAL, reports(*users)))
    return made


def count(store: Store, *users: int) -> None:
    """Count reports as a worker does."""
    cached = Cached.of(store.log.load([KEY], SHAPE, Table.of_log)[KEY])
    change = fold(KEY, cached, packed(CATEGORICAL, reports(*users)), SHAPE)
    [outcome] = store.log.apply([ShardBatch(TOPIC, 0, KEY.shard, 0, 0, [change])])
    assert not outcome.contended


def test_a_log_is_replaced(store: Store) -> None:
    count(store, 1, 2)
    count(store, 3)
    seen = store.log.seen([KEY])[KEY]
    assert seen.segments == 2
    assert store.log.replace(KEY, seen, table(2, 4))
    assert store.log.load([KEY], SHAPE, Table.of_log)[KEY].content.tally() == oracle(CATEGORICAL, reports(2, 4))
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE) == oracle(
        CATEGORICAL, reports(2, 4)
    )
    assert store.log.seen([KEY])[KEY] not in (seen, Seen(NO_STAMP, 0))
    count(store, 5)
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 3


def test_a_log_that_changed_since_it_was_seen_stays(store: Store) -> None:
    nothing = store.log.seen([KEY])[KEY]
    assert nothing == Seen(NO_STAMP, 0)
    count(store, 1)
    seen = store.log.seen([KEY])[KEY]
    count(store, 2)
    for old in (nothing, seen):
        assert not store.log.replace(KEY, old, table(4))
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 2


def test_a_log_appears_where_none_was_and_goes_where_none_should_be(store: Store) -> None:
    assert store.log.replace(KEY, store.log.seen([KEY])[KEY], table(1))
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 1
    assert store.log.replace(KEY, store.log.seen([KEY])[KEY], table())
    assert store.log.seen([KEY])[KEY] == Seen(NO_STAMP, 0)
    count(store, 2)
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 1


def test_every_key_of_a_replaced_log_expires(redis_url: str, key_prefix: str) -> None:
    store = RedisStore.connect(redis_url, prefix=key_prefix)
    assert store.log.replace(KEY, store.log.seen([KEY])[KEY], table(1))
    client = redis.Redis.from_url(redis_url)
    lives = {name: client.pexpiretime(name) for name in client.scan_iter(f"{key_prefix}*")}
    assert set(lives.values()) == {SHAPE.expires_ms(WINDOW)}
    assert len(lives) == 3
    client.close()
    store.close()
