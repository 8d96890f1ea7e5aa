"""Reports through a broker: a topic of the audit's own, deleted afterwards, and what was in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from producers.survey.survey import Survey
from streams.connections import kafka_python_options
from streams.kafka.reader import TopicReader
from streams.kafka.topics import Topics, wanted
from streams.settings import Settings


@contextmanager
def own_topic(settings: Settings, survey: Survey) -> Iterator[str]:
    """Create a topic that looks like the reports topic, and delete it afterwards.

    Workers do not read it: an audit must not change what is counted.

    Raises:
        KafkaDownError, KafkaDeniedError, TopicError: the broker does not answer, or refuses.
    """
    topics = Topics(settings)
    spec = replace(wanted(settings, [survey])[0], name=settings.topic(f"thaw.audit.{secrets.token_hex(6)}.v1"))
    topics.partitions()
    topics.create([spec])
    try:
        yield spec.name
    finally:
        topics.delete(spec.name)


def device_options(settings: Settings) -> dict[str, object]:
    """Return the connection of a device as options of kafka-python, without the brokers."""
    options = kafka_python_options(settings)
    del options["bootstrap_servers"]
    return options


def messages(settings: Settings, topic: str) -> list[bytes]:
    """Return all messages of a topic."""
    with TopicReader(settings, topic) as reader:
        return [
            record.value for batches in reader.read() for batch in batches for record in batch.records if record.value
        ]
