"""Failover to a replica that lost acknowledged writes: Redis comes back with what the replica had."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis as redis_client

from streams.local.redis import Redis

Wait = Callable[[Callable[[], bool], str], object]
"""Returns when the condition holds; the text says what is waited for."""


@contextmanager
def cut_off_replica(master: Redis, wait: Wait) -> Iterator[Redis]:
    """A replica that has everything up to now, and nothing that the master gets from here on."""
    with Redis() as replica, redis_client.Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", master.url.rpartition(":")[2].partition("/")[0])
        wait(lambda: _in_sync(client), "the replica to be in sync")
        client.replicaof("NO", "ONE")
        yield replica


def take_over(master: Redis, replica: Redis) -> None:
    """Kill the master, and put what the replica has in the place of what it had. It is to be started again."""
    master.kill()
    replica.terminate()
    shutil.rmtree(master.folder / "appendonlydir")
    shutil.copytree(replica.folder / "appendonlydir", master.folder / "appendonlydir")


def _in_sync(client: Any) -> bool:
    persistence = client.info("persistence")
    rewriting = persistence["aof_rewrite_in_progress"] or persistence["aof_rewrite_scheduled"]
    return client.info("replication")["master_link_status"] == "up" and not rewriting
