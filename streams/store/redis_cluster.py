"""Redis Cluster: a client that connects with its first call, and pipelines that go to the node of each key.

redis-py's own pipeline asks a server for the keys of every script call, with all its arguments: a batch would travel
twice. Here the place of a call follows from its first key; all keys of one call have the same hash tag.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from redis.cluster import ClusterNode, RedisCluster
from redis.commands import CoreCommands
from redis.connection import parse_url
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)

# The library does not type these two.
_CLUSTER_NODE: Final[Any] = ClusterNode
_PARSE_URL: Final[Any] = parse_url

_ELSEWHERE: Final = (MovedError, AskError, TryAgainError, ClusterDownError)
"""Answers of a node that did nothing: the cluster client finds the right one, waits a moment, or gives up."""


class ClusterClient:
    """The client of a cluster. It finds the nodes with its first call, and again after `forget_nodes`.

    Args:
        urls: addresses of some of the nodes, with the same user and options; one that answers is enough.
        options: as for a client of one server.
    """

    def __init__(self, urls: Sequence[str], **options: Any) -> None:
        self._urls, self._options = list(urls), options
        self._lock = threading.Lock()
        self._known: Any = None
        self._is_stale = False
        # The library looks at most of an address only when it connects.
        nodes = [_host_and_port(url) for url in self._urls]
        self.place: dict[str, Any] = {
            **_parts(self._urls[0]),
            "nodes": ",".join(f"{host}:{port}" for host, port in nodes),
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster(), name)

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cluster(self) -> Any:
        with self._lock:
            if self._known is not None and self._is_stale:
                try:
                    self._known.nodes_manager.initialize()
                except (RedisError, RedisClusterException):
                    # All nodes may have new addresses: begin again with those of the settings.
                    self._drop()
            if self._known is None:
                first, *others = self._urls
                nodes = [_CLUSTER_NODE(*_host_and_port(url)) for url in others]
                self._known = RedisCluster(url=first, startup_nodes=nodes, **self._options)
            self._is_stale = False
            return self._known

    def _drop(self) -> None:
        known, self._known = self._known, None
        with suppress(RedisError, RedisClusterException, OSError):
            known.close()

    def forget_nodes(self) -> None:
        """Ask for the nodes anew before the next call: one did not answer, or is no longer in charge."""
        self._is_stale = True

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._known is not None:
                self._drop()

    def pipeline(self, transaction: bool = True) -> SlotPipeline:
        """Return a pipeline; the commands of one node are a transaction of their own, if at all."""
        return SlotPipeline(self._cluster(), transaction=transaction)

    def primaries(self) -> list[Any]:
        """Return a client of each node that takes writes, in the order of their names."""
        cluster = self._cluster()
        nodes = sorted(cluster.get_primaries(), key=lambda node: str(node.name))
        return [cluster.get_redis_connection(node) for node in nodes]

    def time(self) -> tuple[int, int]:
        """Return the time of one of the nodes."""
        seconds, microseconds = self.primaries()[0].time()
        return int(seconds), int(microseconds)


def _parts(url: str) -> dict[str, Any]:
    parsed: dict[str, Any] = _PARSE_URL(url)
    return parsed


def _host_and_port(url: str) -> tuple[str, int]:
    parts = _parts(url)
    return str(parts.get("host", "localhost")), int(parts.get("port", 6379))


class SlotPipeline(CoreCommands):
    """Commands that are sent together to the node of their first key, and answered in their order.

    A command that its node refuses because it has moved is sent again, alone. Nothing else is repeated.
    """

    _event_dispatcher: Any = None  # the library's interface asks for one

    def __init__(self, cluster: Any, *, transaction: bool) -> None:
        self._cluster, self._is_transaction = cluster, transaction
        self._commands: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __enter__(self) -> SlotPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self._commands = []

    def execute_command(self, *args: Any, **options: Any) -> SlotPipeline:
        """Note a command for `execute`."""
        self._commands.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send everything; return the answers in the order of the commands.

        Raises:
            RedisError: a node did not answer, so what it has done is unknown; or, with `raise_on_error`, it refused.
        """
        commands, self._commands = self._commands, []
        answers: list[Any] = [None] * len(commands)
        for node, positions in self._by_node(commands).items():
            client = self._cluster.get_redis_connection(node)
            with client.pipeline(transaction=self._is_transaction) as pipe:
                for position in positions:
                    args, options = commands[position]
                    pipe.execute_command(*args, **options)
                for position, answer in zip(positions, pipe.execute(raise_on_error=False), strict=True):
                    answers[position] = answer
        for position, (args, options) in enumerate(commands):
            if isinstance(answers[position], _ELSEWHERE):
                answers[position] = self._redirected(args, options)
        if raise_on_error:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers

    def _by_node(self, commands: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> dict[ClusterNode, list[int]]:
        groups: dict[ClusterNode, list[int]] = {}
        for position, (args, _) in enumerate(commands):
            key = args[3] if args[0] in ("EVAL", "EVALSHA") else args[1]
            groups.setdefault(self._cluster.get_node_from_key(key), []).append(position)
        return groups

    def _redirected(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the answer of the node that is in charge now, or its refusal of a script that it does not know."""
        try:
            return self._cluster.execute_command(*args, **options)
        except NoScriptError as error:
            return error


def servers(client: Any) -> list[Any]:
    """Return a client of each server that takes writes: the client itself unless it is that of a cluster."""
    return client.primaries() if isinstance(client, ClusterClient) else [client]
