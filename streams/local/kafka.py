"""The three brokers of `--kafka`: Apache Kafka on this machine, the embedded one, and an external one."""

import base64
import contextlib
import logging
import os
import shutil
import string
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.folders import cache_folder, deploy_folder
from streams.local.embedded_kafka import parse_topic
from streams.local.process import Child, NotReady, ServiceError, ServiceMissing, wait_until_ready
from streams.local.service import START_SECONDS, STOP_SECONDS, Program, Service, StopOrder
from streams.urls import is_broker_list, masked

logger = logging.getLogger(__name__)

Kind = Literal["apache", "embedded", "external"]

_PROBE_SECONDS: Final = 0.5
_JVM_OPTIONS: Final = (
    "-Xms256m",
    "-Xmx1g",
    # Leaves no file in /tmp when the broker is killed.
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
_BRIEF_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a tool that ends at once: compiling thoroughly would take longer than it runs."""


class KafkaProbe:
    """Asks a broker for its metadata, as every client does first.

    Args:
        address: bootstrap servers.
        settings: further settings of librdkafka, for example for TLS and SASL.
    """

    def __init__(self, address: str, *, settings: Mapping[str, Any] | None = None) -> None:
        self._admin = AdminClient(
            {
                **(settings or {}),
                "bootstrap.servers": address,
                # Refused connections are expected here, and would otherwise be logged on stderr.
                "log_level": 0,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def __call__(self) -> bool:
        """Tell whether the broker answers and knows a controller, so that topics can be created."""
        try:
            metadata = self._admin.list_topics(timeout=_PROBE_SECONDS)
        except KafkaException:
            return False
        return bool(metadata.brokers) and metadata.controller_id >= 0


class KafkaService(Service):
    """A broker; `kind` says which of the three."""

    name = "kafka"
    order = StopOrder.KAFKA
    kind: ClassVar[Kind]


class ApacheKafka(Program, KafkaService):
    """One Apache Kafka node in KRaft mode, from jars that Maven resolved.

    `kill` and `start` keep port, cluster id and data. `terminate` lets the broker write its recovery point; the next
    start is faster then.

    Args:
        folder: where data, configuration and log go; a temporary folder if None.
        libs: folder with the jars; found by `kafka_libs` if None.
        port: the broker's port; a free one if None.
    """

    kind = "apache"
    jvm_options: ClassVar[tuple[str, ...]] = _JVM_OPTIONS

    def __init__(self, *, folder: Path | None = None, libs: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder=folder)
        self._libs = libs
        self._port = port

    def ports(self, count: int = 2) -> list[int]:
        """Return the broker's and the controller's port."""
        if not self._ports:
            broker, controller = super().ports(2)
            self._ports = [self._port or broker, controller]
        return self._ports[:count]

    def describe(self) -> str:
        """Return which Kafka it is."""
        return f"Apache Kafka {kafka_version(self._libs)}" if self._libs else "Apache Kafka"

    def _launch(self) -> Child:
        java, self._libs = kafka_runtime(self._libs)
        data = self.folder / "data"
        properties = self.folder / "server.properties"
        properties.write_text(self._properties(data))
        command = [java, *self.jvm_options, f"-Djava.io.tmpdir={self.folder}", "-cp", f"{self._libs}/*"]
        if not (data / "meta.properties").exists():
            self._format(command, properties)
        return Child(self.name, [*command, "kafka.Kafka", str(properties)], log=self.log)

    def _properties(self, data: Path) -> str:
        """Return the broker's configuration."""
        broker_port, controller_port = self.ports()
        template = string.Template((deploy_folder("kafka") / "server.properties").read_text())
        return template.substitute(broker_port=broker_port, controller_port=controller_port, data_folder=data)

    def _format(self, command: list[str], properties: Path) -> None:
        java, *options = command
        tool = [java, *_BRIEF_JVM_OPTIONS, *options, "kafka.tools.StorageTool", "format"]
        # `--cluster-id=` and not a word of its own: one id in 64 starts with a dash.
        formatting = Child(
            "kafka-storage",
            [*tool, f"--cluster-id={self._new_cluster_id()}", "-c", str(properties)],
            log=self.folder / "kafka-storage.log",
        )
        try:
            finished = formatting.wait(START_SECONDS)
        finally:
            formatting.kill()
        if not finished or formatting.returncode != 0:
            raise ServiceError(
                f"formatting Kafka's storage ended with status {formatting.returncode}; "
                f"the end of {formatting.log}:\n{formatting.tail()}"
            )

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def _wait_until_it_answers(self, child: Child) -> None:
        wait_until_ready(
            child, KafkaProbe(self.address), seconds=START_SECONDS, what=f"Kafka's metadata from {self.address}"
        )


class EmbeddedKafka(Program, KafkaService):
    """librdkafka's mock cluster in a process of its own; memory only, one consumer group member.

    It chooses its port itself, a new one at every start, and loses its data when it ends; `address` is known once
    it runs. Topics cannot be created through the protocol: name them here or call `create_topic`.

    Args:
        topics: number of partitions of each topic that exists from the start.
        folder: where the log goes; a temporary folder if None.
    """

    kind = "embedded"

    def __init__(self, *, topics: Mapping[str, int] | None = None, folder: Path | None = None) -> None:
        super().__init__(folder=folder)
        self.topics = dict(topics or {})
        self._address = ""

    @property
    def address(self) -> str:
        """`host:port` of the running broker."""
        self.child  # noqa: B018 - raises when there is none
        return self._address

    def describe(self) -> str:
        """Return which broker it is."""
        return "embedded Kafka (librdkafka's mock cluster; memory only, one worker)"

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic in the running broker.

        Raises:
            ValueError: the broker refuses, for example because the topic exists.
        """
        parse_topic(f"{name}:{partitions}")
        self.child.stdin.write(f"create {name} {partitions}\n".encode())
        self.child.stdin.flush()
        answer = self._read_line(self.child)
        if answer != "ok":
            raise ValueError(answer.removeprefix("error "))
        self.topics[name] = partitions

    def _launch(self) -> Child:
        arguments = [f"{name}:{partitions}" for name, partitions in self.topics.items()]
        return Child(
            self.name, [sys.executable, "-m", "streams.local.embedded_kafka", *arguments], log=self.log, piped=True
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        self._address = self._read_line(child).removeprefix("listening ")
        wait_until_ready(
            child, KafkaProbe(self._address), seconds=START_SECONDS, what=f"Kafka's metadata from {self._address}"
        )

    @staticmethod
    def _read_line(child: Child) -> str:
        line = child.stdout.readline().decode()
        if not line:
            # Its stdout is closed, so it ends; wait to be able to say how.
            child.wait(STOP_SECONDS)
            child.check()
        return line.rstrip("\n")


class ExternalKafka(KafkaService):
    """A broker that was not started here: `start` waits until it answers, `stop` does nothing to it.

    Args:
        address: its `host:port`, or several with commas between.
        settings: further settings of librdkafka, for example for TLS and SASL.
        seconds: how long to wait for its first answer.
    """

    kind = "external"

    def __init__(
        self, address: str, *, settings: Mapping[str, Any] | None = None, seconds: float = START_SECONDS
    ) -> None:
        self._address = address
        self._settings = settings
        self._seconds = seconds
        self._answered = False

    @property
    def address(self) -> str:
        """The bootstrap servers, as given."""
        return self._address

    def alive(self) -> bool:
        """Tell whether the broker has answered since `start`."""
        return self._answered

    def check(self) -> None:
        """Do nothing: there is no child process to check; clients report errors."""

    def stop(self, *, seconds: float = STOP_SECONDS) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Do nothing to the broker."""
        self._answered = False

    def start(self) -> Self:
        """Wait until the broker answers.

        Raises:
            NotReady: it did not.
        """
        probe = KafkaProbe(self.address, settings=self._settings)
        limit = time.monotonic() + self._seconds
        while not probe():
            if time.monotonic() >= limit:
                raise NotReady(
                    f"expected Kafka's metadata from {self.address} within {self._seconds:.0f} s; no answer came; "
                    "check the address, and the settings for TLS and SASL"
                )
        self._answered = True
        logger.info("external Kafka answers at %s", self.address)
        return self

    def kill(self) -> None:
        """Refuse: the broker was not started here.

        Raises:
            ServiceError: always.
        """
        raise ServiceError(f"the broker at {self.address} was not started here and will not be killed here")


def kafka_libs() -> Path | None:
    """Return the folder with Apache Kafka's jars, or None.

    `THAW_KAFKA_LIBS` alone if it is set; else `.cache/kafka/libs` of the checkout, or `~/.cache/thaw/kafka/libs`.
    """
    chosen = os.environ.get("THAW_KAFKA_LIBS")
    folder = Path(chosen) if chosen else cache_folder() / "kafka" / "libs"
    return folder if any(folder.glob("kafka_2*.jar")) else None


def kafka_version(libs: Path) -> str:
    """Return the version in the name of Kafka's main jar, for example 4.2.1."""
    jars = sorted(libs.glob("kafka_2*.jar"))
    return jars[0].stem.rpartition("-")[2] if jars else "(no jars)"


def kafka_runtime(libs: Path | None = None) -> tuple[str, Path]:
    """Return the `java` program and the folder of jars that an Apache Kafka needs.

    Raises:
        ServiceMissing: one of them is not there.
    """
    java = shutil.which("java")
    if java is None:
        raise ServiceMissing(
            "expected java on the PATH, 17 or newer; it is not there; install Debian's default-jre-headless"
        )
    found = libs or kafka_libs()
    if found is None:
        place = os.environ.get("THAW_KAFKA_LIBS") or cache_folder() / "kafka" / "libs"
        raise ServiceMissing(
            f"expected Apache Kafka's jars in {place}; they are not there; run `make setup`, or "
            f"mvn -f {deploy_folder('kafka') / 'pom.xml'} dependency:copy-dependencies -DoutputDirectory={place}"
        )
    return java, found


def find_kafka(
    choice: str,
    *,
    topics: Mapping[str, int] | None = None,
    folder: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> KafkaService:
    """Return the broker that `--kafka CHOICE` means, not started yet.

    Args:
        choice: `auto` (Apache Kafka where Java and the jars are, else embedded), `real`, `embedded` or `HOST:PORT`.
        topics: partitions of the topics that an embedded broker has from the start; others get theirs by
            `thaw topics create`.
        folder: where a broker of ours keeps data and log; a temporary folder if None.
        options: further settings of librdkafka for a broker of the user's own, for TLS and SASL.

    Raises:
        ServiceMissing: `real` was asked for and is not there.
        ValueError: the choice is none of the four.
    """
    match choice:
        case "auto":
            with contextlib.suppress(ServiceMissing):
                return ApacheKafka(folder=folder, libs=kafka_runtime()[1])
            return EmbeddedKafka(topics=topics, folder=folder)
        case "real":
            return ApacheKafka(folder=folder, libs=kafka_runtime()[1])
        case "embedded":
            return EmbeddedKafka(topics=topics, folder=folder)
    if not is_broker_list(choice):
        raise ValueError(
            f"--kafka: expected auto, real, embedded or HOST:PORT; got {masked(choice)!r}; "
            "for a broker elsewhere give its address with the port, for example 127.0.0.1:9092"
        )
    return ExternalKafka(choice, settings=options)
