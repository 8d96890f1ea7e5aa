"""Heartbeats in Redis: one key per worker that expires, and a sorted set of workers by the time of their last one."""

from __future__ import annotations

import msgspec

from streams.store.heartbeats import HEARTBEAT_KEEP_MS, Heartbeat
from streams.store.redis_connection import RedisConnection


class RedisHeartbeats:
    """`Heartbeats` in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client
        self._base = f"{connection.base}{{workers}}:"

    def publish(self, heartbeat: Heartbeat) -> None:
        """Replace a worker's heartbeat, and delete those older than HEARTBEAT_KEEP_MS."""
        with self._connection.calling(), self._client.pipeline(transaction=True) as pipe:
            pipe.set(f"{self._base}beat:{heartbeat.worker}", msgspec.json.encode(heartbeat), px=HEARTBEAT_KEEP_MS)
            pipe.zadd(f"{self._base}beats", {heartbeat.worker: heartbeat.time_ms})
            pipe.zremrangebyscore(f"{self._base}beats", "-inf", heartbeat.time_ms - HEARTBEAT_KEEP_MS)
            pipe.pexpire(f"{self._base}beats", HEARTBEAT_KEEP_MS)
            pipe.execute()

    def remove(self, worker: str) -> None:
        """Delete the heartbeat of a worker that stops as planned."""
        with self._connection.calling(), self._client.pipeline(transaction=True) as pipe:
            pipe.delete(f"{self._base}beat:{worker}")
            pipe.zrem(f"{self._base}beats", worker)
            pipe.execute()

    def read(self) -> list[Heartbeat]:
        """Return the latest heartbeat of every worker, by name."""
        with self._connection.calling():
            names = [name.decode() for name in self._client.zrange(f"{self._base}beats", 0, -1)]
            stored = self._client.mget([f"{self._base}beat:{name}" for name in names]) if names else []
        found = [heartbeat for raw in stored if (heartbeat := _decoded(raw)) is not None]
        return sorted(found, key=lambda heartbeat: heartbeat.worker)


def _decoded(raw: bytes | None) -> Heartbeat | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Heartbeat)
    except msgspec.MsgspecError:
        return None  # written by a later version
