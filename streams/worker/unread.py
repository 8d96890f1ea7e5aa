"""How many records of a partition were not read yet, from what its broker told a consumer of aiokafka last."""

from __future__ import annotations

from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from producers.clock import system_clock
from streams.kafka.messages import Lag

TOLD_MS: Final = 2_000
"""For how long it holds that nothing is unread. A broker that answers says so twice a second. Shorter: a busy machine
looks like one that is away; longer: windows are called settled for longer while their reports wait at brokers that
hang."""


def lag_of(consumer: Any, place: TopicPartition, read: int | None) -> Lag | None:
    """Return how far behind a partition is; None if that is not known.

    Args:
        consumer: an `AIOKafkaConsumer`; from any thread.
        place: the partition.
        read: up to which offset it was handed over.
    """
    try:
        stable, end = consumer.last_stable_offset(place), consumer.highwater(place)
        told_ms = consumer.last_poll_timestamp(place)
    except (AssertionError, KafkaError):
        return None  # a rebalance in the consumer's thread has just revoked it
    if stable is None or end is None or told_ms is None or read is None:
        return None
    if stable <= read and system_clock() - told_ms > TOLD_MS:
        return None  # the broker does not answer: what came since is unknown
    return Lag(max(0, stable - read), max(0, end - stable), stable)
