"""The sockets of the exporter: limits on connections, on request heads and on slow clients.

aiohttp refuses what is malformed and closes what is idle; this module sets its limits, closes clients that do not read
their answers, and keeps what strangers send out of the log.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from streams.logs import RateLimit

logger = logging.getLogger(__name__)

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\ntoo many connections\n"
)
REPEAT_SECONDS: Final = 60.0
"""Time between two log lines about what strangers send."""


RESERVED_FILES: Final = 256
"""File descriptors that are left to connections to other services, logs and survey files."""


def connections_possible(wanted: int) -> int:
    """Allow as many open files as there may be connections, where this user may; return how many there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_FILES))


@dataclass(frozen=True)
class Limits:
    """How much one client, and all together, may take."""

    connections: int = 2_048
    """More are answered 503 at once, or more than file descriptors of the process allow, but for RESERVED_FILES."""
    idle_seconds: float = 20.0
    """A connection without a whole request head for this long is closed, whether bytes trickle in or not. Shorter:
    Prometheus connects anew at every scrape."""
    handshake_seconds: float = 10.0
    """A client that has not agreed on TLS for this long is closed. Such connections are not counted yet. Shorter:
    clients far away on bad networks."""
    slow_seconds: float = 60.0
    """A client that has not read all of what was sent for this long is closed. Shorter: phones on bad networks."""
    line_bytes: int = 8_190
    """Longest request line and longest header."""
    headers: int = 100


class _Full(asyncio.Protocol):
    """Refuses one connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()


class _Quiet(logging.Filter):
    """Makes one line a minute, without a traceback, of what aiohttp logs about malformed requests.

    With `nameless` no line has the address that aiohttp puts into it.
    """

    def __init__(self, *, nameless: bool = False) -> None:
        super().__init__()
        self._limit, self._nameless = RateLimit(REPEAT_SECONDS), nameless

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if self._nameless:
            record.msg, record.args = "a request could not be handled", ()
            record.exc_info = record.exc_text = None
            return self._limit.filter(record)
        if not isinstance(error, HttpProcessingError):
            return True
        record.msg, record.exc_info, record.exc_text = f"malformed request refused, {record.msg}", None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return self._limit.filter(record)


class Front:
    """Accepts connections for an application within the limits."""

    def __init__(self, app: web.Application, limits: Limits | None = None, *, nameless: bool = False) -> None:
        self._limits = limits or Limits()
        self._most = connections_possible(self._limits.connections)
        requests = logging.getLogger("streams.gateway.requests" if nameless else "streams.exporter.requests")
        if not any(isinstance(known, _Quiet) for known in requests.filters):
            requests.addFilter(_Quiet(nameless=nameless))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=requests,
            keepalive_timeout=self._limits.idle_seconds,
            lingering_time=2.0,
            max_line_size=self._limits.line_bytes,
            max_field_size=self._limits.line_bytes,
            max_headers=self._limits.headers,
            shutdown_timeout=2.0,
        )
        self._said = -REPEAT_SECONDS
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections from this bound socket, with TLS if a context is given."""
        await self._runner.setup()
        limit = None if tls is None else self._limits.handshake_seconds
        self._server = await asyncio.get_running_loop().create_server(
            self._accept, sock=listener, ssl=tls, ssl_handshake_timeout=limit
        )
        self._watch = asyncio.create_task(self._close_slow())

    async def stop(self) -> None:
        """Close all connections and end the application."""
        if self._server is not None:
            self._server.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """Open connections."""
        server = self._runner.server
        return 0 if server is None else len(server.connections)

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        if self.connections < self._most:
            return server()
        now = asyncio.get_running_loop().time()
        if now - self._said >= REPEAT_SECONDS:
            self._said = now
            logger.warning("%d connections are open; further ones are refused", self._most)
        return _Full()

    async def _close_slow(self) -> None:
        """Close clients whose answers have waited for them for too long."""
        waiting_since: dict[Any, float] = {}
        while True:
            await asyncio.sleep(self._limits.slow_seconds / 10)
            now = asyncio.get_running_loop().time()
            stuck = list(self._transports_with_unread_answers())
            waiting_since = {transport: waiting_since.get(transport, now) for transport in stuck}
            for transport, since in waiting_since.items():
                if now - since >= self._limits.slow_seconds:
                    transport.abort()

    def _transports_with_unread_answers(self) -> Iterable[asyncio.Transport]:
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            transport = connection.transport
            if isinstance(transport, asyncio.Transport) and transport.get_write_buffer_size():
                yield transport


async def serve(
    app: web.Application,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    limits: Limits | None = None,
    nameless: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; `nameless` keeps addresses of clients out of the log."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    front = Front(app, limits, nameless=nameless)
    await front.start(listener, tls)
    try:
        await stop.wait()
    finally:
        await front.stop()
