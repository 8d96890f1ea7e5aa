"""Messages from the collector to Kafka: estimates and dead letters. Blocks until the brokers have them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.connections import librdkafka_options
from streams.kafka.messages import MessageTooLargeError, Outgoing, PublishError
from streams.logs import StateLog
from streams.settings import Settings

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


class Publisher:
    """Sends messages and waits for their acknowledgement. Connects at the first message; safe for several threads."""

    def __init__(self, settings: Settings) -> None:
        self._options: dict[str, Any] = librdkafka_options(settings) | {
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.max.bytes": 8 << 20,
            # No limit here: the caller decides when to stop waiting.
            "message.timeout.ms": 0,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        self._producer: Producer | None = None
        self._state = StateLog(logger, "Kafka (for estimates and dead letters)")

    def send(
        self, messages: Sequence[Outgoing], *, wait_seconds: float, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when the brokers have all messages.

        Raises:
            PublishError: they have not within `wait_seconds`, or `stopping` came true, or they refuse a message.
            MessageTooLargeError: a message is larger than allowed, or was sent together with one that is.
        """
        if not messages:
            return
        if self._producer is None:
            self._producer = Producer(self._options)
        producer = self._producer
        # Another thread that polls may run our callbacks: appending is one step, counting down would be two.
        outcomes: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            outcomes.append(error)

        for message in messages:
            while True:
                try:
                    producer.produce(
                        message.topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(_POLL_SECONDS)
                    if stopping():
                        raise PublishError("stopped while the queue to Kafka was full") from None
                except KafkaException as error:
                    raise _refusal(error.args[0], f"{message.topic} refused a message: {error}") from error
        tries = max(1, round(wait_seconds / _POLL_SECONDS))
        while waiting := len(messages) - len(outcomes):
            producer.poll(_POLL_SECONDS)
            tries -= 1
            if len(outcomes) == len(messages):
                break
            if stopping():
                raise PublishError(f"stopped before {waiting} of {len(messages)} messages were acknowledged")
            if tries <= 0:
                why = f"{waiting} of {len(messages)} messages were not acknowledged in {wait_seconds:g} s"
                self._state.down(why)
                raise PublishError(why)
        refused = [error for error in outcomes if error is not None]
        if refused:
            raise _refusal(refused[0], f"{len(refused)} of {len(messages)} messages were refused: {refused[0].str()}")
        self._state.up()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for messages on their way."""
        if self._producer is not None:
            self._producer.flush(seconds)


def _refusal(error: KafkaError, text: str) -> PublishError:
    too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    return MessageTooLargeError(text) if too_large else PublishError(text)
