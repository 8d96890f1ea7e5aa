"""Heartbeats: what a worker publishes, which workers count as running, and what the store deletes."""

import threading

import msgspec
import pytest

from producers.clock import system_clock
from streams.store.heartbeats import HEARTBEAT_KEEP_MS, SILENT_MS, Heartbeat, alive
from streams.store.redis import RedisStore
from streams.worker.heartbeat import HeartbeatLoop, heartbeat_of
from streams.worker_metrics import worker_metrics
from tests.support.deadline import until


def test_a_fresh_worker_publishes_only_that_it_runs() -> None:
    beat = heartbeat_of("a", worker_metrics(), 5_000)
    assert (beat.time_ms, beat.lag_records, beat.last_batch_ms, beat.latency_p50_seconds) == (5_000, None, None, None)


def test_lag_is_summed_over_partitions() -> None:
    metrics = worker_metrics()
    metrics.lag.labels("0").set(3)
    metrics.lag.labels("5").set(4)
    metrics.last_batch.set(12.5)
    metrics.latency.observe(0.25)
    beat = heartbeat_of("a", metrics, 13_000)
    assert (beat.lag_records, beat.last_batch_ms) == (7, 12_500)
    assert beat.latency_p50_seconds == pytest.approx(0.25, rel=0.5)


def test_a_heartbeat_says_whether_kafka_answers_and_how_old_the_oldest_unread_record_is() -> None:
    metrics = worker_metrics()
    fresh = heartbeat_of("a", metrics, 0)
    assert (fresh.kafka_up, fresh.lag_seconds) == (None, None)
    metrics.kafka_up.set(0)
    metrics.lag_seconds.labels("0").set(2.5)
    metrics.lag_seconds.labels("1").set(0)
    later = heartbeat_of("a", metrics, 0)
    assert (later.kafka_up, later.lag_seconds) == (False, 2.5)
    metrics.kafka_up.set(1)
    assert heartbeat_of("a", metrics, 0).kafka_up


def test_a_heartbeat_of_an_older_worker_is_read() -> None:
    old = b'{"worker":"a","time_ms":1,"lag_records":2,"last_batch_ms":null,"latency_p50_seconds":null,'
    beat = msgspec.json.decode(old + b'"latency_p99_seconds":null}', type=Heartbeat)
    assert (beat.lag_records, beat.kafka_up, beat.lag_seconds) == (2, None, None)


def test_a_worker_without_a_recent_heartbeat_is_not_alive() -> None:
    beats = [heartbeat_of(name, worker_metrics(), time_ms) for name, time_ms in (("a", 0), ("b", 1))]
    assert [beat.worker for beat in alive(beats, SILENT_MS + 1)] == ["b"]


def test_the_store_lists_workers_and_forgets_removed_and_old_ones(redis_url: str, key_prefix: str) -> None:
    store = RedisStore.connect(redis_url, prefix=key_prefix)
    heartbeats, client = store.heartbeats, store._client
    assert heartbeats.read() == []
    for name in ("b", "a", "c"):
        heartbeats.publish(heartbeat_of(name, worker_metrics(), 1_000))
    assert [beat.worker for beat in heartbeats.read()] == ["a", "b", "c"]
    heartbeats.remove("b")
    assert [beat.worker for beat in heartbeats.read()] == ["a", "c"]
    client.zincrby(f"{key_prefix}thaw:v1:{{workers}}:beats", -HEARTBEAT_KEEP_MS, "a")
    heartbeats.publish(heartbeat_of("c", worker_metrics(), 1_000))
    assert [beat.worker for beat in heartbeats.read()] == ["c"]
    assert all(client.pttl(key) > 0 for key in client.keys(f"{key_prefix}*"))
    client.set(f"{key_prefix}thaw:v1:{{workers}}:beat:c", b"{}")
    assert heartbeats.read() == []
    store.close()


def test_a_wrong_clock_of_a_worker_hides_neither_it_nor_the_others(redis_url: str, key_prefix: str) -> None:
    store, now_ms = RedisStore.connect(redis_url, prefix=key_prefix), system_clock()
    for name, days in (("right", 0), ("ahead", 1), ("behind", -1)):
        metrics = worker_metrics()
        metrics.clock_offset.set(days * 86_400)
        store.heartbeats.publish(heartbeat_of(name, metrics, now_ms + days * 86_400_000))
    found = store.heartbeats.read()
    assert [(beat.worker, beat.clock_offset_seconds) for beat in found] == [
        ("ahead", 86_400),
        ("behind", -86_400),
        ("right", 0),
    ]
    assert alive(found, system_clock()) == found
    store.close()


def test_a_worker_publishes_until_it_is_asked_to_stop(redis_url: str, key_prefix: str) -> None:
    stop = threading.Event()
    store = RedisStore.connect(redis_url, prefix=key_prefix)
    thread = threading.Thread(target=HeartbeatLoop(store.heartbeats, "a", worker_metrics()).run, args=(stop,))
    thread.start()
    until(store.heartbeats.read, 60, "a first heartbeat")
    stop.set()
    thread.join(60)
    assert store.heartbeats.read() == []
    store.close()


def test_an_unreachable_redis_does_not_end_the_heartbeats_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = threading.Event()
    store = RedisStore.connect("redis://127.0.0.1:1/0")
    thread = threading.Thread(target=HeartbeatLoop(store.heartbeats, "a", worker_metrics()).run, args=(stop,))
    thread.start()
    told = "Redis (for heartbeats: this worker is shown as dead) is down: Redis unreachable at 127.0.0.1:1"
    until(lambda: [message for message in caplog.messages if message.startswith(told)], 60, "the log to say so")
    assert thread.is_alive()
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    store.close()
