"""The publisher of a simulated fleet that sends through a gateway, over several connections."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from producers.simulation.run import Pending
from producers.wire.frames import FrameError, headers
from producers.wire.http import HttpTransport
from producers.wire.transport import Message, RefusedError

log = logging.getLogger(__name__)

CONNECTIONS: Final = 16
"""Requests under way. Each waits for the gateway's hold and for the broker; fewer send less than a fleet makes."""


class GatewayPublisher:
    """Messages to a gateway, in the order in which a connection is free.

    A frame that the gateway will never take is left out, as a worker leaves it out that reads it from the broker: it is
    late, and its report counts as lost.

    Args:
        url: address of the gateway.
    """

    partitions = 1
    """The gateway knows those of the topic, so that a tick makes few messages."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._mine = threading.local()
        self._opened: list[HttpTransport] = []
        self._threads = ThreadPoolExecutor(CONNECTIONS, "gateway")

    def send(self, partition: int, message: bytes) -> Pending:
        """Hand over one message; the result is there when a broker has it. The gateway chooses partitions."""
        del partition
        return _Sent(self._threads.submit(self._post, frames_in(message)))

    def close(self) -> None:
        """Wait for answers and disconnect."""
        self._threads.shutdown()
        for transport in self._opened:
            transport.close()

    def _post(self, frames: list[Message]) -> None:
        transport = getattr(self._mine, "transport", None)
        if transport is None:
            transport = self._mine.transport = HttpTransport(self._url)
            self._opened.append(transport)
        while frames:
            try:
                transport.send(frames)
            except RefusedError as error:
                if not error.refused:
                    raise
                log.warning("%d frames are not taken: %s", len(error.refused), error)
                done = error.refused.keys() | error.confirmed
                frames = [frame for place, frame in enumerate(frames) if place not in done]
                continue
            return


class _Sent:
    """A message on its way."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    @property
    def is_done(self) -> bool:
        """Tell whether it has been answered, or has failed."""
        return self._future.done()

    def get(self, timeout: float | None = None) -> None:
        """Return when a broker has it, however long a gateway is away: a second sending of it would only add load."""
        del timeout
        self._future.result()


def frames_in(message: bytes) -> list[Message]:
    """Return every frame of a message as a message of its own, so that a refusal names one."""
    found = []
    for header in headers(message):
        if isinstance(header, FrameError):
            raise ValueError(f"a message of a fleet must be good frames; got {header}")
        found.append(Message(0, message[header.start : header.start + header.length]))
    return found
