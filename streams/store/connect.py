"""The store and the simulated truth as the settings name them."""

from __future__ import annotations

from typing import Final

from streams.connections import redis_ca_file
from streams.settings import Settings
from streams.store.redis import RedisStore
from streams.store.redis_connection import ANSWER_SECONDS, connect
from streams.store.truth import RedisTruths

TRUTH_SECONDS: Final = 3.0
"""How long one answer may take when the truth is written or read, twice at most. Longer: a fleet is slower to say that
Redis hangs."""


def open_store(settings: Settings, *, timeout_seconds: float = ANSWER_SECONDS) -> RedisStore:
    """Return the store; it connects with its first call. Every thread needs one of its own."""
    return RedisStore.connect(
        settings.redis, prefix=settings.prefix, ca_file=redis_ca_file(settings), timeout_seconds=timeout_seconds
    )


def read_truths(settings: Settings, *, timeout_seconds: float) -> RedisTruths:
    """Return the truth of simulated fleets for a reader that has no time to retry."""
    return RedisTruths(
        connect(settings.redis, ca_file=redis_ca_file(settings), timeout_seconds=timeout_seconds),
        prefix=settings.prefix,
    )


def open_truths(settings: Settings) -> RedisTruths:
    """Return the truth of simulated fleets. This client retries once: writing the truth twice changes nothing."""
    return RedisTruths(
        connect(settings.redis, ca_file=redis_ca_file(settings), timeout_seconds=TRUTH_SECONDS, retries=1),
        prefix=settings.prefix,
    )
