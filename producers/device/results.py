"""What a device says of a call: what it did, or why it did not."""

from __future__ import annotations

from dataclasses import dataclass


class ValueFixedError(RuntimeError):
    """The window already has a chain for another value, or its chain was erased. Nothing was released.

    Another value is noticed only by the process that drew the chain, since the value is not stored. After a restart the
    stored chain is returned: the first value stands.
    """


class ReleaseError(RuntimeError):
    """A level was asked for that cannot be released on demand, or not yet. Nothing was released."""


@dataclass(frozen=True)
class Tick:
    """What one tick did: reports released, acknowledged and still waiting, and what was refused and why."""

    released: int
    sent: int
    waiting: int
    refused: tuple[str, ...]
