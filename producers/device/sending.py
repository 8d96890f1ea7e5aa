"""Handing outgoing reports to the transport: in random order, again after a failure, deleted once acknowledged."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Sequence

from producers.device.ledger import Ledger
from producers.device.outbox import Outbox, OutgoingReport
from producers.wire.shards import partition_of
from producers.wire.transport import Message, RefusedError, Transport, TransportError

log = logging.getLogger(__name__)

SEND_AT_ONCE = 500
"""Reports handed to the transport in one go. Smaller costs round trips; larger resends more after a crash."""
BACKOFF_FIRST_MS = 1_000
BACKOFF_LAST_MS = 60_000
"""How long a device waits after the transport failed: doubled each time, so that a fleet does not overload a broker."""


class Sender:
    """Empties an outbox. retry_ms is when it tries again after the transport failed, None if it did not fail."""

    def __init__(self, ledger: Ledger, outbox: Outbox, transport: Transport) -> None:
        self._ledger, self._outbox, self._transport = ledger, outbox, transport
        self._backoff_ms = 0
        self._said = ""
        self.retry_ms: int | None = None

    def flush(self, now_ms: int) -> int:
        """Send what is due and delete what was acknowledged; returns the number of acknowledged reports."""
        # The upper bound: a clock that was set back must not stop the device from sending.
        if self.retry_ms is not None and 0 < self.retry_ms - now_ms <= BACKOFF_LAST_MS:
            return 0
        sent = 0
        while ready := self._outbox.ready(now_ms, SEND_AT_ONCE):
            secrets.SystemRandom().shuffle(ready)
            try:
                partitions = self._transport.partitions
                self._transport.send(
                    [Message(partition_of(report.shard, partitions), report.frame) for _, report in ready]
                )
            except RefusedError as error:
                sent += self._remove(ready, error.confirmed, now_ms)
                self._set_aside([number for number, _ in ready], error, now_ms)
                continue
            except TransportError as error:
                sent += self._remove(ready, error.confirmed, now_ms)
                self._backoff_ms = min(max(2 * self._backoff_ms, BACKOFF_FIRST_MS), BACKOFF_LAST_MS)
                self._backoff_ms = min(max(self._backoff_ms, round(error.wait_seconds * 1_000)), BACKOFF_LAST_MS)
                if self.retry_ms is None:
                    log.warning("reports wait in the outbox: %s; sending again within a minute", error)
                self.retry_ms = now_ms + self._backoff_ms
                return sent
            if self.retry_ms is not None:
                log.info("the broker acknowledges again; sending the outbox")
            self._backoff_ms, self.retry_ms = 0, None
            sent += self._remove(ready, range(len(ready)), now_ms)
        # What is put off has a time of its own.
        self.retry_ms = None
        return sent

    def _remove(self, ready: Sequence[tuple[int, OutgoingReport]], confirmed: Collection[int], now_ms: int) -> int:
        """Delete what was acknowledged, and return how many that are."""
        if confirmed:
            with self._ledger.transaction():
                self._outbox.remove((ready[place][0] for place in confirmed), now_ms)
        return len(confirmed)

    def _set_aside(self, numbers: Sequence[int], error: RefusedError, now_ms: int) -> None:
        """Delete what will never be taken, since it would be refused for ever, and keep what may be taken later."""
        # What waits is tried again every minute, for as long as it takes: that is said once.
        if error.refused or str(error) != self._said:
            log.warning("%d reports are not taken and %d later: %s", len(error.refused), len(error.postponed), error)
        self._said = str(error)
        with self._ledger.transaction():
            self._outbox.drop(numbers[place] for place in error.refused)
            self._outbox.postpone((numbers[place] for place in error.postponed), now_ms + BACKOFF_LAST_MS)
