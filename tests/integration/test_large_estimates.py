"""Estimates of thousands of values on a real broker: published whole, and none of them holds up the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from producers.clock import system_clock
from producers.survey.survey import parse_survey
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.kafka.messages import LARGEST_BYTES, MessageTooLargeError, Outgoing
from streams.kafka.publisher import Publisher
from streams.kafka.topics import Topics, wanted
from streams.local.process import free_ports
from streams.windows.record import decode_estimate
from tests.integration.test_poison import metric
from tests.integration.workers import System, run_thaw
from tests.support.deadline import until
from tests.support.surveys import survey_text
from tests.support.telling import Tells

pytestmark = pytest.mark.real

VALUES = 10_000
DEFAULT_BYTES = 1_048_588
"""What a broker takes of a topic that does not say."""
SMALL_BYTES = 10_000
"""More than an estimate of three values, less than one of 10,000, which compresses well where most were never told."""


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    """Real services, with a topic of estimates that takes small ones."""
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    specs = wanted(made.settings, [made.survey])
    small = {"max.message.bytes": str(SMALL_BYTES)}
    is_small = made.settings.estimates_topic
    Topics(made.settings).create(
        [replace(spec, settings={**spec.settings, **small}) if spec.name == is_small else spec for spec in specs]
    )
    return made


def published(system: System, key: bytes, ask: Callable[[], None] = lambda: None) -> bytes:
    """Return the first estimate that is published with a key, and `ask` for it again and again."""
    consumer = Consumer(librdkafka_options(system.settings) | {"group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(system.settings.estimates_topic, partition, 0) for partition in range(8)])

    def found() -> bytes | None:
        ask()
        message = consumer.poll(0.2)
        return message.value() if message is not None and message.key() == key else None

    try:
        return until(found, 60, f"the estimate {key.decode()}", poll_seconds=0)
    finally:
        consumer.close()


def take_all(system: System) -> None:
    """Set the largest message of the topic of estimates as it should be."""
    entry = ConfigEntry("max.message.bytes", str(LARGEST_BYTES), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, system.settings.estimates_topic, incremental_configs=[entry])
    admin = AdminClient(librdkafka_options(system.settings))
    [done] = admin.incremental_alter_configs([topic]).values()
    done.result(30)


def test_an_estimate_of_10000_values_is_published_and_one_too_large_holds_up_no_other(
    system: System, tells: Tells
) -> None:
    names = ", ".join(f'"value {number}"' for number in range(VALUES))
    text = survey_text(name='name = "large"', values=f"values = [{names}]", retention='retention = "30m"')
    (system.folder / "large.toml").write_text(text)
    large = parse_survey(text, "large.toml")
    rng = np.random.default_rng(7)
    columns = (
        rng.integers(0, 256, size=(2_000, 16), dtype=np.uint8),
        rng.integers(0, VALUES, size=2_000).astype(np.uint16),
        rng.integers(0, large.mechanism.rungs, size=2_000).astype(np.uint8),
    )
    topic, small = system.settings.estimates_topic, f"{system.survey.id}:{system.window_ms}".encode()
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        tells.begin()
        system.produce(frames_of(large, system.window_ms, system_clock(), *columns, partitions=8))
        tells.log("An estimate larger than its topic takes", worker, f"{topic} takes no message of")
        system.produce(system.reports(1_000).messages(8))
        assert decode_estimate(published(system, small)).survey == system.survey.id
        until(lambda: not system.store.queue.entries(), 60, "nothing to be recomputed for ever")
        assert metric(port, "thaw_worker_estimates_too_large_total") >= 1
        stored = system.store.estimates.read(large.id, system.window_ms)
        assert stored is not None
        assert len(stored) > DEFAULT_BYTES
        differing = run_thaw(system.settings, "topics", "create")
        assert f"max.message.bytes is {SMALL_BYTES} instead of {LARGEST_BYTES}" in differing.stdout
        take_all(system)
        window, key = (large.id, system.window_ms), f"{large.id}:{system.window_ms}".encode()
        # The broker has the new limit some moments after it said so.
        record = decode_estimate(published(system, key, lambda: system.store.queue.put([window])))
        assert (record.users, len(record.values)) == (2_000, VALUES)


@pytest.fixture
def publisher(system: System) -> Iterator[Publisher]:
    made = Publisher(system.settings)
    yield made
    made.close(5)


@pytest.mark.parametrize(
    "size", [2 * SMALL_BYTES, LARGEST_BYTES], ids=["than the topic takes", "than the client takes"]
)
def test_all_others_are_with_the_broker_when_one_is_too_large(system: System, publisher: Publisher, size: int) -> None:
    noise = np.random.default_rng(1).bytes
    topic = system.settings.estimates_topic
    fitting = [Outgoing(topic, noise(100), b"%d" % number) for number in range(20)]
    large = Outgoing(topic, noise(size), b"large")
    with pytest.raises(MessageTooLargeError) as error:
        publisher.send([*fitting[:10], large, *fitting[10:]], wait_seconds=30)
    # A broker refuses what came in one request with it.
    assert large in error.value.messages
    for message in error.value.messages:
        if message is not large:
            publisher.send([message], wait_seconds=30)
    assert {message.key() for message in system.read(topic, 20)} == {message.key for message in fitting}
