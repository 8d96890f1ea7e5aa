"""Redis that holds what cannot be read, has no room left or loses its helper; a worker that cannot start or goes on.

Each fault ends with a tally that equals what was sent, and with a line of log that says what is wrong.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from streams.kafka.messages import Outgoing, PublishError
from streams.kafka.publisher import Publisher
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, free_ports
from streams.local.redis import Redis
from streams.settings import Settings
from streams.store.shape import Key
from streams.windows.record import decode_estimate
from tests.integration.workers import System, run_thaw
from tests.support.deadline import END_SECONDS, until
from tests.support.processes import hung
from tests.support.services import missing, running
from tests.support.telling import Tells

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def own_redis() -> Iterator[Redis]:
    with running(Redis) as service:
        yield service


@contextmanager
def counting(kafka: str, redis: Redis, prefix: str, folder: Path) -> Iterator[tuple[System, Child, Any]]:
    """A worker that has counted some reports, and a client of its Redis."""
    system = System(kafka, redis.url, prefix, folder)
    system.create_topics()
    with redis_client.Redis.from_url(redis.url) as client, system.worker() as worker:
        first = system.reports(1_000)
        system.produce(first.messages(8))
        system.wait_for_tally(first.tally(), worker)
        yield system, worker, client


def goes_on(system: System, worker: Child, *, seed: int = 2) -> None:
    """Check that more reports are counted beside the first ones, and estimated."""
    more = system.reports(1_000, seed=seed)
    system.produce(more.messages(8))
    system.wait_for_tally(system.reports(1_000).tally() + more.tally(), worker, seconds=120)
    until(lambda: not system.store.queue.entries() and not system.store.unreadable.entries(), 60, "all estimates")
    worker.check()


def test_a_worker_sets_unreadable_logs_aside_and_rebuilds_their_window(
    kafka: str, own_redis: Redis, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    with counting(kafka, own_redis, topic_prefix, tmp_path) as (system, worker, client):
        connection = system.store.log._connection
        keys = [connection.log_keys(Key(system.survey.id, system.window_ms, shard)) for shard in range(5)]
        # Alone and first: the rebuild of the window, which the rest asks for, makes every tally again.
        tells.begin()
        client.set(keys[0][2], b"no tally")
        system.store.queue.put([(system.survey.id, system.window_ms)])
        tells.log("A tally in Redis that cannot be read", worker, "made again from its log")
        tells.begin()
        client.lset(keys[1][0], 0, b"no entries")
        client.delete(keys[1][1])  # the worker's copy is not the stored one any more: it reads the log
        client.set(keys[2][0], b"no list")
        client.set(keys[3][1], b"no hash")
        client.lpop(keys[4][0])
        client.hset(keys[4][1], "stamp", bytes(16))
        system.store.queue.put([(system.survey.id, system.window_ms)])
        goes_on(system, worker)
        tells.log("A report log that cannot be read", worker, "its report log cannot be read")
        tells.log("A report log that was shortened", worker, "its report log was changed by somebody else")
        tells.log("A key of a wrong type", worker, "was no list: somebody else wrote to it")
        assert "whole again, 2000 users" in worker.log.read_text()


def test_rebuild_heals_keys_of_a_wrong_type(kafka: str, own_redis: Redis, topic_prefix: str, tmp_path: Path) -> None:
    with counting(kafka, own_redis, topic_prefix, tmp_path) as (system, worker, client):
        worker.terminate(END_SECONDS)
        log, head, tally = system.store.log._connection.log_keys(Key(system.survey.id, system.window_ms, 1))
        client.set(log, b"no list")
        client.set(head, b"no hash")
        client.delete(tally)
        client.rpush(tally, b"no string")
        healed = run_thaw(system.settings, "rebuild", "colour", "--replace")
        assert healed.returncode == 0, healed.stderr
        assert "removed keys of a wrong type" in healed.stderr
        assert system.tally() == system.reports(1_000).tally()


def test_a_rewrite_of_the_append_only_file_that_is_killed_costs_nothing(
    kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    with running(Redis) as redis, counting(kafka, redis, topic_prefix, tmp_path) as (system, worker, client):
        client.config_set("rdb-key-save-delay", 100_000)
        client.bgrewriteaof()
        children = Path(f"/proc/{redis.child.pid}/task/{redis.child.pid}/children")
        until(lambda: children.read_text().split(), 30, "the rewriting child")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        tells.begin()
        tells.seen(
            "A rewrite of the append-only file that is killed",
            "INFO of Redis",
            lambda: client.info("persistence")["aof_last_bgrewrite_status"] == "err",
        )
        goes_on(system, worker)
        redis.kill()
        redis.start()
        assert system.tally() == system.reports(1_000).tally() + system.reports(1_000, seed=2).tally()


def test_a_full_disk_stops_counting_until_there_is_room_and_no_longer(
    kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    if os.geteuid() != 0:
        missing("only root can mount a small file system for Redis")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    redis = Redis(folder=disk)
    try:
        redis.start()
        with counting(kafka, redis, topic_prefix, tmp_path) as (system, worker, _):
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(4_096)):
                    pass
            more = system.reports(1_000, seed=2)
            tells.begin()
            system.produce(more.messages(8))
            tells.log("A full disk below Redis", worker, "MISCONF")
            until(lambda: "retrying, last batch not acknowledged" in worker.log.read_text(), 60, "the worker to wait")
            filler.unlink()
            system.wait_for_tally(system.reports(1_000).tally() + more.tally(), worker, seconds=120)
            redis.kill()
            redis.start()
            system.wait_for_tally(system.reports(1_000).tally() + more.tally(), worker, seconds=120)
    finally:
        redis.terminate()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_redis_that_hangs_or_has_no_memory_left_is_named_and_counting_goes_on(
    kafka: str, own_redis: Redis, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    with counting(kafka, own_redis, topic_prefix, tmp_path) as (system, worker, client):
        first, second, third = (system.reports(1_000, seed=seed) for seed in (1, 2, 3))
        with hung(own_redis.child):
            tells.begin()
            system.produce(second.messages(8))
            tells.log("A Redis that hangs", worker, "no answer from Redis")
        system.wait_for_tally(first.tally() + second.tally(), worker)
        client.config_set("maxmemory", 1)
        try:
            # At rest nothing but the heartbeat is written.
            tells.begin()
            tells.log("`maxmemory` reached", worker, "command not allowed when used memory > 'maxmemory'")
            system.produce(third.messages(8))
            until(
                lambda: "retrying, last batch" in worker.log.read_text().split("maxmemory", 1)[1], 60, "a batch to wait"
            )
        finally:
            client.config_set("maxmemory", 0)
        system.wait_for_tally(first.tally() + second.tally() + third.tally(), worker)


@pytest.mark.parametrize(
    ("away", "hangs"),
    [("THAW_REDIS", False), ("THAW_REDIS", True), ("THAW_KAFKA", False), ("THAW_KAFKA", True)],
    ids=["Redis refuses", "Redis hangs", "Kafka refuses", "Kafka hangs"],
)
def test_a_worker_waits_for_its_services_no_longer_than_it_was_told(
    kafka: str, own_redis: Redis, topic_prefix: str, tmp_path: Path, away: str, hangs: bool
) -> None:
    system = System(kafka, own_redis.url, topic_prefix, tmp_path)
    with ExitStack() as stack:
        if not hangs:
            place = f"127.0.0.1:{free_ports(1)[0]}"
        elif away == "THAW_REDIS":
            place = own_redis.address
            own_redis.child.send_signal(signal.SIGSTOP)
            stack.callback(own_redis.child.send_signal, signal.SIGCONT)
        else:
            # As a broker that is stopped: connections are made, and nothing is answered.
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            place = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {away: f"redis://{place}/0" if away == "THAW_REDIS" else place, "THAW_PATIENCE_SECONDS": "2"}
        ended = run_thaw(system.settings, "worker", "--worker-port", "0", **env)
    assert ended.returncode == 75, ended.stderr
    assert "was not ready within THAW_PATIENCE_SECONDS=2" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_worker_is_told_which_flag_gives_it_a_port(
    kafka: str, own_redis: Redis, topic_prefix: str, tmp_path: Path
) -> None:
    system = System(kafka, own_redis.url, topic_prefix, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run_thaw(system.settings, "worker", "--worker-port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "--worker-port or THAW_WORKER_PORT (0: a free one)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_thread_that_ends_by_an_error_ends_the_process() -> None:
    program = (
        "import logging, threading\n"
        "from streams.worker.driver import exit_now\n"
        "from streams.worker.threads import start_thread\n"
        "logging.basicConfig()\n"
        "start_thread('estimates', lambda: {}['missing'], exit_now)\n"
        "threading.Event().wait()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=END_SECONDS, check=False
    )
    assert ended.returncode == 75
    assert "exiting with status 75: the thread estimates ended by an error (KeyError: 'missing')" in ended.stderr


def test_an_outage_of_kafka_leaves_one_message_per_key_and_ends_every_wait(
    other_kafka: ApacheKafka, topic_prefix: str
) -> None:
    """A broker of its own, to be stopped: the same two keys are sent again and again, as at every tick."""
    settings = Settings(kafka=other_kafka.address, prefix=topic_prefix)
    Topics(settings).create(wanted(settings, []))
    publisher = Publisher(settings)

    def send(number: int, *, wait_seconds: float = END_SECONDS) -> None:
        messages = [Outgoing(settings.estimates_topic, b"%d" % number, key) for key in (b"a", b"b")]
        publisher.send(messages, wait_seconds=wait_seconds)

    send(0)
    assert publisher.is_up
    with hung(other_kafka.child):
        calls = 20
        for number in range(1, 1 + calls):
            with pytest.raises(PublishError, match="2 of 2 messages were not acknowledged"):
                send(number, wait_seconds=0.1)
        assert publisher._producer is not None
        assert len(publisher._producer) < calls, "not one more for each call; its length also counts events"
        assert not publisher.is_up
        _fill_the_queue(settings)
    until(lambda: _sent(send), 60, "the brokers to take messages again", poll_seconds=0.1)
    assert publisher.is_up
    publisher.close(10)


def test_workers_log_an_outage_of_kafka_once_and_go_on_estimating(
    other_kafka: ApacheKafka, own_redis: Redis, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    """Two workers, so that at most ticks one of them has nothing to publish."""
    system = System(other_kafka.address, own_redis.url, topic_prefix, tmp_path)
    system.create_topics()
    told = "Kafka (estimates are stored but not published) is "

    def estimate_again(before_ms: int = 0) -> int:
        """Have the window estimated after a moment, and return when it was."""
        system.store.queue.put([(system.survey.id, system.window_ms)])

        def computed_ms() -> int:
            payload = system.store.estimates.read(system.survey.id, system.window_ms)
            return 0 if payload is None else decode_estimate(payload).computed_ms

        until(lambda: computed_ms() > before_ms, 60, "an estimate")
        return computed_ms()

    with system.worker(instance="one") as one, system.worker(instance="two") as two:
        until(lambda: all("assigned" in child.log.read_text() for child in (one, two)), 60, "both to have partitions")
        reports = system.reports(1_000)
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), one)
        newest_ms = estimate_again()
        with hung(other_kafka.child):
            tells.begin()
            system.store.queue.put([(system.survey.id, system.window_ms)])
            for child in (one, two):
                tells.log("Kafka hangs or is away", child, "Kafka is down")
            tells.seen(
                "Kafka away while estimates are published",
                "log of a worker",
                lambda: any(told + "down" in child.log.read_text() for child in (one, two)),
            )
            for _ in range(12):
                newest_ms = estimate_again(newest_ms)
            for child in (one, two):
                assert child.log.read_text().count(told + "down") <= 1
                assert told + "up again" not in child.log.read_text()

        def ended() -> bool:
            """Tell whether every log that has the beginning of the outage has its end; who publishes next has it."""
            system.store.queue.put([(system.survey.id, system.window_ms)])
            logs = [child.log.read_text() for child in (one, two)]
            return all(log.count(told + "down") == log.count(told + "up again") for log in logs)

        until(ended, 60, "the end of the outage", poll_seconds=0.3)
        until(lambda: not system.store.queue.entries(), 60, "all to be published")


def _fill_the_queue(settings: Settings) -> None:
    """Messages without a key, as dead letters are, while the queue to Kafka has room for two."""
    small = Publisher(settings)
    small._options["queue.buffering.max.messages"] = 2
    letters = [Outgoing(settings.dead_letters_topic, b"%d" % number, None) for number in range(5)]
    with pytest.raises(PublishError, match="the queue to Kafka is full"):
        small.send(letters, wait_seconds=0.3)
    assert not small.is_up
    with pytest.raises(PublishError, match="stopped while the queue to Kafka was full"):
        small.send(letters, wait_seconds=60, stopping=lambda: True)


def _sent(send: Any) -> bool:
    try:
        send(99, wait_seconds=1)
    except PublishError:
        return False
    return True
