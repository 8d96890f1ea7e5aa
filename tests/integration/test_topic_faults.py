"""What happens to the topic of reports, or to clocks, while a worker runs: told at once, counted right."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from streams.connections import librdkafka_options
from streams.local.process import Child, free_ports
from streams.store.redis_sources import Source
from tests.integration.test_poison import metric, send
from tests.integration.workers import System, run_thaw
from tests.support.deadline import until

pytestmark = pytest.mark.real

DAY_SECONDS = 86_400
OTHER_CLOCK = (sys.executable, "-m", "tests.support.other_clock")


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


@pytest.fixture
def admin(system: System) -> AdminClient:
    return AdminClient(librdkafka_options(system.settings))


def says(worker: Child, text: str) -> Callable[[], bool]:
    return lambda: text in worker.log.read_text()


def test_a_worker_three_days_ahead_counts_what_came_in_time_and_says_so(system: System) -> None:
    first, second = system.reports(500), system.reports(500, seed=2)
    system.produce(first.messages(8))
    [port] = free_ports(1)
    with system.worker(port=port, command=(*OTHER_CLOCK, str(3 * DAY_SECONDS))) as worker:
        system.wait_for_tally(first.tally(), worker)
        # A record that comes after the worker has asked for the end of its partition proves it.
        until(lambda: metric(port, "thaw_worker_topic_faults") == 0 and says(worker, "assigned")(), 60, "a first look")

        def told() -> bool:
            system.produce(second.messages(8))
            return says(worker, "ahead of the broker's")()

        until(told, 60, "the worker to report its clock", poll_seconds=1)
        assert metric(port, "thaw_worker_clock_offset_seconds") == pytest.approx(3 * DAY_SECONDS, abs=60)
        system.wait_for_tally(first.tally() + second.tally(), worker)
        until(lambda: system.store.estimates.read(system.survey.id, system.window_ms), 60, "an estimate")
    assert system.store.log.counters(system.survey.id).expired == 0


def test_unread_records_that_are_deleted_are_told_at_once(system: System, admin: AdminClient) -> None:
    reports = system.reports(400)
    topic = system.settings.reports_topic
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)
        worker.terminate(30)
    lost = system.reports(400, seed=2).messages(8, limit_bytes=1)
    system.produce(lost)
    ends = {partition: len(values) + 1 for partition, values in lost.items()}
    places = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for future in admin.delete_records(places).values():
        future.result(30)
    with system.worker(port=port) as worker:
        until(says(worker, "were deleted unread and are not counted"), 60, "the worker to say so without a new record")
        gone = sum(map(len, lost.values()))
        until(lambda: metric(port, "thaw_worker_deleted_unread_records_total") == gone, 30, f"{gone} records counted")
        more = system.reports(300, seed=3)
        system.produce(more.messages(8))
        system.wait_for_tally(reports.tally() + more.tally(), worker)
        assert metric(port, "thaw_worker_deleted_unread_records_total") == gone, "each is told once"


def test_create_time_more_partitions_and_a_topic_made_again(system: System, admin: AdminClient) -> None:
    reports = system.reports(500)
    topic = system.settings.reports_topic
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        until(says(worker, "message.timestamp.type CreateTime"), 30, "the worker to name the setting")
        until(lambda: metric(port, "thaw_worker_topic_faults") == 1, 30, "the fault as a metric")

        admin.create_partitions([NewPartitions(topic, 16)])[topic].result(30)
        assert worker.wait(30)
        assert worker.returncode == 75
        assert "has 16 partitions now, THAW_PARTITIONS is 8" in worker.tail()
    for command in (["rebuild", "colour"], ["deadletters", "replay"]):
        told = run_thaw(system.settings, *command)
        assert (told.returncode, "has 16 partitions, THAW_PARTITIONS says 8" in told.stderr) == (1, True), told.stderr
    # A report that was placed by the old count lies where its shard no longer belongs: nothing of it is removed.
    rebuilt = run_thaw(system.settings, "rebuild", "colour", "--replace", "--json", THAW_PARTITIONS="16")
    assert rebuilt.returncode == 0, rebuilt.stdout
    assert system.tally() == reports.tally()

    with system.worker(port=port, partitions=16) as worker:
        until(says(worker, "assigned"), 60, "partitions")
        admin.delete_topics([topic])[topic].result(30)

        def again() -> bool:
            system.create_topics()
            return True

        until(again, 30, "the topic again", poll_seconds=1)
        assert worker.wait(60)
        assert worker.returncode == 75, worker.tail()
    more = system.reports(300, seed=3)
    # A producer of its own: the other one may still know the old topic.
    send(system, more.messages(8))
    with system.worker() as worker:
        system.wait_for_tally(reports.tally() + more.tally(), worker)
        assert "was deleted and made again" in worker.log.read_text()
    # The first offset of the new topic is 0, and half of the counts came from the old one.
    rebuilt = run_thaw(system.settings, "rebuild", "colour", "--replace", "--json")
    [window] = json.loads(rebuilt.stdout)[0]["windows"]
    assert (window["status"], window["complete"], window["extra"]) == ("equal", False, 0), rebuilt.stderr
    assert system.tally() == reports.tally() + more.tally()
    offsets = [system.store.log.offsets(topic, partition, [partition])[partition] for partition in range(8)]
    assert offsets == [len(more.messages(8).get(partition, [])) for partition in range(8)]


def test_two_clusters_do_not_share_a_prefix(system: System) -> None:
    sources, topic = system.store.sources, system.settings.reports_topic
    other = Source("another-cluster", "its-topic")
    client = redis.Redis.from_url(system.settings.redis)
    client.lpush(sources.key(topic), "of a wrong type")
    client.close()
    assert sources.claim(topic, other) == other
    refused = run_thaw(system.settings, "worker", THAW_WORKER_PORT="0")
    assert refused.returncode == 1
    assert "counts and offsets of Kafka cluster another-cluster" in refused.stderr
    assert sources.key(topic) in refused.stderr
    refused = run_thaw(system.settings, "rebuild", "colour", "--replace")
    assert refused.returncode == 1
    assert "counting again from there would remove them all" in refused.stderr
    assert sources.key(topic) in refused.stderr
