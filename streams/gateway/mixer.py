"""Holding reports until enough have come or the time is over, then sending them mixed.

Requests wait until the broker has their batch: a killed gateway has confirmed nothing that is lost, and a client that
got no answer sends the same bytes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from producers.wire.transport import Message
from streams.gateway.broker import NotAcknowledgedError
from streams.gateway.judge import Taken
from streams.gateway.mixing import mixed


class Sink(Protocol):
    """Where batches go."""

    partitions: int | None

    async def send(self, messages: Sequence[Message]) -> None:
        """Return when the brokers have all messages; NotAcknowledgedError otherwise."""
        ...


@dataclass
class _Batch:
    done: asyncio.Future[None]
    taken: list[Taken] = field(default_factory=list)
    reports: int = 0
    requests: int = 0
    timer: asyncio.TimerHandle | None = None


class Mixer:
    """Collects the frames of requests into batches.

    Args:
        sink: where batches go.
        hold_ms: how long the first report of a batch is held.
        hold_reports: how many reports end a batch before that.
        on_batch: told the number of requests in every batch that is sent.
    """

    def __init__(
        self, sink: Sink, *, hold_ms: int, hold_reports: int, on_batch: Callable[[int], None] = lambda _: None
    ) -> None:
        self._sink, self._hold_ms, self._hold_reports, self._on_batch = sink, hold_ms, hold_reports, on_batch
        self._batch: _Batch | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._closing = False

    def put(self, taken: Sequence[Taken]) -> asyncio.Future[None]:
        """Add the frames of one request; the result is done when the broker has them, or failed if it has not.

        Several requests share it: shield it where a wait may be cancelled.
        """
        loop = asyncio.get_running_loop()
        batch = self._batch
        if batch is None:
            batch = self._batch = _Batch(loop.create_future())
            # A client that has gone does not collect the failure of its batch.
            batch.done.add_done_callback(lambda done: done.cancelled() or done.exception())
            batch.timer = loop.call_later(self._hold_ms / 1_000, self.flush)
        batch.taken += taken
        batch.reports += sum(len(frame.reports) for frame in taken)
        batch.requests += 1
        if batch.reports >= self._hold_reports or self._closing:
            self.flush()
        return batch.done

    def flush(self) -> None:
        """Send what is held now."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        if batch.timer is not None:
            batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._send(batch))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Send what is held, without holding what still comes, and wait for what is on its way."""
        self._closing = True
        self.flush()
        while self._under_way:
            await asyncio.wait(tuple(self._under_way))

    async def _send(self, batch: _Batch) -> None:
        try:
            partitions = self._sink.partitions
            if partitions is None:
                raise NotAcknowledgedError("no broker has told the number of partitions yet")
            self._on_batch(batch.requests)
            # Passed on without a name, so that the bytes are here once and not three times while a broker is awaited.
            await self._sink.send(_let_go(batch, partitions))
        except NotAcknowledgedError as error:
            batch.done.set_exception(error)
        except Exception as error:
            batch.done.set_exception(NotAcknowledgedError(f"{type(error).__name__}: {error}"))
            raise
        else:
            batch.done.set_result(None)


def _let_go(batch: _Batch, partitions: int) -> list[Message]:
    taken, batch.taken = batch.taken, []
    return mixed(taken, partitions)
