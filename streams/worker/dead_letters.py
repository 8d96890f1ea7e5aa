"""Sends dead letters: refused frames with a reason and their original bytes.

A dead letter must not hold more than the frame did: it has no key, and headers only for the reason and the place.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from streams.kafka.messages import Outgoing, PublishError
from streams.kafka.publisher import Publisher
from streams.metrics import WorkerMetrics
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired

logger = logging.getLogger(__name__)

REASON_HEADER = "dlq-reason"
OFFSET_HEADER = "dlq-offset"

SEND_AT_ONCE = 5_000
"""Dead letters handed to the producer before waiting for it. More: a flood of tiny bad frames takes more memory."""


def to_message(topic: str, letter: DeadLetter) -> Outgoing:
    """Return the message for the dead-letter topic."""
    place = f"{letter.topic}[{letter.partition}]@{letter.offset}"
    return Outgoing(
        topic,
        letter.frame,
        headers=((REASON_HEADER, letter.reason.encode()), (OFFSET_HEADER, place.encode())),
    )


class DeadLetterSender:
    """Sends dead letters and returns when the brokers have them."""

    def __init__(
        self,
        publisher: Publisher,
        topic: str,
        metrics: WorkerMetrics,
        *,
        patience_seconds: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._publisher, self._topic, self._metrics = publisher, topic, metrics
        self._patience_seconds, self._stopping = patience_seconds, stopping

    def __call__(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Send them all.

        Raises:
            RestartRequired: the brokers do not take them; their batch must not be acknowledged.
        """
        for start in range(0, len(dead_letters), SEND_AT_ONCE):
            self._send(dead_letters[start : start + SEND_AT_ONCE])
        firsts = {letter.reason: letter for letter in reversed(dead_letters)}
        for reason, count in Counter(letter.reason for letter in dead_letters).items():
            self._metrics.dead_letters.labels(reason).inc(count)
            first = firsts[reason]
            # One line for a whole flood: bad frames must not be able to fill the disk with log lines.
            logger.warning(
                "%s[%d]@%d: frame refused (%s)%s; sent to %s, see `thaw deadletters`",
                first.topic,
                first.partition,
                first.offset,
                reason,
                f" with {count - 1} more" if count > 1 else "",
                self._topic,
            )

    def _send(self, dead_letters: Sequence[DeadLetter]) -> None:
        try:
            self._publisher.send(
                [to_message(self._topic, letter) for letter in dead_letters],
                wait_seconds=self._patience_seconds,
                stopping=self._stopping,
            )
        except PublishError as error:
            raise RestartRequired(f"dead letters were not sent, the batch stays in Kafka: {error}") from error
