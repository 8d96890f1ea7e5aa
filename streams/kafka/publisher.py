"""Messages from the collector to Kafka: estimates and dead letters. Blocks until the brokers have them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.connections import librdkafka_options
from streams.kafka.messages import LARGEST_BYTES, MessageTooLargeError, Outgoing, PublishError
from streams.logs import StateLog
from streams.settings import Settings

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05

_Outcome = tuple[Outgoing, KafkaError | None]


class Publisher:
    """Sends messages and waits for their acknowledgement. Connects at the first message; safe for several threads.

    While the brokers are away, unacknowledged messages stay in the producer's queue, and callers come again with newer
    ones. At most one message per topic and key is in the queue at a time: a caller with another one for that key is
    told that it was not acknowledged, as if it had been sent. Messages without a key have no such bound.
    """

    def __init__(self, settings: Settings) -> None:
        self._options: dict[str, Any] = librdkafka_options(settings) | {
            "enable.idempotence": True,
            "linger.ms": 5,
            # Of one that is not compressed; a topic counts what arrives. The JSON of estimates becomes a third.
            "message.max.bytes": LARGEST_BYTES,
            "compression.type": "zstd",
            # No limit here: the caller decides when to stop waiting.
            "message.timeout.ms": 0,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        self._producer: Producer | None = None
        self.is_up = True
        """Whether the brokers acknowledged the messages of the last call."""
        self._state = StateLog(logger, "Kafka (for estimates and dead letters)")
        self._pending: set[tuple[str, bytes]] = set()
        """Topics and keys of unacknowledged messages. Adding and discarding are one step each."""

    def send(
        self, messages: Sequence[Outgoing], *, wait_seconds: float, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when the brokers have all messages.

        Raises:
            MessageTooLargeError: some are too large; the brokers have all others.
            PublishError: they have not within `wait_seconds`, or `stopping` came true, or they refuse a message.
        """
        if not messages:
            return
        if self._producer is None:
            self._producer = Producer(self._options)
        limit = time.monotonic() + wait_seconds
        # Another thread that polls may run our callbacks: appending is one step, counting down would be two.
        outcomes: list[_Outcome] = []
        for message in messages:
            if message.key is None or (message.topic, message.key) not in self._pending:
                self._enqueue(self._producer, message, outcomes, limit, stopping)
        while waiting := len(messages) - len(outcomes):
            self._producer.poll(_POLL_SECONDS)
            if len(outcomes) == len(messages):
                break
            if stopping():
                raise PublishError(f"stopped before {waiting} of {len(messages)} messages were acknowledged")
            if time.monotonic() >= limit:
                why = (
                    f"{waiting} of {len(messages)} messages were not acknowledged in {wait_seconds:g} s; check that "
                    "the brokers run, and min.insync.replicas of them for each topic"
                )
                self._down(why)
                raise PublishError(why)
        refused = [(message, error) for message, error in outcomes if error is not None]
        if not refused:
            self.is_up = True
            self._state.up()
            return
        others = [error for _, error in refused if error.code() != KafkaError.MSG_SIZE_TOO_LARGE]
        [error, *_] = others or [error for _, error in refused]
        why = f"{len(refused)} of {len(messages)} messages were refused: {error.str()}"
        if others:
            raise PublishError(why)
        raise MessageTooLargeError(why, [message for message, _ in refused])

    def _down(self, why: str) -> None:
        self.is_up = False
        self._state.down(why)

    def _enqueue(
        self,
        producer: Producer,
        message: Outgoing,
        outcomes: list[_Outcome],
        limit: float,
        stopping: Callable[[], bool],
    ) -> None:
        place = None if message.key is None else (message.topic, message.key)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if place is not None:
                self._pending.discard(place)
            outcomes.append((message, error))

        while True:
            try:
                if place is not None:
                    self._pending.add(place)
                producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    on_delivery=delivered,
                )
                return
            except BufferError:
                self._forget(place)
                producer.poll(_POLL_SECONDS)
                if stopping():
                    raise PublishError("stopped while the queue to Kafka was full") from None
                if time.monotonic() >= limit:
                    self._down("the queue to Kafka is full")
                    raise PublishError("the queue to Kafka is full") from None
            except KafkaException as error:
                self._forget(place)
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise PublishError(f"{message.topic} refused a message: {error}") from error
                outcomes.append((message, error.args[0]))
                return

    def _forget(self, place: tuple[str, bytes] | None) -> None:
        if place is not None:
            self._pending.discard(place)

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for messages on their way."""
        if self._producer is not None:
            self._producer.flush(seconds)
