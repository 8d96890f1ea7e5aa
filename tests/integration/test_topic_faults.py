"""What happens to the topic of reports, or to clocks, while a worker runs: told at once, counted right."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
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
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, free_ports
from tests.integration.test_poison import metric, send
from tests.integration.workers import System, run_thaw
from tests.support.deadline import END_SECONDS, until
from tests.support.telling import Tells

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


@pytest.mark.parametrize(("days", "told_as"), [(3, "ahead of"), (-1, "behind")], ids=["three ahead", "one behind"])
def test_a_worker_whose_clock_is_days_off_counts_what_came_in_time_and_says_so(
    system: System, tells: Tells, days: int, told_as: str
) -> None:
    first, second = system.reports(500), system.reports(500, seed=2)
    system.produce(first.messages(8))
    [port] = free_ports(1)
    with system.worker(port=port, command=(*OTHER_CLOCK, str(days * DAY_SECONDS))) as worker:
        system.wait_for_tally(first.tally(), worker)
        # A record that comes after the worker has asked for the end of its partition proves it.
        until(lambda: metric(port, "thaw_worker_topic_faults") == 0 and says(worker, "assigned")(), 60, "a first look")

        def told() -> bool:
            system.produce(second.messages(8))
            return says(worker, f"{told_as} the broker's")()

        tells.begin()
        tells.seen("A worker's clock differs", "the worker's log", told, poll_seconds=1)
        assert metric(port, "thaw_worker_clock_offset_seconds") == pytest.approx(days * DAY_SECONDS, abs=60)
        system.wait_for_tally(first.tally() + second.tally(), worker)
        until(lambda: system.store.estimates.read(system.survey.id, system.window_ms), 60, "an estimate")
    assert system.store.log.counters(system.survey.id).expired == 0


def test_unread_records_that_are_deleted_are_told_at_once(system: System, admin: AdminClient, tells: Tells) -> None:
    reports = system.reports(400)
    topic = system.settings.reports_topic
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)
        worker.terminate(END_SECONDS)
    lost = system.reports(400, seed=2).messages(8, limit_bytes=1)
    system.produce(lost)
    ends = {partition: len(values) + 1 for partition, values in lost.items()}
    places = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for future in admin.delete_records(places).values():
        future.result(END_SECONDS)
    with system.worker(port=port) as worker:
        # Without a new record.
        tells.log("Unread records deleted", worker, "were deleted unread and are not counted", after="assigned")
        gone = sum(map(len, lost.values()))
        until(lambda: metric(port, "thaw_worker_deleted_unread_records_total") == gone, 30, f"{gone} records counted")
        more = system.reports(300, seed=3)
        system.produce(more.messages(8))
        system.wait_for_tally(reports.tally() + more.tally(), worker)
        assert metric(port, "thaw_worker_deleted_unread_records_total") == gone, "each is told once"


def test_create_time_more_partitions_and_a_topic_made_again(system: System, admin: AdminClient, tells: Tells) -> None:
    reports = system.reports(500)
    topic = system.settings.reports_topic
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(END_SECONDS)
        tells.begin()
        tells.log("CreateTime on the topic", worker, "message.timestamp.type CreateTime")
        until(lambda: metric(port, "thaw_worker_topic_faults") == 1, 30, "the fault as a metric")

        admin.create_partitions([NewPartitions(topic, 16)])[topic].result(END_SECONDS)
        tells.begin()
        tells.log("Partitions added", worker, "has 16 partitions now")
        assert worker.wait(END_SECONDS)
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
        admin.delete_topics([topic])[topic].result(END_SECONDS)
        tells.begin()
        tells.log("The topic of reports deleted", worker, "is gone; create it with `thaw topics create`")

        def again() -> bool:
            system.create_topics()
            return True

        until(again, 30, "the topic again", poll_seconds=1)
        assert worker.wait(END_SECONDS)
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


def test_two_clusters_do_not_share_a_prefix(system: System, other_kafka: ApacheKafka) -> None:
    topic, reports = system.settings.reports_topic, system.reports(1_000)
    key = system.store.sources.key(topic)
    with system.worker() as worker:
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)
        worker.terminate(END_SECONDS)
    other = replace(system.settings, kafka=other_kafka.address)
    Topics(other).create(wanted(other, [system.survey]))
    ids = [
        AdminClient(librdkafka_options(settings)).list_topics(timeout=END_SECONDS).cluster_id
        for settings in (system.settings, other)
    ]
    for command, danger in (
        (["worker"], "both would be added together"),
        (["rebuild", "colour", "--replace"], "counting again from there would remove them all"),
    ):
        refused = run_thaw(other, *command, THAW_WORKER_PORT="0")
        assert refused.returncode == 1
        said = (
            f"counts and offsets of Kafka cluster {ids[0]} under THAW_PREFIX {other.prefix!r}, and THAW_KAFKA is "
            f"cluster {ids[1]}; {danger}: set another THAW_PREFIX, or, if that cluster is gone for good, delete the "
            f"key {key}"
        )
        assert said in refused.stderr
    assert system.tally() == reports.tally()
    # What says whose counts they are may be damaged too: the next worker makes it again.
    with redis.Redis.from_url(system.settings.redis) as client:
        client.delete(key)
        client.lpush(key, "of a wrong type")
    more = system.reports(500, seed=2)
    with system.worker() as worker:
        system.produce(more.messages(8))
        system.wait_for_tally(reports.tally() + more.tally(), worker)
    noted = system.store.sources.noted(topic)
    assert noted is not None
    assert noted.cluster_id == ids[0]
