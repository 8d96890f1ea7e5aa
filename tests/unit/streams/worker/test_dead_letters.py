"""The sender of dead letters: all of them sent in bounded slices, one line of log for a whole flood."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from producers.clock import Clock, system_clock
from streams.kafka.messages import Outgoing, PublishError
from streams.worker.dead_letters import SEND_AT_ONCE, DeadLetterSender
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock


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


def sender(broker: Broker, clock: Clock = system_clock) -> DeadLetterSender:
    return DeadLetterSender(
        broker,  # type: ignore[arg-type]  # its one method
        "dead",
        worker_metrics(),
        patience_seconds=1.0,
        stopping=lambda: False,
        clock=clock,
    )


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


def test_what_goes_on_for_long_is_told_at_once_and_then_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    send = sender(Broker(), clock)
    for _ in range(100):
        send(letters(3))
        clock.advance(500)
    refused = [message.split(" refused ")[1].split(";")[0] for message in caplog.messages]
    assert refused == ["(rung) with 2 more", "(rung) with 179 more"]
    send(letters(1, "magic"))
    assert "refused (magic);" in caplog.messages[-1], "another reason does not wait"


def test_letters_that_the_broker_does_not_take_keep_their_batch_from_being_acknowledged() -> None:
    with pytest.raises(RestartRequired, match="dead letters were not sent, the batch stays in Kafka: full"):
        sender(Broker(room=SEND_AT_ONCE))(letters(SEND_AT_ONCE + 1))
