"""Three brokers with a controller each: topics have three replicas, of which two must have a report."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from streams.local.kafka import ApacheKafka, KafkaProbe
from streams.local.process import Child, wait_until_ready

HEAP = "-Xmx384m"
BROKER_SECONDS = 180.0
"""A broker answers when it has caught up with the others; on a busy machine that takes a minute."""


class Broker(ApacheKafka):
    """One node of three. It answers when two of them run.

    Args:
        number: its id, from 1 on.
        nodes: all nodes, this one included.
        cluster_id: of the cluster.
        folder: where its data goes.
    """

    # Compiling thoroughly would take longer than it saves: three of them share a computer with all the rest.
    jvm_options = ("-Xms128m", HEAP, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *ApacheKafka.jvm_options[2:])

    def __init__(self, number: int, nodes: Sequence[Broker], cluster_id: str, *, folder: Path) -> None:
        super().__init__(folder=folder)
        self.name = f"kafka-{number}"
        self._number, self._nodes, self._cluster_id = number, nodes, cluster_id

    def _new_cluster_id(self) -> str:
        return self._cluster_id

    def _properties(self, data: Path) -> str:
        voters = ",".join(f"{node._number}@127.0.0.1:{node.ports()[1]}" for node in self._nodes)
        return "\n".join(
            [
                super()._properties(data),
                f"node.id={self._number}",
                f"controller.quorum.voters={voters}",
                "default.replication.factor=3",
                "min.insync.replicas=2",
                "offsets.topic.replication.factor=3",
                "transaction.state.log.replication.factor=3",
                "transaction.state.log.min.isr=2",
                "share.coordinator.state.topic.replication.factor=3",
                "share.coordinator.state.topic.min.isr=2",
                # Three virtual machines on one computer: a pause must not fence a live broker.
                "broker.session.timeout.ms=9000",
                "broker.heartbeat.interval.ms=1000",
                "replica.lag.time.max.ms=10000",
            ]
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        what = f"Kafka's metadata from {self.address}"
        wait_until_ready(child, KafkaProbe(self.address), seconds=BROKER_SECONDS, what=what)


def brokers(folder: Path, count: int = 3) -> list[Broker]:
    """Return the nodes of a new cluster, not started."""
    nodes: list[Broker] = []
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    for number in range(1, count + 1):
        nodes.append(Broker(number, nodes, cluster_id, folder=folder / f"kafka-{number}"))
    for node in nodes:
        node.ports()  # chosen now: several threads ask for them
    return nodes


def start_together(nodes: Sequence[Broker]) -> None:
    """Start nodes at the same time: the first one alone would wait for another.

    Raises:
        Exception: what the first that failed raised.
    """
    failures: list[Exception] = []

    def start(node: Broker) -> None:
        try:
            node.start()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(node,), name=f"start {node.name}") for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
