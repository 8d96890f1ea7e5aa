"""The three topics: what they must look like, what is there, and the steps from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from producers.survey.survey import Survey
from streams.failures import OutsideError
from streams.kafka.errors import DENIED, Troubles, answer_of
from streams.kafka.messages import LARGEST_BYTES
from streams.settings import Settings
from streams.settings_topics import tier_topic

DAY_MS = 86_400_000
MAX_MESSAGE_BYTES = 2 << 20
"""Messages hold up to 1 MiB of frames, and the broker counts its own overhead too."""
_TIMEOUT_SECONDS = 15.0
CONTACT_SECONDS = 7.0
"""How long the first question may wait for any broker. Longer: a mistyped address is told later; shorter: a
broker that has just started looks away."""

Step = Literal["create", "keep", "differs", "unknown"]


@dataclass(frozen=True)
class TopicSpec:
    """What a topic must look like. `settings` are the broker's own names."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]
    as_many: bool = True
    """Whether another number of partitions is a difference."""


@dataclass(frozen=True)
class Finding:
    """One topic compared with what it must look like."""

    spec: TopicSpec
    step: Step
    differences: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return it as one line."""
        name = self.spec.name
        if self.step == "create":
            options = ", ".join(f"{key}={value}" for key, value in self.spec.settings.items())
            return f"{name}: missing; to be created with {self.spec.partitions} partitions, {options}"
        if self.step == "differs":
            return f"{name}: exists, but {'; '.join(self.differences)}"
        if self.step == "unknown":
            return f"{name}: exists; its settings cannot be read from this broker and are not checked"
        return f"{name}: exists as required"


class TopicError(OutsideError):
    """Topics cannot be read or created; the message says why and what to do."""


def tier_topics(settings: Settings, surveys: Iterable[Survey]) -> list[str]:
    """Return the topics of the estimates for tiers: one for each name, whichever survey it is of."""
    names = {tier.tier.name for survey in surveys for tier in survey.tier_surveys if tier.tier is not None}
    return [tier_topic(settings.estimates_topic, name) for name in sorted(names)]


def wanted(settings: Settings, surveys: Iterable[Survey]) -> list[TopicSpec]:
    """Return what must be there for these surveys.

    Reports are kept as long as the longest survey counts late ones, plus a day: a worker may be down for that long
    without losing reports. The broker's clock stamps them: it decides whether a report is late. Dead letters are kept
    as long as reports. Of estimates the last of every window is kept, and as long as reports.
    """
    known = list(surveys)
    retention_ms = max((survey.windows.size_ms + survey.retention_ms for survey in known), default=0) + DAY_MS
    return [
        TopicSpec(
            settings.reports_topic,
            settings.partitions,
            settings.replication,
            {
                "cleanup.policy": "delete",
                "message.timestamp.type": "LogAppendTime",
                "retention.ms": str(retention_ms),
                "max.message.bytes": str(MAX_MESSAGE_BYTES),
                # As the producer sent it. With any other setting the broker decompresses a batch as a whole, and one of
                # 32 kB that holds a gigabyte would end it; to check a batch it only reads through it.
                "compression.type": "producer",
            },
        ),
        *(
            TopicSpec(
                name,
                settings.partitions,
                settings.replication,
                {
                    "cleanup.policy": "compact,delete",
                    "retention.ms": str(retention_ms),
                    "max.message.bytes": str(LARGEST_BYTES),
                },
                # Made with as many as the topic of reports, which may have got more since.
                as_many=False,
            )
            for name in [settings.estimates_topic, *tier_topics(settings, known)]
        ),
        TopicSpec(
            settings.dead_letters_topic,
            1,
            settings.replication,
            {
                "cleanup.policy": "delete",
                "retention.ms": str(retention_ms),
                "max.message.bytes": str(LARGEST_BYTES),
            },
        ),
    ]


class Topics:
    """Compares topics and creates missing ones, on any broker that librdkafka supports."""

    def __init__(self, settings: Settings, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._troubles = Troubles(settings)
        self._admin = self._troubles.client(AdminClient)
        self._timeout_seconds = timeout_seconds
        self._is_embedded = False

    def partitions(self, *needed: str) -> dict[str, int]:
        """Return the number of partitions of every topic that this user may see.

        Args:
            needed: topics that the caller needs: if one is not listed, the broker is asked whether it exists.

        Raises:
            KafkaDownError: no broker answers.
            KafkaDeniedError: the broker refuses the password, or this user may not see a needed topic.
        """
        found = self._troubles.asked(
            self._admin,
            lambda seconds: self._admin.list_topics(timeout=seconds),
            min(CONTACT_SECONDS, self._timeout_seconds),
        )
        # librdkafka's mock cluster neither creates nor describes topics, and does not report it: requests time out.
        self._is_embedded = (found.cluster_id or "").startswith("mockCluster")
        partitions = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}
        self._refuse_hidden([name for name in needed if name not in partitions])
        return partitions

    def _refuse_hidden(self, names: Sequence[str]) -> None:
        """Raise KafkaDeniedError if one of these topics is not listed because this user may not see it."""
        if not names or self._is_embedded:
            return
        wanted_topics = TopicCollection(list(names))
        for name, future in self._admin.describe_topics(wanted_topics, request_timeout=self._timeout_seconds).items():
            try:
                answer_of(future, 2 * self._timeout_seconds)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._troubles.explained(error.args[0], f"describe the topic {name}") from error

    def check_rights(self, *, reads: Sequence[str] = (), writes: Sequence[str] = (), group: str = "") -> None:
        """Ask the broker whether this user may read and write these topics and join this group.

        Raises:
            KafkaDeniedError: a right is missing; the message names it.
        """
        if self._is_embedded:
            return
        needed = [(name, AclOperation.READ) for name in reads] + [(name, AclOperation.WRITE) for name in writes]
        asked = self._admin.describe_topics(
            TopicCollection(sorted({name for name, _ in needed})),
            include_authorized_operations=True,
            request_timeout=self._timeout_seconds,
        )
        for name, operation in needed:
            self._require(asked[name], operation, f"topic {name}")
        if group:
            self._check_group(group, needed[0][0])

    def _check_group(self, group: str, topic: str) -> None:
        """Ask for an offset of the group, as a member of it would.

        DescribeConsumerGroups of an admin client would tell the right itself, but aborts the whole process in
        librdkafka 2.16 when the connection to the group's coordinator breaks; so does every request of an admin client
        to a coordinator.
        """
        consumer = self._troubles.client(Consumer, **{"group.id": group, "enable.auto.commit": False})
        try:
            [found] = consumer.committed([TopicPartition(topic, 0)], timeout=self._timeout_seconds)
            if found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            raise self._troubles.explained(error.args[0], f"read the consumer group {group}") from error
        finally:
            consumer.close()

    def _require(self, future: Any, operation: AclOperation, what: str) -> None:
        action = f"{operation.name.lower()} the {what}"
        try:
            allowed = answer_of(future, 2 * self._timeout_seconds).authorized_operations
        except KafkaException as error:
            raise self._troubles.explained(error.args[0], action) from error
        # None: the broker has no list of rights.
        if allowed is not None and operation not in allowed:
            raise self._troubles.denied(action)

    def compare(self, specs: Sequence[TopicSpec]) -> list[Finding]:
        """Compare what is there with what must be."""
        partitions = self.partitions(*(spec.name for spec in specs))
        findings = []
        for spec in specs:
            if spec.name not in partitions:
                findings.append(Finding(spec, "create"))
                continue
            differences = []
            if spec.as_many and partitions[spec.name] != spec.partitions:
                differences.append(f"has {partitions[spec.name]} partitions instead of {spec.partitions}")
            actual = self._settings_of(spec.name)
            if actual is not None:
                differences += [
                    f"{key} is {actual.get(key)} instead of {value}"
                    for key, value in spec.settings.items()
                    if not _same(actual.get(key), value)
                ]
            if differences:
                findings.append(Finding(spec, "differs", tuple(differences)))
            else:
                findings.append(Finding(spec, "keep" if actual is not None else "unknown"))
        return findings

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create these topics; one that was created in the meantime is accepted.

        Raises:
            TopicError: the broker refuses, or cannot create topics at all.
        """
        if not specs:
            return
        if self._is_embedded:
            names = ", ".join(spec.name for spec in specs)
            raise TopicError(f"this broker cannot create topics on request: {names}; create them where it is started")
        futures = self._admin.create_topics(
            [
                NewTopic(
                    spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=spec.replication,
                    config=dict(spec.settings),
                )
                for spec in specs
            ],
            request_timeout=self._timeout_seconds,
        )
        for name, future in futures.items():
            try:
                answer_of(future, 2 * self._timeout_seconds)
            except KafkaException as error:
                if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if _code(error) in DENIED:
                    raise self._troubles.explained(error.args[0], f"create the topic {name}") from error
                raise TopicError(f"{name}: the broker refused to create it: {_text(error)}") from error

    def delete(self, name: str) -> None:
        """Delete a topic.

        Raises:
            KafkaDeniedError: this user may not.
            TopicError: the broker refuses.
        """
        (future,) = self._admin.delete_topics([name], request_timeout=self._timeout_seconds).values()
        try:
            future.result(timeout=2 * self._timeout_seconds)
        except KafkaException as error:
            if _code(error) in DENIED:
                raise self._troubles.explained(error.args[0], f"delete the topic {name}") from error
            raise TopicError(f"{name}: the broker refused to delete it: {_text(error)}") from error

    def _settings_of(self, name: str) -> dict[str, str] | None:
        if self._is_embedded:
            return None
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            future = self._admin.describe_configs([resource], request_timeout=self._timeout_seconds)[resource]
            return {key: entry.value for key, entry in answer_of(future, 2 * self._timeout_seconds).items()}
        except KafkaException as error:
            if _code(error) in DENIED:
                raise self._troubles.explained(error.args[0], f"describe the settings of the topic {name}") from error
            raise TopicError(f"{name}: its settings cannot be read: {_text(error)}") from error


def _same(actual: str | None, expected: str) -> bool:
    # Lists such as cleanup.policy have no order.
    return actual is not None and sorted(actual.split(",")) == sorted(expected.split(","))


def _code(error: KafkaException) -> Any:
    return error.args[0].code()


def _text(error: KafkaException) -> str:
    return str(error.args[0].str())
