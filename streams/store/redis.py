"""The store on any Redis from 6.2 on: its parts over one connection."""

from __future__ import annotations

import redis
from redis.exceptions import ResponseError

from streams.store import redis_checks
from streams.store.contract import StoreUnavailableError
from streams.store.redis_cluster import ClusterClient, servers
from streams.store.redis_connection import ANSWER_SECONDS, RedisConnection, connect, translated
from streams.store.redis_estimates import RedisEstimates, RedisSmallStates
from streams.store.redis_heartbeats import RedisHeartbeats
from streams.store.redis_log import RedisReportLog
from streams.store.redis_queue import RedisRecomputeQueue, RedisWindowQueue
from streams.store.redis_sources import RedisSources


class RedisStore:
    """A `Store` and the heartbeats of workers. Threads may share all but the queue's search after a restart.

    Args:
        client: a client with `decode_responses=False`; see `connect` for one with the right time-outs.
        prefix: stands before every key, so that several collectors or tests can share a Redis.
    """

    def __init__(self, client: redis.Redis | ClusterClient, *, prefix: str = "") -> None:
        connection = RedisConnection(client, prefix=prefix)
        self._client = connection.client
        self.log = RedisReportLog(connection)
        self.queue = RedisRecomputeQueue(connection)
        self.unreadable = RedisWindowQueue(connection, name="unreadable", lock="rebuild")
        self.estimates = RedisEstimates(connection)
        self.states = RedisSmallStates(connection)
        self.heartbeats = RedisHeartbeats(connection)
        self.sources = RedisSources(connection)

    @classmethod
    def connect(
        cls, url: str, *, prefix: str = "", ca_file: str | None = None, timeout_seconds: float = ANSWER_SECONDS
    ) -> RedisStore:
        """Return a store for an address such as `redis://127.0.0.1:6379/0`; it connects with the first call."""
        return cls(connect(url, ca_file=ca_file, timeout_seconds=timeout_seconds), prefix=prefix)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def now_ms(self) -> int:
        """Return the time by which Redis lets keys expire."""
        with translated(self._client):
            seconds, microseconds = self._client.time()
        return int(seconds * 1_000 + microseconds // 1_000)

    def durability_warnings(self) -> list[str]:
        """Say which guarantees the settings of this Redis cannot keep."""
        try:
            with translated(self._client):
                asked = ("maxmemory-policy", "appendonly", "appendfsync")
                found = [server.config_get(*asked) for server in servers(self._client)]
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, ResponseError):
                raise
            return [redis_checks.UNREADABLE]
        told = [
            warning
            for server in found
            for warning in redis_checks.warnings({_text(name): _text(value) for name, value in server.items()})
        ]
        return list(dict.fromkeys(told))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
