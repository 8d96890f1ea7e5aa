"""Dead letters: reports that cannot be right, kept with a reason and their original bytes, and nothing more.

A dead letter must never know more than the report did: no key, and headers only for the reason and the place.
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
"""Letters handed to the producer before it is waited for. More: a flood of tiny bad frames takes more memory."""


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

    def __call__(self, letters: Sequence[DeadLetter]) -> None:
        """Send them all.

        Raises:
            RestartRequired: the brokers do not take them; their batch must not be acknowledged.
        """
        for start in range(0, len(letters), SEND_AT_ONCE):
            self._send(letters[start : start + SEND_AT_ONCE])
        firsts = {letter.reason: letter for letter in reversed(letters)}
        for reason, count in Counter(letter.reason for letter in letters).items():
            self._metrics.dead_letters.labels(reason).inc(count)
            first = firsts[reason]
            # One line for a whole flood: whoever can send bad frames must not be able to fill the disk with words.
            logger.warning(
                "%s[%d]@%d: refused (%s)%s; sent to %s",
                first.topic,
                first.partition,
                first.offset,
                reason,
                f" with {count - 1} more" if count > 1 else "",
                self._topic,
            )

    def _send(self, letters: Sequence[DeadLetter]) -> None:
        try:
            self._publisher.send(
                [to_message(self._topic, letter) for letter in letters],
                wait_seconds=self._patience_seconds,
                stopping=self._stopping,
            )
        except PublishError as error:
            raise RestartRequired(f"dead letters cannot be sent: {error}") from error
