"""Moving a live pipeline to a topic of reports with more partitions: what the old topic still holds, and who reads it.

Partitions are not added to a topic that is in use: reports of one shard would then lie in two partitions of it, in no
order, and the offsets below which everything is counted would mean nothing. Workers read both topics until nothing
comes to the old one any more; what arrives twice is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streams.kafka.errors import DENIED, Troubles, answer_of
from streams.kafka.membership import instance_of
from streams.kafka.topic_state import TopicState, TopicWatch
from streams.kafka.topics import TopicError
from streams.settings import Settings
from streams.settings_topics import REPORTS

_ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Draining:
    """A topic that is being drained, at one moment."""

    topic: str
    state: TopicState
    waiting: int
    """Records that the workers have not acknowledged."""
    readers: tuple[str, ...]
    """Members of the group that have partitions of it."""

    @property
    def quiet_ms(self) -> int:
        """How long ago the last record came, by the clock here; since the epoch if none ever did."""
        return max(0, self.state.asked_ms - self.state.newest_ms)


def name_for(partitions: int) -> str:
    """Return the name, without prefix, of a topic of reports with so many partitions.

    >>> name_for(16)
    'thaw.reports.v1.p16'
    """
    return f"{REPORTS}.p{partitions}"


class Migration:
    """Asks the brokers about the topic that is being drained."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._troubles = settings, Troubles(settings)
        self._admin = self._troubles.client(AdminClient)

    def look(self, topic: str) -> Draining | None:
        """Return what is left of a topic; None if there is no such topic.

        Raises:
            TopicError, KafkaDownError, KafkaDeniedError: the brokers do not tell.
        """
        self._troubles.asked(
            self._admin, lambda seconds: self._admin.list_topics(topic, timeout=seconds), _ANSWER_SECONDS
        )
        state = TopicWatch(self._settings, topic).look()
        if state is None:
            raise TopicError("this broker is the embedded one, which has no consumer groups to ask")
        if not state.partitions:
            return None
        group = f"{self._settings.prefix}{self._settings.group}"
        try:
            committed = self._committed(group, topic)
            readers = self._readers(group, topic)
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if failure.code() in DENIED:
                raise self._troubles.explained(failure, f"describe the consumer group {group}") from error
            raise TopicError(f"the consumer group {group} cannot be described: {failure.str()}") from error
        waiting = sum(
            end - max(committed.get(partition, 0), state.first_offsets.get(partition, 0))
            for partition, end in state.ends.items()
        )
        return Draining(topic, state, waiting, readers)

    def _committed(self, group: str, topic: str) -> dict[int, int]:
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=_ANSWER_SECONDS
        )
        found = answer_of(asked[group], 2 * _ANSWER_SECONDS).topic_partitions
        return {place.partition: place.offset for place in found if place.topic == topic and place.offset >= 0}

    def _readers(self, group: str, topic: str) -> tuple[str, ...]:
        asked = self._admin.describe_consumer_groups([group], request_timeout=_ANSWER_SECONDS)
        members = answer_of(asked[group], 2 * _ANSWER_SECONDS).members
        return tuple(
            sorted(
                {
                    instance_of(member.group_instance_id or member.member_id)
                    for member in members
                    if any(place.topic == topic for place in member.assignment.topic_partitions)
                }
            )
        )
