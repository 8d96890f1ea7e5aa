"""A device and a real broker: what arrives, and what happens while the broker does not know the topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition

from producers.device.agent import Device
from producers.wire import frames as wire
from producers.wire.kafka import KafkaTransport
from tests.support.deadline import until
from tests.support.surveys import WEEK, WINDOW_MS, survey

PARTITIONS = 5
"""Another number than the default; the device learns it from the broker."""


@pytest.mark.real
def test_reports_reach_their_partition_without_key_and_with_one_header(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topic, asked = f"{topic_prefix}reports.v1", survey()
    transport = KafkaTransport(kafka, topic, timeout_seconds=2)
    with Device(tmp_path / "ledger", [asked], transport) as device:
        (chain,) = device.observe(asked, "green", WEEK)
        # The topic does not exist yet: the report waits, and nothing is created by accident.
        assert device.tick(WEEK).waiting == 1
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
        admin.close()
        clock = iter(range(WEEK, WEEK + 10**9, 60_000))
        until(lambda: device.tick(next(clock)).waiting == 0, 60, "the report's acknowledgement")
        device.tick(WEEK + WINDOW_MS + 30_000)
    transport.close()
    consumer = KafkaConsumer(
        bootstrap_servers=kafka, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    records: list[Any] = []

    def fetched() -> bool:
        records.extend(record for batch in consumer.poll(200).values() for record in batch)
        return len({record.value for record in records}) >= 2

    until(fetched, 60, "both rungs")
    consumer.close()
    for record in records:
        assert record.key is None
        assert record.headers == [("schema", b"thaw.frame.v1")] or list(record.headers) == [
            ("schema", b"thaw.frame.v1")
        ]
        (header,) = wire.headers(record.value)
        assert isinstance(header, wire.Header)
        assert header.shard % PARTITIONS == record.partition
        read = wire.columns(record.value, header, asked.layout)
        assert read.answers.tobytes() == chain.answer(int(read.rungs[0]), 0)
