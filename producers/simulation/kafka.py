"""The publisher of a simulated fleet: kafka-python's producer, tuned for many large messages."""

from __future__ import annotations

import logging
import time
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from producers.simulation.run import Pending
from producers.wire.layout import MAX_MESSAGE_BYTES, SCHEMA_HEADER

log = logging.getLogger(__name__)

# A fleet sends whole frames, and a short wait fills requests; a real device sends one report and must not wait.
LINGER_MS = 20
BATCH_BYTES = 256 << 10
RETRY_SECONDS = 1.0


class KafkaPublisher:
    """Messages to the partitions of one topic, acknowledged by all replicas; no key, no header but the schema."""

    def __init__(self, topic: str, options: dict[str, Any]) -> None:
        self.topic = topic
        self._producer = KafkaProducer(
            acks="all",
            linger_ms=LINGER_MS,
            batch_size=BATCH_BYTES,
            max_request_size=MAX_MESSAGE_BYTES + (64 << 10),
            **options,
        )

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, from the broker's metadata; waits until the broker knows the topic."""
        while True:
            try:
                return len(self._producer.partitions_for(self.topic))
            except KafkaError as error:
                log.warning("no metadata of the topic %s from the broker (%s); asking again", self.topic, error)
                time.sleep(RETRY_SECONDS)

    def send(self, partition: int, message: bytes) -> Pending:
        """Hand over one message; the future finishes when the broker has it."""
        pending: Pending = self._producer.send(self.topic, value=message, partition=partition, headers=[SCHEMA_HEADER])
        return pending

    def close(self) -> None:
        """Wait for acknowledgements and disconnect."""
        self._producer.close(timeout=30)
