"""A Redis whose memory runs out in the middle of what it is doing."""

from __future__ import annotations

import random

import pytest
import redis

from estimators.tally import Tally
from streams.local.redis import Redis
from streams.store.redis import RedisStore
from streams.store.shape import Shape
from streams.worker.applier import Applier
from streams.worker.retry import RestartRequired
from tests.support.clock import ManualClock
from tests.support.reports import (
    BITS_IN_GROUPS,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    SurveyDict,
    batch_of,
    messages_of,
    oracle,
    random_reports,
)
from tests.support.services import running

pytestmark = pytest.mark.real


def test_memory_that_runs_out_in_the_middle_of_a_step_leaves_a_part_that_counts_once(key_prefix: str) -> None:
    """A step is one script per shard, in one round trip: some of them still have room."""
    some = random_reports(BITS_IN_GROUPS, 20_000, 20_000, random.Random(1))
    messages = messages_of(BITS_IN_GROUPS, some, partitions=2)
    batches = [batch_of(message, partition=partition) for partition, message in messages.items()]
    shape, expected = Shape.of(BITS_IN_GROUPS), oracle(BITS_IN_GROUPS, some)

    def applier(store: RedisStore) -> Applier:
        clock = ManualClock(NOW_MS)
        found = Applier(
            store,
            SurveyDict(*SURVEYS),
            lambda _: None,
            partitions=2,
            clock=clock,
            sleep=clock.sleep,
            patience_seconds=1,
        )
        found.assigned(TOPIC, {0: 0, 1: 0})
        return found

    with running(Redis) as own, redis.Redis.from_url(own.url) as admin:
        store = RedisStore.connect(own.url, prefix=key_prefix)

        def counted() -> Tally:
            return store.estimates.tally(BITS_IN_GROUPS.id, WINDOW, BITS_IN_GROUPS.shards, shape)

        used, room = admin.info("memory")["used_memory"], 0
        while not counted().total_users:
            room += 100_000
            admin.config_set("maxmemory", used + room)
            with pytest.raises(RestartRequired, match="used memory > 'maxmemory'"):
                applier(store).process(batches)
        assert 0 < counted().total_users < expected.total_users, "a part of the step was applied"
        admin.config_set("maxmemory", 0)
        applier(store).process(batches)
        assert counted() == expected
        store.close()
