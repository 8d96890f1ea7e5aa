"""Fixtures for all tests; `tests/README.md` says where a new test goes."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from streams.local.kafka import ApacheKafka
from streams.local.redis import Redis
from tests.support.services import REAL_FIXTURES, fresh_name, in_ci, running

# No deadline per example: machines are shared, and how fast an example runs is not what properties are about.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if in_ci() else "local")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A forgotten mark must not start a second broker in the lane of pure tests.
    for item in items:
        if REAL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)


@pytest.fixture(autouse=True)
def environment_is_left_as_it_was() -> Iterator[None]:
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for environment in (before, after):
        environment.pop("PYTEST_CURRENT_TEST", None)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"the test left changed environment variables behind: {changed}; use monkeypatch.setenv"


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[ApacheKafka]:
    """One real Apache Kafka, shared by all tests: use `topic_prefix`, and start your own before killing one."""
    with running(ApacheKafka) as service:
        yield service


@pytest.fixture(scope="session")
def kafka(kafka_server: ApacheKafka) -> str:
    """Bootstrap address of the shared Kafka."""
    return kafka_server.address


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """One real Redis, shared by all tests: use `key_prefix`, and start your own before killing one."""
    with running(Redis) as service:
        yield service


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """Address of the shared Redis, as `redis://...`."""
    return redis_server.url


@pytest.fixture
def topic_prefix() -> str:
    """Fresh prefix for the topics and consumer groups of one test."""
    return fresh_name() + "."


@pytest.fixture
def key_prefix() -> str:
    """Fresh prefix for the Redis keys of one test."""
    return fresh_name() + "."
