"""The stores that every contract test runs on: the one in memory, and a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.store.contract import Store
from streams.store.redis import RedisStore
from tests.support.memory_store import MemoryStore


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.real)])
def store(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Store]:
    if request.param == "redis":
        real = RedisStore.connect(request.getfixturevalue("redis_url"), prefix=key_prefix)
        yield real
        real.close()
    else:
        yield MemoryStore()
