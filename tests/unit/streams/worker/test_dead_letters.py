"""The sender of dead letters: all of them sent in bounded slices, one line of log for a whole flood."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from streams.kafka.messages import Outgoing, PublishError
from streams.worker.dead_letters import SEND_AT_ONCE, DeadLetterSender
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired
from streams.worker_metrics import worker_metrics


class Broker:
    """Takes messages, or refuses once it has enough."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.calls: list[int] = []
        self.messages: list[Outgoing] = []
        self._room = room

    def send(self, messages: Sequence[Outgoing], **_: Any) -> None:
        self.calls.append(len(messages))
        if len(self.messages) + len(messages) > self._room:
            raise PublishError("full")
        self.messages += messages


def sender(broker: Broker) -> DeadLetterSender:
    return DeadLetterSender(broker, "dead", worker_metrics(), patience_seconds=1.0, stopping=lambda: False)  # type: ignore[arg-type]


def letters(count: int, reason: str = "rung") -> list[DeadLetter]:
    return [DeadLetter("reports", 3, 10 + number, reason, b"%d" % number) for number in range(count)]


def test_a_flood_leaves_in_slices_and_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    flood = letters(2 * SEND_AT_ONCE + 1) + letters(1, "magic")
    with caplog.at_level(logging.WARNING):
        sender(broker)(flood)
    assert broker.calls == [SEND_AT_ONCE, SEND_AT_ONCE, 2]
    assert [message.value for message in broker.messages] == [letter.frame for letter in flood]
    assert caplog.messages == [
        f"reports[3]@10: frame refused (rung) with {2 * SEND_AT_ONCE} more; sent to dead, see `thaw deadletters`",
        "reports[3]@10: frame refused (magic); sent to dead, see `thaw deadletters`",
    ]


def test_letters_that_the_broker_does_not_take_keep_their_batch_from_being_acknowledged() -> None:
    with pytest.raises(RestartRequired, match="dead letters were not sent, the batch stays in Kafka: full"):
        sender(Broker(room=SEND_AT_ONCE))(letters(SEND_AT_ONCE + 1))
