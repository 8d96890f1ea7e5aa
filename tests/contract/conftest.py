"""The stores that every contract test runs on: the one in memory, a real Redis, and a real Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.store.contract import Store
from streams.store.redis import RedisStore
from tests.support.clock import ManualClock
from tests.support.damaged import KEY, NOW_MS, SEGMENTS, Damaged, on_redis
from tests.support.memory_store import MemoryStore
from tests.support.redis_cluster import RedisCluster
from tests.support.services import started

ADDRESSES = {"redis": "redis_url", "cluster": "cluster_url"}
REAL = [pytest.param(name, marks=pytest.mark.real) for name in ADDRESSES]


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of three masters, so that keys of one call with different hash tags are refused."""
    with started(lambda: RedisCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster.url


@pytest.fixture(params=["memory", *REAL])
def store(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Store]:
    if request.param in ADDRESSES:
        real = RedisStore.connect(request.getfixturevalue(ADDRESSES[request.param]), prefix=key_prefix)
        yield real
        real.close()
    else:
        yield MemoryStore()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.real)])
def damaged(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Damaged]:
    clock = ManualClock(NOW_MS)
    if request.param == "memory":
        memory = MemoryStore(clock)

        def write(part: str, raw: bytes) -> None:
            if part in SEGMENTS:
                memory.segments(KEY)[SEGMENTS[part]] = raw
            else:
                memory.stored_tally(KEY)[:] = raw

        yield Damaged(memory, write, clock)
        return
    real = RedisStore.connect(request.getfixturevalue("redis_url"), prefix=key_prefix)
    yield on_redis(real, clock)
    real.close()
