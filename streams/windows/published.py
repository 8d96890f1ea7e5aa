"""Publishes estimates topic by topic: what one topic does not take holds up nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from producers.clock import Clock
from streams.kafka.messages import MessageTooLargeError, Outgoing, PublishError
from streams.logs import Repeats
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

Publish = Callable[[Sequence[Outgoing]], None]
"""Returns when the brokers have the messages; raises PublishError otherwise."""


class EstimatePublisher:
    """Publishes estimates."""

    def __init__(self, publish: Publish, metrics: WorkerMetrics, *, clock: Clock) -> None:
        self._publish, self._metrics = publish, metrics
        self._too_large = Repeats(clock=clock)

    def __call__(self, messages: Iterable[Outgoing]) -> dict[str, PublishError]:
        """Publish estimates; return the topics that did not take theirs, each with the reason.

        Each topic by itself: the missing one of a tier must not hold up the others. An estimate that is too large for
        its topic is logged and counted, and that is all: to send it again would not help.
        """
        by_topic: dict[str, list[Outgoing]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        refused: dict[str, PublishError] = {}
        for topic, some in by_topic.items():
            try:
                self._send(some)
            except PublishError as error:
                refused[topic] = error
        return refused

    def _send(self, messages: Sequence[Outgoing]) -> None:
        try:
            self._publish(messages)
        except MessageTooLargeError as error:
            if len(messages) == 1:
                self._leave(messages[0])
                return
            # Together they may have been too large, and one by one they are not.
            for message in error.messages:
                self._send([message])

    def _leave(self, message: Outgoing) -> None:
        self._metrics.estimates_too_large.inc()
        if told := self._too_large.count(message.topic, 1):
            logger.error(
                "estimate %s is stored but not published: %s takes no message of %d bytes%s; set max.message.bytes of "
                "the topic (`thaw topics create` says to what), or ask for fewer values",
                (message.key or b"").decode(),
                message.topic,
                len(message.value),
                f", with {told - 1} more" if told > 1 else "",
            )
