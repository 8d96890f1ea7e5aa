"""Real parts for tests: started once, and loudly absent."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, TypeVar

import pytest

from streams.local.services import Part, PartMissing

AnyPart = TypeVar("AnyPart", bound=Part)

REAL_FIXTURES = frozenset({"kafka", "redis_server", "redis_url"})
"""Fixtures that start a real part; a test that asks for one runs in the lane of real parts."""


def in_ci() -> bool:
    """Tell whether a missing part is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing(reason: str) -> NoReturn:
    """Skip the test with the reason, or fail it in CI."""
    if in_ci():
        pytest.fail(f"in CI every part must be there: {reason}", pytrace=False)
    pytest.skip(reason)


@contextmanager
def running(make: Callable[[], AnyPart]) -> Iterator[AnyPart]:
    """Run the part that `make` returns; where it is not installed, skip with the reason (in CI: fail)."""
    with ExitStack() as stack:
        try:
            part = make()
            stack.enter_context(part)
        except PartMissing as error:
            missing(str(error))
        yield part


def fresh_name() -> str:
    """Return a short name that no other test uses, fit for topics, groups and keys."""
    return "t" + secrets.token_hex(5)
