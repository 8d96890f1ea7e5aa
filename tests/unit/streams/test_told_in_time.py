"""A fault is told within ten seconds: what every watch waits, added up. `make chaos` measures it on real services."""

from __future__ import annotations

import pytest

from streams.cli.exporter import REDIS_SECONDS
from streams.exporter import watcher
from streams.kafka import topic_state, watch
from streams.repair import unreadable
from streams.settings import Settings
from streams.store import redis_connection
from streams.store.heartbeats import SILENT_MS
from streams.worker import driver, topic_watch
from streams.worker.heartbeat import HEARTBEAT_SECONDS

LIMIT_SECONDS = 10.0

WATCHES = {
    "Redis hangs, seen by the estimates of a worker": (Settings().tick_ms / 1_000, redis_connection.ANSWER_SECONDS),
    "Redis lost writes, seen by a worker at rest": (driver.VERIFY_SECONDS, redis_connection.ANSWER_SECONDS),
    "Kafka hangs, seen by a worker": (watch.ASK_SECONDS, watch.ANSWER_SECONDS),
    "Kafka hangs, seen on the page": (
        watch.ASK_SECONDS,
        watch.ANSWER_SECONDS,
        HEARTBEAT_SECONDS,
        watcher.LOOK_SECONDS,
    ),
    "the topic changed": (topic_watch.WATCH_SECONDS, topic_state.ANSWER_SECONDS),
    "Redis hangs, seen on the page": (watcher.LOOK_SECONDS, REDIS_SECONDS),
    "Redis is slow, seen on the page": (watcher.OVERDUE_SECONDS,),
    "counts cannot be read": (Settings().tick_ms / 1_000, unreadable.LOOK_SECONDS),
    "a worker is silent": (SILENT_MS / 1_000,),
}


@pytest.mark.parametrize("fault", WATCHES)
def test_the_waits_of_a_watch_end_within_ten_seconds(fault: str) -> None:
    assert sum(WATCHES[fault]) <= LIMIT_SECONDS
