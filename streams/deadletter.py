"""Dead letters: reports that cannot be right, kept with a reason and their original bytes, and nothing more.

A dead letter must never know more than the report did: no key, and headers only for the reason and the place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from streams.applier import LeaveError
from streams.fold import DeadLetter
from streams.metrics import WorkerMetrics
from streams.publisher import Outgoing, Publisher, PublishError

logger = logging.getLogger(__name__)

REASON_HEADER = "dlq-reason"
OFFSET_HEADER = "dlq-offset"


def to_message(topic: str, letter: DeadLetter) -> Outgoing:
    """Return the message for the dead-letter topic."""
    place = f"{letter.topic}[{letter.partition}]@{letter.offset}"
    return Outgoing(
        topic,
        letter.frame,
        headers=((REASON_HEADER, letter.reason.encode()), (OFFSET_HEADER, place.encode())),
    )


class DeadLetterOffice:
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
            LeaveError: the brokers do not take them; their batch must not be acknowledged.
        """
        try:
            self._publisher.send(
                [to_message(self._topic, letter) for letter in letters],
                wait_seconds=self._patience_seconds,
                stopping=self._stopping,
            )
        except PublishError as error:
            raise LeaveError(f"dead letters cannot be sent: {error}") from error
        for letter in letters:
            self._metrics.dead_letters.labels(letter.reason).inc()
            logger.warning(
                "%s[%d]@%d: refused (%s); sent to %s",
                letter.topic,
                letter.partition,
                letter.offset,
                letter.reason,
                self._topic,
            )
