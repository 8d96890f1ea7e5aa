"""A transaction that hangs: records of a producer in a partition, of which no coordinator knows.

Brokers refuse such records since Kafka 3.6. With that check switched off they behave as older ones do, and as one with
a fault in its bookkeeping would. The remedy is Kafka's own tool, in the jars that `make setup` fetches.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from streams.local.kafka import kafka_runtime

_CHECK: Final = "transaction.partition.verification.enable"
_TOOL: Final = "org.apache.kafka.tools.TransactionsCommand"
_TOOL_SECONDS: Final = 120.0


def transactions_tool(address: str, *arguments: str) -> str:
    """Run what `kafka-transactions.sh` runs; return what it printed."""
    java, libs = kafka_runtime()
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command = [java, *options, "-cp", f"{libs}/*", _TOOL, "--bootstrap-server", address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def leave_hanging(address: str, name: str, topic: str, partition: int, values: Sequence[bytes]) -> int:
    """Write records of a transaction that never began; return the offset of the first."""
    # Only a client that asks for its coordinator makes the broker create what a coordinator needs.
    Producer({"bootstrap.servers": address, "transactional.id": name}).init_transactions(60)
    with _unchecked(address):
        return asyncio.run(_written(address, name, topic, partition, values))


@contextmanager
def _unchecked(address: str) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": address})
    [broker] = map(str, admin.list_topics(timeout=60).brokers)

    def set_check(how: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(_CHECK, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

    set_check(AlterConfigOpType.SET, "false")
    try:
        yield
    finally:
        set_check(AlterConfigOpType.DELETE, None)


async def _written(address: str, name: str, topic: str, partition: int, values: Sequence[bytes]) -> int:
    client: Any = AIOKafkaClient(bootstrap_servers=address)
    await client.bootstrap()
    try:
        [broker] = client.cluster.brokers()
        given = await client.send(broker.nodeId, InitProducerIdRequest(name, 60_000))
        assert given.error_code == 0, given
        batch: Any = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=1,
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=0,
            batch_size=16 << 20,
        )
        for position, value in enumerate(values):
            assert batch.append(position, timestamp=0, key=None, value=value, headers=[]) is not None
        while True:
            # A change of the broker's settings arrives a moment later.
            request = ProduceRequest(name, -1, 30_000, [(topic, [(partition, bytes(batch.build()))])])
            answer = await client.send(broker.nodeId, request)
            [(_, [(_, error, offset, *_)])] = answer.topics
            if error == 0:
                return int(offset)
            assert error == 48, answer  # INVALID_TXN_STATE
            await asyncio.sleep(0.1)
    finally:
        await client.close()
