"""Transports: what they refuse, how they wait, what they may not add to a record."""

from __future__ import annotations

import logging
import socket

import numpy as np
import pytest

from producers.wire.kafka import BACKOFF_LAST_SECONDS, KafkaTransport
from producers.wire.transport import Message, TransportError, answer_bytes, frames_of
from tests.support.surveys import survey
from tests.support.transports import MemoryTransport


@pytest.fixture
def unused_address() -> str:
    """An address without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_memory_transport_keeps_or_refuses() -> None:
    transport = MemoryTransport(partitions=3)
    transport.send([Message(2, b"one")])
    transport.away = True
    with pytest.raises(TransportError, match="the broker is away"):
        transport.send([Message(2, b"two")])
    assert transport.messages == [(2, b"one")]


def test_no_broker_is_an_error_of_the_transport(unused_address: str, caplog: pytest.LogCaptureFixture) -> None:
    transport = KafkaTransport(unused_address, timeout_seconds=0.3)
    for _ in range(2):
        with pytest.raises(TransportError, match="no acknowledgement from the broker"):
            transport.send([Message(0, b"frame")])
    ours = [record for record in caplog.records if record.name == "producers.wire.kafka"]
    assert len(ours) == 1, "said once, not at every attempt"
    transport.close()


def test_the_number_of_partitions_is_asked_of_the_broker(unused_address: str) -> None:
    transport = KafkaTransport(unused_address, timeout_seconds=0.3)
    with pytest.raises(TransportError, match="no acknowledgement from the broker"):
        _ = transport.partitions


@pytest.mark.parametrize("brokers", ["", "localhost", "a:9092,b"])
def test_addresses_need_a_port(brokers: str) -> None:
    with pytest.raises(ValueError, match="brokers must be HOST:PORT, several separated by commas; got"):
        KafkaTransport(brokers)


def test_a_patient_transport_waits_longer_each_time(unused_address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="kafka")
    pauses: list[float] = []
    transport = KafkaTransport(unused_address, timeout_seconds=0.05, attempts=9, sleeper=pauses.append)
    with pytest.raises(TransportError):
        transport.send([Message(0, b"frame")])
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, BACKOFF_LAST_SECONDS, BACKOFF_LAST_SECONDS]


def test_nothing_links_the_records_of_a_device(unused_address: str) -> None:
    settings = KafkaTransport(unused_address)._settings
    assert settings["enable_idempotence"] is False, "Kafka would store a producer id beside every record"
    assert settings["batch_size"] == 0, "records in one batch came from one sender"
    assert settings["acks"] == "all"


def test_answers_become_rows_of_bytes() -> None:
    assert answer_bytes(np.array([1, 2], dtype=np.uint8), 1).tolist() == [[1], [2]]
    assert answer_bytes(np.array([258, 3], dtype="<u2"), 2).tolist() == [[2, 1], [3, 0]]
    assert answer_bytes(np.array([[1, 2], [3, 4]], dtype=np.uint8), 2).tolist() == [[1, 2], [3, 4]]


def test_no_reports_make_no_messages() -> None:
    empty = np.zeros(0, dtype=np.uint8)
    assert frames_of(survey(), 0, 0, np.zeros((0, 16), np.uint8), empty, empty, partitions=8) == {}
