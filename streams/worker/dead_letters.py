"""Sends dead letters: refused frames with a reason and their original bytes.

A dead letter must not hold more than the frame did: it has no key, and headers only for the reason and the place. One
that is larger than its topic allows is cut, so that no record of any size can stop a worker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from producers.clock import Clock, system_clock
from streams.kafka.messages import MessageTooLargeError, Outgoing, PublishError
from streams.kafka.publisher import Publisher
from streams.logs import Repeats
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

REASON_HEADER = "dlq-reason"
OFFSET_HEADER = "dlq-offset"
DETAIL_HEADER = "dlq-detail"
"""What the reason alone does not tell; absent from most."""
CUT_HEADER = "dlq-cut"
"""The original size in bytes of a dead letter that was cut; absent from others."""

SEND_AT_ONCE = 5_000
"""Dead letters handed to the producer before waiting for it. More: a flood of tiny bad frames takes more memory."""


_CUTS: Final = (4 << 20, 512 << 10, 32 << 10, 1 << 10, 0)
"""What is kept of a dead letter that is refused as too large, tried in this order: brokers allow 1 MiB by default."""

_LARGE: Final = 512 << 10
"""From this size on dead letters are sent one by one, so that the refusal of one does not repeat the others."""


def place_of(letter: DeadLetter) -> str:
    """Return where a dead letter comes from: topic[partition]@offset, or @first-last for a record batch."""
    last = "" if letter.last_offset is None else f"-{letter.last_offset}"
    return f"{letter.topic}[{letter.partition}]@{letter.offset}{last}"


def to_message(topic: str, letter: DeadLetter, *, keep: int | None = None) -> Outgoing:
    """Return the message for the dead-letter topic, cut to `keep` bytes."""
    headers = [(REASON_HEADER, letter.reason.encode()), (OFFSET_HEADER, place_of(letter).encode())]
    if letter.detail:
        headers.append((DETAIL_HEADER, letter.detail.encode()))
    if keep is not None and keep < len(letter.frame):
        headers.append((CUT_HEADER, str(len(letter.frame)).encode()))
    return Outgoing(topic, letter.frame[:keep], headers=tuple(headers))


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
        clock: Clock = system_clock,
    ) -> None:
        self._publisher, self._topic, self._metrics = publisher, topic, metrics
        self._patience_seconds, self._stopping = patience_seconds, stopping
        self._refused, self._cut = Repeats(clock=clock), Repeats(clock=clock)

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
            first, told = firsts[reason], self._refused.count(reason, count)
            # One line for a whole flood: bad frames must not be able to fill the disk with log lines.
            if told is None:
                continue
            logger.warning(
                "%s: %s refused (%s%s)%s; sent to %s, see `thaw deadletters`",
                place_of(first),
                "record batch" if first.last_offset is not None else "frame",
                reason,
                f": {first.detail}" if first.detail else "",
                f" with {told - 1} more" if told > 1 else "",
                self._topic,
            )

    def _send(self, dead_letters: Sequence[DeadLetter]) -> None:
        small = [letter for letter in dead_letters if len(letter.frame) < _LARGE]
        large = [letter for letter in dead_letters if len(letter.frame) >= _LARGE]
        try:
            self._publish([to_message(self._topic, letter) for letter in small])
        except MessageTooLargeError:
            # Which of them it was is not known, and several in one batch may be too large together.
            large = [*small, *large]
        for letter in large:
            self._send_cut(letter)

    def _send_cut(self, letter: DeadLetter) -> None:
        """Send as much of a dead letter as its topic takes."""
        for keep in (None, *(size for size in _CUTS if size < len(letter.frame))):
            try:
                self._publish([to_message(self._topic, letter, keep=keep)])
            except MessageTooLargeError as error:
                refusal = error
                continue
            if keep is not None:
                self._metrics.dead_letters_cut.inc()
                if told := self._cut.count("cut", 1):
                    logger.warning(
                        "%s: dead letter of %d bytes cut to %d%s, %s takes no more; set max.message.bytes of the topic",
                        place_of(letter),
                        len(letter.frame),
                        keep,
                        f" with {told - 1} more" if told > 1 else "",
                        self._topic,
                    )
            return
        raise RestartRequired(f"{self._topic} takes no dead letter of any size: {refusal}") from refusal

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        try:
            self._publisher.send(messages, wait_seconds=self._patience_seconds, stopping=self._stopping)
        except MessageTooLargeError:
            raise
        except PublishError as error:
            raise RestartRequired(f"dead letters were not sent, the batch stays in Kafka: {error}") from error
