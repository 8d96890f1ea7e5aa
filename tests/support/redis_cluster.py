"""A real Redis Cluster on this machine: masters, and a replica of each if wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from streams.local.process import free_ports
from streams.local.redis import Redis
from tests.support.certificates import Certificates
from tests.support.deadline import until

SLOTS = 16_384
NODE_TIMEOUT_MS = 2_000
"""After so long without an answer a node is taken for dead. Shorter: a busy machine fails over for no reason."""
FORM_SECONDS = 60


class ClusterRedis(Redis):
    """One node of a cluster; with certificates it speaks TLS to clients and to other nodes."""

    def __init__(self, name: str, *, folder: Path, certificates: Certificates | None = None) -> None:
        super().__init__(folder=folder)
        self.name, self._certificates = name, certificates

    def options(self) -> dict[str, str]:
        port, bus, tls_port = self.ports(3)
        secured = {}
        if self._certificates is not None:
            server = str(self._certificates.server)
            secured = {
                "tls-port": str(tls_port),
                "tls-cluster": "yes",
                "tls-replication": "yes",
                "tls-cert-file": server,
                "tls-key-file": server,
                "tls-ca-cert-file": str(self._certificates.authority),
                "tls-auth-clients": "no",
            }
        return (
            super().options()
            | secured
            | {
                "port": str(port),
                "cluster-enabled": "yes",
                "cluster-config-file": "nodes.conf",
                "cluster-node-timeout": str(NODE_TIMEOUT_MS),
                "cluster-port": str(bus),
                "cluster-announce-ip": "127.0.0.1",
                # A replica that is a little behind may take over: what it lacks is read again from Kafka.
                "cluster-replica-validity-factor": "0",
            }
        )

    def ports(self, count: int = 3) -> list[int]:
        """Return its port without TLS, that of the cluster's own bus, and that with TLS."""
        if not self._ports:
            self._ports = free_ports(3)
        return self._ports[:count]

    @property
    def place(self) -> tuple[str, int]:
        """Where clients and other nodes reach it."""
        port, _, tls_port = self.ports(3)
        return "127.0.0.1", port if self._certificates is None else tls_port

    def client(self) -> Any:
        """Return a client of this node alone, without TLS."""
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def ask(self, *words: object) -> Any:
        """Send one command to this node alone."""
        with self.client() as client:
            return client.execute_command(*words)

    @property
    def node_id(self) -> str:
        return _text(self.ask("CLUSTER", "MYID"))

    def is_master(self) -> bool:
        """Tell whether this node is in charge of slots now."""
        try:
            return _text(self.ask("ROLE")[0]) == "master"
        except redis.RedisError:
            return False


class RedisCluster:
    """The nodes of a cluster, started and joined: `masters` own equal parts of the slots at first.

    Args:
        folder: where their data goes.
        masters: how many.
        replicas: whether each of them has one.
        secured: whether clients and nodes speak TLS.
    """

    def __init__(self, folder: Path, *, masters: int = 3, replicas: bool = False, secured: bool = False) -> None:
        names = [f"redis-{number}" for number in range(masters * (2 if replicas else 1))]
        self.certificates = Certificates(folder / "certificates") if secured else None
        self.nodes = [ClusterRedis(name, folder=folder / name, certificates=self.certificates) for name in names]
        self._masters = masters

    @property
    def scheme(self) -> str:
        """What its address begins with."""
        return "redis+cluster://" if self.certificates is None else "rediss+cluster://"

    @property
    def url(self) -> str:
        """The address for THAW_REDIS."""
        return self.scheme + ",".join("{}:{}".format(*node.place) for node in self.nodes)

    @property
    def ca_file(self) -> str:
        """The authority for THAW_REDIS_CA; empty without TLS."""
        return "" if self.certificates is None else str(self.certificates.authority)

    def __enter__(self) -> RedisCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes, join them, and return when every slot is served."""
        for node in self.nodes:
            node.start()
        self.join()

    def join(self) -> None:
        """Make one cluster of nodes that run."""
        first, share = self.nodes[0], SLOTS / self._masters
        for number, node in enumerate(self.nodes[: self._masters]):
            node.ask("CLUSTER", "ADDSLOTSRANGE", round(share * number), round(share * (number + 1)) - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            # The port of the cluster's own bus is named, since it is not that of the node plus 10,000.
            node.ask("CLUSTER", "MEET", *first.place, first.ports()[1])
        until(lambda: all(self._knows_all(node) for node in self.nodes), FORM_SECONDS, "all nodes to know each other")
        for number, node in enumerate(self.nodes[self._masters :]):
            node.ask("CLUSTER", "REPLICATE", self.nodes[number].node_id)
        until(self.is_whole, FORM_SECONDS, "every slot to be served, and every replica to follow")

    def _knows_all(self, node: ClusterRedis) -> bool:
        return int(_cluster_info(node)["cluster_known_nodes"]) == len(self.nodes)

    def is_whole(self) -> bool:
        """Tell whether every node says that all slots are served, and every replica has its master's data."""
        try:
            good = all(_cluster_info(node)["cluster_state"] == "ok" for node in self.nodes)
            return good and all(node.is_master() or self._follows(node) for node in self.nodes)
        except redis.RedisError:
            return False

    @staticmethod
    def _follows(node: ClusterRedis) -> bool:
        return _text(node.ask("ROLE")[3]) == "connected"

    def masters(self) -> list[ClusterRedis]:
        """Return the nodes that are in charge of slots now."""
        return [node for node in self.nodes if node.alive() and node.is_master() and self.slots_of(node)]

    def replicas(self) -> list[ClusterRedis]:
        """Return the nodes that follow another one now."""
        return [node for node in self.nodes if node.alive() and not node.is_master()]

    def slots_of(self, node: ClusterRedis) -> list[int]:
        """Return the slots that a node is in charge of, by its own word."""
        own = node.node_id
        return [
            slot
            for first, last, master, *_ in node.ask("CLUSTER", "SLOTS")
            if _text(master[2]) == own
            for slot in range(int(first), int(last) + 1)
        ]

    def move_slot(self, slot: int, source: ClusterRedis, target: ClusterRedis) -> int:
        """Move a slot with all its keys, as `redis-cli --cluster reshard` does; return how many keys that were."""
        self.begin_to_move(slot, source, target)
        moved = 0
        while some := self.move_keys(slot, source, target):
            moved += some
        self.end_to_move(slot, source, target)
        return moved

    def begin_to_move(self, slot: int, source: ClusterRedis, target: ClusterRedis) -> None:
        """Tell both nodes that keys of a slot move."""
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)

    def move_keys(self, slot: int, source: ClusterRedis, target: ClusterRedis, count: int = 100) -> int:
        """Move up to so many keys of a slot; return how many that were."""
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            source.ask("MIGRATE", *target.place, "", 0, 5_000, "KEYS", *keys)
        return len(keys)

    def end_to_move(self, slot: int, source: ClusterRedis, target: ClusterRedis) -> None:
        """Tell all nodes who is in charge of a slot now."""
        for node in [target, source, *(other for other in self.masters() if other not in (source, target))]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)

    def stop(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.stop(seconds=0)


def _cluster_info(node: ClusterRedis) -> dict[str, str]:
    found = node.ask("CLUSTER", "INFO")
    if isinstance(found, dict):
        return {_text(name): _text(value) for name, value in found.items()}
    return dict(line.split(":", 1) for line in _text(found).splitlines() if ":" in line)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
