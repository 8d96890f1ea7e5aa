"""Real services for tests: started once, and loudly absent."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NoReturn, TypeVar

import pytest

from streams.local.process import ServiceMissing
from streams.local.service import Service

AnyService = TypeVar("AnyService", bound=Service)
Started = TypeVar("Started", bound=AbstractContextManager[object])

REAL_FIXTURES = frozenset({"kafka", "kafka_server", "other_kafka", "redis_server", "redis_url"})
"""Fixtures that start a real service; a test that asks for one runs in the lane of real services."""


def in_ci() -> bool:
    """Tell whether a missing service is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing(reason: str) -> NoReturn:
    """Skip the test with the reason, or fail it in CI."""
    if in_ci():
        pytest.fail(f"in CI every service must be there: {reason}", pytrace=False)
    pytest.skip(reason)


@contextmanager
def running(make: Callable[[], AnyService]) -> Iterator[AnyService]:
    """Run the service that `make` returns; where it is not installed, skip with the reason (in CI: fail)."""
    with started(make) as service:
        yield service


@contextmanager
def started(make: Callable[[], Started]) -> Iterator[Started]:
    """Do the same with anything that starts services on entry and stops them on exit."""
    with ExitStack() as stack:
        try:
            services = make()
            stack.enter_context(services)
        except ServiceMissing as error:
            missing(str(error))
        yield services


def fresh_name() -> str:
    """Return a short name that no other test uses, fit for topics, groups and keys."""
    return "t" + secrets.token_hex(5)
