"""Messages to Kafka through kafka-python: an explicit partition, no key, no header but the schema."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from time import sleep
from typing import Any, TypeVar

from kafka import KafkaProducer
from kafka.errors import KafkaError

from producers.wire.layout import MAX_MESSAGE_BYTES, SCHEMA_HEADER
from producers.wire.transport import Message, TransportError

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_LAST_SECONDS = 30.0


class KafkaTransport:
    """Sends to one topic and waits until all in-sync replicas have it.

    The producer is not idempotent: Kafka would store a producer id beside every record, which links the reports of a
    device, and duplicates are counted once anyway. For the same reason every record is a batch of
    its own. Connects on first use; how many partitions the topic has it learns from the broker.

    Args:
        brokers: `HOST:PORT`, several separated by commas.
        topic: the reports topic.
        timeout_seconds: how long one attempt may take.
        attempts: how often to try before TransportError, with a growing pause in between; 0 tries without end. A
            device tries once: its outbox sends again later.
        sleeper: waits that many seconds.
        options: more settings of kafka-python's producer, such as TLS and SASL.
    """

    def __init__(
        self,
        brokers: str,
        topic: str = "thaw.reports.v1",
        *,
        timeout_seconds: float = 30.0,
        attempts: int = 1,
        sleeper: Callable[[float], None] = sleep,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self._timeout_seconds, self._attempts, self._sleeper = timeout_seconds, attempts, sleeper
        timeout_ms = int(timeout_seconds * 1000)
        named = [broker.strip() for broker in brokers.split(",") if broker.strip()]
        if not named or any(not broker.rpartition(":")[2].isdigit() for broker in named):
            raise ValueError(f"brokers must be HOST:PORT, several separated by commas; got {brokers!r}")
        self._settings: dict[str, Any] = {
            "bootstrap_servers": named,
            "acks": "all",
            "enable_idempotence": False,
            "batch_size": 0,
            "max_in_flight_requests_per_connection": 1,
            "max_request_size": MAX_MESSAGE_BYTES + (64 << 10),
            "max_block_ms": timeout_ms,
            "bootstrap_timeout_ms": timeout_ms,
            "request_timeout_ms": timeout_ms,
            "delivery_timeout_ms": timeout_ms + 1,
            "allow_auto_create_topics": False,
            **(options or {}),
        }
        self._producer: KafkaProducer | None = None
        self._away = False

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, from the broker's metadata, which the client keeps up to date.

        Raises:
            TransportError: the broker did not answer in time, or does not know the topic.
        """
        return self._attempt(lambda: len(self._connected().partitions_for(self.topic)))

    def send(self, messages: Sequence[Message]) -> None:
        """Return when the broker has all messages.

        Raises:
            TransportError: the broker did not acknowledge them in time.
        """
        self._attempt(lambda: self._send(messages))

    def _attempt(self, action: Callable[[], _Result]) -> _Result:
        """Return what an action on the broker returns, with as many attempts and pauses as the settings say."""
        attempt, pause_seconds = 0, BACKOFF_FIRST_SECONDS
        while True:
            try:
                result = action()
            except (KafkaError, OSError) as error:
                attempt += 1
                if not self._away:
                    log.warning("no acknowledgement from the broker (%s); reports stay in the outbox", _in_short(error))
                self._away = True
                if attempt == self._attempts:
                    raise TransportError(f"no acknowledgement from the broker ({_in_short(error)})") from error
                self._sleeper(pause_seconds)
                pause_seconds = min(2 * pause_seconds, BACKOFF_LAST_SECONDS)
                continue
            if self._away:
                log.info("the broker acknowledges again")
            self._away = False
            return result

    def close(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close(timeout=self._timeout_seconds)

    def _send(self, messages: Sequence[Message]) -> None:
        producer = self._connected()
        under_way = [
            producer.send(self.topic, value=message.value, partition=message.partition, headers=[SCHEMA_HEADER])
            for message in messages
        ]
        for future in under_way:
            future.get(timeout=self._timeout_seconds)

    def _connected(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = self._connect()
        return self._producer

    def _connect(self) -> KafkaProducer:
        """Build the producer once a broker accepts connections; from then on it reconnects by itself.

        kafka-python's constructor leaves sockets open when it finds no broker, and a device may try for days.
        """
        refusal: OSError | None = None
        for broker in self._settings["bootstrap_servers"]:
            host, _, port = broker.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=self._timeout_seconds).close()
            except OSError as error:
                refusal = error
                continue
            return KafkaProducer(**self._settings)
        assert refusal is not None
        raise refusal


def _in_short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]
