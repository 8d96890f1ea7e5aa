"""Publishing estimates: what is refused, and what goes on beside it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from streams.kafka.messages import MessageTooLargeError, Outgoing, PublishError
from streams.windows.published import EstimatePublisher
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock


class Broker:
    """Takes messages of at most `most` bytes, and refuses batches of more as a whole, as a broker does."""

    def __init__(self, most: int) -> None:
        self.most, self.taken, self.calls = most, list[bytes | None](), 0
        self.away: set[str] = set()

    def __call__(self, messages: Sequence[Outgoing]) -> None:
        self.calls += 1
        if {message.topic for message in messages} & self.away:
            raise PublishError("away")
        if sum(len(message.value) for message in messages) > self.most:
            raise MessageTooLargeError("too large", messages)
        self.taken += [message.key for message in messages]


def messages(*sizes: int, topic: str = "estimates") -> list[Outgoing]:
    return [Outgoing(topic, bytes(size), f"survey:{number}".encode()) for number, size in enumerate(sizes)]


def test_one_that_is_too_large_is_left_and_told_and_the_others_go(caplog: pytest.LogCaptureFixture) -> None:
    broker, metrics, clock = Broker(10), worker_metrics(), ManualClock(0)
    publish = EstimatePublisher(broker, metrics, clock=clock)
    with caplog.at_level(logging.ERROR):
        assert publish(messages(4, 11, 5)) == {}
        assert publish(messages(4, 11, 5)) == {}
    assert broker.taken == [b"survey:0", b"survey:2"] * 2
    assert metrics.registry.get_sample_value("thaw_worker_estimates_too_large_total") == 2
    [line] = caplog.messages
    assert "estimate survey:1 is stored but not published: estimates takes no message of 11 bytes;" in line
    assert "set max.message.bytes" in line


def test_estimates_that_are_too_large_together_go_one_by_one() -> None:
    broker, metrics = Broker(10), worker_metrics()
    assert EstimatePublisher(broker, metrics, clock=ManualClock(0))(messages(6, 6)) == {}
    assert broker.taken == [b"survey:0", b"survey:1"]
    assert broker.calls == 3
    assert metrics.registry.get_sample_value("thaw_worker_estimates_too_large_total") == 0


def test_a_topic_that_is_away_is_named_and_the_other_one_has_its_estimates() -> None:
    broker = Broker(10)
    broker.away = {"estimates.partners"}
    publish = EstimatePublisher(broker, worker_metrics(), clock=ManualClock(0))
    refused = publish([*messages(20, topic="estimates.partners"), *messages(4, 20)])
    assert {topic: str(error) for topic, error in refused.items()} == {"estimates.partners": "away"}
    assert broker.taken == [b"survey:0"]
