"""A report log in a real Redis, written as a worker does, and looked at key by key."""

from __future__ import annotations

from typing import Any

from streams.store.contract import ShardBatch
from streams.store.redis import RedisStore
from streams.store.shape import Key, Shape
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, oracle, packed, token_in

SHAPE = Shape.of(CATEGORICAL)
KEY = Key(CATEGORICAL.id, WINDOW, 1)


def reports(*rungs: int, user: int = 1) -> list[Report]:
    return [Report(token_in(1, user, CATEGORICAL), rung, b"\2") for rung in rungs]


def cached_log(store: RedisStore) -> Cached:
    return Cached.of(store.log.load([KEY], SHAPE, Table.of_log)[KEY])


def apply(store: RedisStore, cached: Cached, some: list[Report]) -> bool:
    """Return whether the store took the change."""
    change = fold(KEY, cached, packed(CATEGORICAL, some), SHAPE)
    (outcome,) = store.log.apply([ShardBatch(TOPIC, 1, 1, 0, 0, [change])])
    if not outcome.contended:
        cached.applied(change, outcome.stamps[KEY])
    return not outcome.contended


def log_key(key_prefix: str, part: str) -> str:
    return f"{key_prefix}thaw:v1:{{1}}:{part}:{CATEGORICAL.id}:{WINDOW}"


def segment(some: list[Report]) -> bytes:
    return packed(CATEGORICAL, some).tobytes()


def healed(store: RedisStore, client: Any, key_prefix: str, expected: list[Report]) -> None:
    """Check that loading makes head and tally those of the log, and that work goes on from there."""
    cached = cached_log(store)
    assert cached.table.tally() == oracle(CATEGORICAL, expected)
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, expected)
    if expected:
        for part in ("log", "head", "tally"):
            assert client.pexpiretime(log_key(key_prefix, part)) == SHAPE.expires_ms(WINDOW)
    assert cached_log(store).stamp == cached.stamp
    assert apply(store, cached, reports(3, user=9))
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, expected + reports(3, user=9))
