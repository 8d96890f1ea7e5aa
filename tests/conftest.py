"""Fixtures for all tests; `tests/README.md` says where a new test goes."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from streams.local.kafka import ApacheKafka
from streams.local.redis import Redis
from tests.support import telling
from tests.support.services import REAL_FIXTURES, fresh_name, in_ci, running

# No deadline per example: machines are shared, and how fast an example runs is not what properties are about.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if in_ci() else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--told-within", type=float, metavar="SECONDS", help="fail if somebody is told of a fault later than that"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A forgotten mark must not start a second broker in the lane of pure tests.
    for item in items:
        if REAL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
        if "tells" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.told)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    limit = session.config.getoption("told_within")
    if limit is not None and exitstatus == 0 and (not telling.TOLD or telling.late_ones(limit)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    limit = config.getoption("told_within")
    if limit is not None:
        for line in telling.report(limit):
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def environment_is_left_as_it_was() -> Iterator[None]:
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for environment in (before, after):
        environment.pop("PYTEST_CURRENT_TEST", None)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"the test left changed environment variables behind: {changed}; use monkeypatch.setenv"


@pytest.fixture
def tells() -> telling.Tells:
    """Measures how long it takes until somebody is told of a fault; see `make told`."""
    return telling.Tells()


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
def other_kafka() -> Iterator[ApacheKafka]:
    """Another cluster, which a test may stop for a while (`hung`), but not kill."""
    with running(ApacheKafka) as service:
        yield service


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
