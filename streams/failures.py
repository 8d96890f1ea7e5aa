"""Failures of other services that a command explains in one sentence. Imports nothing, so every room may use it."""

from __future__ import annotations

from typing import ClassVar, Final

NOT_READY: Final = 75
"""The exit status that says: a service did not answer; try again."""


class OutsideError(Exception):
    """Another service refuses, or is not as it must be; the message says what to change."""

    exit_status: ClassVar[int] = 1

    def sentence(self) -> str:
        """Return it for a person: what is wrong, and the remedy."""
        return str(self)


class UnavailableError(OutsideError):
    """Another service does not answer now; the same command may succeed later."""

    exit_status = NOT_READY
