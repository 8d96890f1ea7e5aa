"""Heartbeats in Redis: one key per worker that expires, and a sorted set of workers by the time of their last one.

The time is that of Redis. By the clocks of the workers, one that is ahead would delete the others, and one that is
behind would be deleted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from producers.clock import Clock, system_clock
from streams.store.heartbeats import HEARTBEAT_KEEP_MS, Heartbeat
from streams.store.redis_connection import RedisConnection, Script

_PUBLISH: Final = Script("beat")
_LIST: Final = Script("beats")


class RedisHeartbeats:
    """`Heartbeats` in Redis."""

    def __init__(self, connection: RedisConnection, *, clock: Clock = system_clock) -> None:
        self._connection, self._client, self._clock = connection, connection.client, clock
        self._base = f"{connection.base}{{workers}}:"

    def publish(self, heartbeat: Heartbeat) -> None:
        """Replace a worker's heartbeat, and delete those older than HEARTBEAT_KEEP_MS."""
        keys = (f"{self._base}beat:{heartbeat.worker}", f"{self._base}beats")
        arguments = (msgspec.json.encode(heartbeat), heartbeat.worker, HEARTBEAT_KEEP_MS)
        self._connection.run([(_PUBLISH, keys, arguments)])

    def remove(self, worker: str) -> None:
        """Delete the heartbeat of a worker that stops as planned."""
        with self._connection.calling(), self._client.pipeline(transaction=True) as pipe:
            pipe.delete(f"{self._base}beat:{worker}")
            pipe.zrem(f"{self._base}beats", worker)
            pipe.execute()

    def read(self) -> list[Heartbeat]:
        """Return the latest heartbeat of every worker, by name, with the time here at which it came."""
        listed = self._connection.run([(_LIST, (f"{self._base}beats",), ())])[0]
        names, ages = listed[::2], listed[1::2]
        with self._connection.calling():
            # A name that is no text is none of a worker, and has no heartbeat.
            stored = self._client.mget([f"{self._base}beat:".encode() + name for name in names]) if names else []
        now_ms = self._clock()
        found = [
            msgspec.structs.replace(heartbeat, time_ms=now_ms - max(0, int(age)))
            for raw, age in zip(stored, ages, strict=True)
            if (heartbeat := _decoded(raw)) is not None
        ]
        return sorted(found, key=lambda heartbeat: heartbeat.worker)


def _decoded(raw: bytes | None) -> Heartbeat | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Heartbeat)
    except msgspec.MsgspecError:
        return None  # written by a later version
