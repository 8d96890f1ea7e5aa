"""What went wrong with sending, counted between a device and its transport, and throttled after a long time offline.

The counts leave the device as the answers of a survey alone, through the same mechanism as all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from producers.clock import Clock, system_clock
from producers.wire.transport import Message, RefusedError, Transport, TransportError

FINE, SOME_WAITED, MANY_WAITED, REFUSED, DOCUMENTS = VALUES = (
    "all were sent",
    "1 to 9 waited",
    "10 or more waited",
    "some were refused",
    "a survey or bulletin was refused",
)
"""The values of a survey of client reports, in this order: see deploy/device/client_reports.toml."""
_MANY: Final = 10
MINUTE_MS: Final = 60_000


class Troubles:
    """Counts since the last look: reports that were refused, that waited, and documents that the device refused."""

    def __init__(self) -> None:
        self.refused = self.waited = self.documents = 0

    def value(self) -> str:
        """Return what happened, as a value of a survey: the worst of it."""
        if self.refused:
            return REFUSED
        if self.documents:
            return DOCUMENTS
        return FINE if not self.waited else MANY_WAITED if self.waited >= _MANY else SOME_WAITED

    def forget(self) -> None:
        """Begin again."""
        self.refused = self.waited = self.documents = 0


class WatchedTransport:
    """Another transport, with its troubles counted, and at most so many reports a minute.

    A device that was offline for long has many reports, whose delays are over. Sent together they would show that they
    are of one device, and a fleet that comes back at once would overload the gateway: what is too much is put off.
    """

    def __init__(self, inner: Transport, troubles: Troubles, *, per_minute: int, clock: Clock = system_clock) -> None:
        self._inner, self._troubles, self._per_minute, self._clock = inner, troubles, per_minute, clock
        self._since_ms, self._sent = 0, 0

    @property
    def partitions(self) -> int:
        """Those of the inner one."""
        return self._inner.partitions

    def send(self, messages: Sequence[Message]) -> None:
        """Send as many as this minute has room for; the others are named in RefusedError as postponed, before."""
        now_ms = self._clock()
        if not 0 <= now_ms - self._since_ms < MINUTE_MS:
            self._since_ms, self._sent = now_ms, 0
        room = self._per_minute - self._sent
        if len(messages) > room:
            later = frozenset(range(max(room, 0), len(messages)))
            raise RefusedError(f"at most {self._per_minute} reports a minute are sent", {}, later)
        try:
            self._inner.send(messages)
        except TransportError as error:
            self._sent += len(error.confirmed)
            waits = len(messages) - len(error.confirmed)
            if isinstance(error, RefusedError):
                self._troubles.refused += len(error.refused)
                waits = len(error.postponed)
            self._troubles.waited = max(self._troubles.waited, waits)
            raise
        self._sent += len(messages)
