"""The store and the simulated truth as the settings name them."""

from __future__ import annotations

from redis import Redis

from streams.settings import Settings
from streams.store.redis import RedisStore
from streams.store.redis_connection import connect
from streams.store.truth import RedisTruths


def open_store(settings: Settings, *, timeout_seconds: float = 5.0) -> RedisStore:
    """Return the store; it connects with its first call. Every thread needs one of its own."""
    ca_file = settings.redis_ca or None
    return RedisStore.connect(settings.redis, prefix=settings.prefix, ca_file=ca_file, timeout_seconds=timeout_seconds)


def read_truths(settings: Settings, *, timeout_seconds: float) -> RedisTruths:
    """Return the truth of simulated fleets for a reader that has no time to retry."""
    ca_file = settings.redis_ca or None
    return RedisTruths(
        connect(settings.redis, ca_file=ca_file, timeout_seconds=timeout_seconds), prefix=settings.prefix
    )


def open_truths(settings: Settings) -> RedisTruths:
    """Return the truth of simulated fleets. This client retries: writing the truth twice changes nothing."""
    ca = {"ssl_ca_certs": settings.redis_ca} if settings.redis_ca and settings.redis.startswith("rediss://") else {}
    client = Redis.from_url(
        settings.redis, socket_timeout=5.0, socket_connect_timeout=5.0, health_check_interval=30, **ca
    )
    return RedisTruths(client, prefix=settings.prefix)
