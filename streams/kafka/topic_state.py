"""What the brokers say of a topic at one moment: ids, partitions, offsets, settings, the time of its newest record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # no __all__

from producers.clock import Clock, system_clock
from streams.connections import librdkafka_options
from streams.kafka.errors import answer_of
from streams.kafka.topics import TopicError
from streams.settings import Settings

ANSWER_SECONDS: Final = 5.0
_NOT_TOLD: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
)


@dataclass(frozen=True)
class TopicState:
    """A topic as the brokers describe it."""

    cluster_id: str
    topic_id: str
    """New when a topic is deleted and made again; empty where brokers give none."""
    partitions: int
    """0 if there is no such topic."""
    log_append_time: bool | None
    """Whether the broker's clock stamps the records; None if it is not told to this user (DescribeConfigs)."""
    first_offsets: Mapping[int, int]
    """By partition: the first record that the broker still has."""
    ends: Mapping[int, int]
    """By partition: the end of what can be read."""
    newest_ms: int
    """The newest timestamp of a record, 0 if there is none."""
    asked_ms: int
    """When the ends were asked for, by the clock here."""


class TopicWatch:
    """Asks for the state of a topic."""

    def __init__(self, settings: Settings, topic: str, *, clock: Clock = system_clock) -> None:
        self._admin = AdminClient(librdkafka_options(settings))
        self._topic, self._clock = topic, clock

    def look(self) -> TopicState | None:
        """Return the state; None from librdkafka's mock cluster, which answers none of these requests.

        Raises:
            TopicError: the brokers did not answer, or not all of it.
        """
        try:
            found = self._admin.list_topics(timeout=ANSWER_SECONDS)
            cluster_id = found.cluster_id or ""
            if cluster_id.startswith("mockCluster"):
                return None
            topic = found.topics.get(self._topic)
            if topic is None or topic.error is not None:
                return TopicState(cluster_id, "", 0, True, {}, {}, 0, self._clock())
            options = {"request_timeout": ANSWER_SECONDS}
            names = TopicCollection([self._topic])
            described = _permitted(self._admin.describe_topics(names, **options)[self._topic])
            resource = ConfigResource(ResourceType.TOPIC, self._topic)
            settings = _permitted(self._admin.describe_configs([resource], **options)[resource])
            asked_ms = self._clock()
            ends = self._offsets(topic.partitions, OffsetSpec.latest)
            firsts = self._offsets(topic.partitions, OffsetSpec.earliest)
            newest = self._offsets(topic.partitions, OffsetSpec.max_timestamp, needed=False)
        except KafkaException as error:
            raise TopicError(f"{self._topic}: the brokers did not tell its state: {error.args[0].str()}") from error
        return TopicState(
            cluster_id=cluster_id,
            topic_id="" if described is None else str(described.topic_id),
            partitions=len(topic.partitions),
            log_append_time=settings and settings["message.timestamp.type"].value == "LogAppendTime",
            first_offsets={partition: info.offset for partition, info in firsts.items()},
            ends={partition: info.offset for partition, info in ends.items()},
            newest_ms=max([0, *(info.timestamp for info in newest.values() if info is not None)]),
            asked_ms=asked_ms,
        )

    def _offsets(
        self, partitions: Mapping[int, Any], spec: Callable[[], Any], *, needed: bool = True
    ) -> dict[int, Any]:
        asked = {TopicPartition(self._topic, partition): spec() for partition in partitions}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
        )
        result = _result if needed else _permitted
        return {place.partition: result(future) for place, future in futures.items()}


def _result(future: Any) -> Any:
    return answer_of(future, 2 * ANSWER_SECONDS)


def _permitted(future: Any) -> Any:
    """Return the answer; None if the broker is too old for the question, or does not answer it to this user."""
    try:
        return _result(future)
    except KafkaException as error:
        if error.args[0].code() in _NOT_TOLD:
            return None
        raise
