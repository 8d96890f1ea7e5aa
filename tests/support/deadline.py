"""Waiting for a condition: polling with a deadline, never sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# How much slower than a quiet machine a busy one may be. A smaller factor fails tests whose processes got no CPU; a
# larger one only delays the report of a failure.
BUSY = 4
# How long to wait, on a quiet machine, for live services to be seen in a state that only some of their windows reach.
COINCIDENCE = 300

# How long a process may take to end, a request to be answered, or a broker to do what an administrator asks, where
# `until` is not what waits. Used up only by a test that fails.
END_SECONDS = 60 * BUSY


def until(
    condition: Callable[[], Result | None], deadline_seconds: float, what: str, *, poll_seconds: float = 0.02
) -> Result:
    """Call `condition` until it returns something true, and return that.

    Deadlines are generous: they are only ever used up by a test that fails.

    Args:
        condition: looked at again and again, and once more after the deadline.
        deadline_seconds: how long to wait on a quiet machine; a busy one gets `BUSY` times as long.
        what: what is waited for, for the message.
        poll_seconds: pause between two looks.

    Raises:
        AssertionError: it did not happen; the message carries what `condition` returned last.
    """
    limit = time.monotonic() + BUSY * deadline_seconds
    while True:
        late = time.monotonic() >= limit
        result = condition()
        if result:
            return result
        if late:
            raise AssertionError(f"expected {what} within {BUSY * deadline_seconds:g} s; the last look gave {result!r}")
        time.sleep(poll_seconds)
