"""Heartbeats: what a worker says, who counts as alive, and a board that forgets."""

import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from streams.metrics import worker_metrics
from streams.store.heartbeats import KEEP_MS, SILENT_MS, Heartbeats, alive, heartbeat_of, start_beating
from tests.support.deadline import until


def test_a_fresh_worker_has_nothing_to_tell_but_that_it_lives() -> None:
    word = heartbeat_of("a", worker_metrics(), 5_000)
    assert (word.time_ms, word.lag_records, word.last_batch_ms, word.latency_p50_seconds) == (5_000, None, None, None)


def test_lag_is_summed_over_partitions() -> None:
    metrics = worker_metrics()
    metrics.lag.labels("0").set(3)
    metrics.lag.labels("5").set(4)
    metrics.last_batch.set(12.5)
    metrics.latency.observe(0.25)
    word = heartbeat_of("a", metrics, 13_000)
    assert (word.lag_records, word.last_batch_ms) == (7, 12_500)
    assert word.latency_p50_seconds == pytest.approx(0.25, rel=0.5)


def test_who_is_silent_for_long_is_not_alive() -> None:
    words = [heartbeat_of(name, worker_metrics(), time_ms) for name, time_ms in (("a", 0), ("b", 1))]
    assert [word.worker for word in alive(words, SILENT_MS + 1)] == ["b"]


def test_the_board_lists_workers_and_forgets_who_left_or_fell_silent(redis_url: str, key_prefix: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        board = Heartbeats(client, prefix=key_prefix)
        assert board.read() == []
        words = [heartbeat_of(name, worker_metrics(), 1_000) for name in ("b", "a", "c")]
        for word in words:
            board.beat(word)
        assert [word.worker for word in board.read()] == ["a", "b", "c"]
        board.farewell("b")
        assert [word.worker for word in board.read()] == ["a", "c"]
        board.beat(heartbeat_of("c", worker_metrics(), 1_000 + KEEP_MS + 1))
        assert [word.worker for word in board.read()] == ["c"]
        assert all(client.pttl(key) > 0 for key in client.keys(f"{key_prefix}*"))
        client.set(f"{key_prefix}thaw:v1:{{workers}}:beat:c", b"{}")
        assert board.read() == []


def test_a_worker_beats_until_it_is_told_to_stop(redis_url: str, key_prefix: str) -> None:
    stop = threading.Event()
    with redis.Redis.from_url(redis_url) as client:
        board = Heartbeats(client, prefix=key_prefix)
        thread = start_beating(board, "a", worker_metrics(), stop)
        until(board.read, 10, "a first heartbeat")
        stop.set()
        thread.join(10)
        assert board.read() == []


def test_a_redis_that_is_away_does_not_end_the_beating() -> None:
    stop = threading.Event()
    with redis.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)) as client:
        thread = start_beating(Heartbeats(client), "a", worker_metrics(), stop)
        assert thread.is_alive()
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
