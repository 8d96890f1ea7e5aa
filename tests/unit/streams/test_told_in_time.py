"""A fault is told within ten seconds: what every watch waits, added up.

`make told` measures it on real services, one fault after the other, and `make chaos` while much else goes wrong.
"""

from __future__ import annotations

import pytest

from producers.survey.folder import RESCAN_MS
from streams.cli.exporter import REDIS_SECONDS
from streams.exporter import watcher
from streams.kafka import topic_state, watch
from streams.kafka.topics import CONTACT_SECONDS
from streams.repair import unreadable
from streams.settings import Settings
from streams.store import redis_connection
from streams.store.heartbeats import SILENT_MS, TRANSACTION_TOLERATED_MS
from streams.worker import driver, topic_watch, unread
from streams.worker.driver import LAG_SECONDS
from streams.worker.heartbeat import HEARTBEAT_SECONDS
from streams.worker.lag_age import UNWATCHED_MS

LIMIT_SECONDS = 10.0

WATCHES = {
    "Redis hangs, seen by the estimates of a worker": (Settings().tick_ms / 1_000, redis_connection.ANSWER_SECONDS),
    "Redis lost writes, seen by a worker at rest": (driver.VERIFY_SECONDS, redis_connection.ANSWER_SECONDS),
    "Kafka hangs, seen by a worker or a gateway": (watch.ASK_SECONDS, watch.ANSWER_SECONDS),
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
    "nothing is counted, shown as a lag": (UNWATCHED_MS / 1_000, HEARTBEAT_SECONDS, watcher.LOOK_SECONDS),
    "a lag is over its limit, seen on the page": (LAG_SECONDS, HEARTBEAT_SECONDS, watcher.LOOK_SECONDS),
    "the end of a partition is not known, shown as a lag": (
        unread.TOLD_MS / 1_000,
        UNWATCHED_MS / 1_000,
        HEARTBEAT_SECONDS,
        watcher.LOOK_SECONDS,
    ),
    "a transaction stays open": (TRANSACTION_TOLERATED_MS / 1_000, LAG_SECONDS),
    "a worker is silent": (SILENT_MS / 1_000, watcher.LOOK_SECONDS),
    "no broker answers a command": (CONTACT_SECONDS,),
    "what Redis holds cannot be shown": (watcher.LOOK_SECONDS, REDIS_SECONDS),
    "a survey file cannot be read": (RESCAN_MS / 1_000, Settings().tick_ms / 1_000),
}


@pytest.mark.parametrize("fault", WATCHES)
def test_the_waits_of_a_watch_end_within_ten_seconds(fault: str) -> None:
    assert sum(WATCHES[fault]) <= LIMIT_SECONDS
