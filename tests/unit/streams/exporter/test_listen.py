"""The sockets of the exporter, with real clients that misbehave: half-sent, slow, over-long, too many."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from streams.connections import server_tls
from streams.exporter.listen import Front, Limits
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from streams.settings import Settings
from tests.support.certificates import Certificates
from tests.support.clock import ManualClock
from tests.support.exporter import NOW_MS, Known
from tests.support.memory_store import MemoryStore
from tests.support.surveys import survey

HONEST = b"GET /healthz HTTP/1.1\r\nHost: thaw\r\n\r\n"
LIMIT_SECONDS = 60.0
Conversation = Callable[[int, Front], Awaitable[Any]]


def on(limits: Limits, conversation: Conversation, *, big: int = 0, tls: ssl.SSLContext | None = None) -> Any:
    """Run a conversation with an exporter on a port of this machine; `big` adds a path with so large an answer."""

    async def talk() -> Any:
        clock = ManualClock(NOW_MS)
        app = make_app(Reader(MemoryStore(clock), Known(survey()), clock=clock), value_limit=10)

        async def large(_request: web.Request) -> web.Response:
            return web.Response(body=bytes(big))

        if big:
            app.router.add_get("/big", large)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            front = Front(app, limits)
            await front.start(listener, tls)
            try:
                return await asyncio.wait_for(conversation(listener.getsockname()[1], front), LIMIT_SECONDS)
            finally:
                await front.stop()

    return asyncio.run(talk())


async def ask(port: int, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):
        writer.write(request)
        answer = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


CLOSING = HONEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: thaw\r\nX-Half: "])
def test_a_half_sent_request_is_closed(sent: bytes) -> None:
    assert on(Limits(idle_seconds=0.2), lambda port, _: ask(port, sent)) == b""


def test_a_request_that_trickles_in_is_closed_too() -> None:
    async def trickle(port: int, _front: Front) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"G")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return True

    assert on(Limits(idle_seconds=0.5), trickle)


def test_a_client_that_does_not_read_its_answer_is_closed() -> None:
    size = 32 << 20

    async def reads_nothing(port: int, front: Front) -> int:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, b"GET /big HTTP/1.1\r\nHost: thaw\r\n\r\n")
            while not front.connections:
                await asyncio.sleep(0.01)
            while front.connections:
                await asyncio.sleep(0.01)
            # What the system had taken already arrives; the rest was dropped.
            got = 0
            with suppress(ConnectionError):
                while part := await loop.sock_recv(client, 1 << 20):
                    got += len(part)
            return got

    assert on(Limits(slow_seconds=0.3), reads_nothing, big=size) < size


def test_further_connections_are_refused_at_once_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def crowd(port: int, _front: Front) -> tuple[list[bytes], bytes]:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        # Accepted, not only queued by the system: each gets an answer.
        for reader, writer in held:
            writer.write(HONEST)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        refused = [await ask(port, b"") for _ in range(20)]
        for _, writer in held:
            writer.close()
        while True:
            answer = await ask(port, CLOSING)
            if answer.startswith(b"HTTP/1.1 200"):
                await asyncio.gather(*(writer.wait_closed() for _, writer in held), return_exceptions=True)
                return refused, answer

    with caplog.at_level(logging.WARNING):
        refused, _ = on(Limits(connections=5), crowd)
    assert len(refused) == 20
    for answer in refused:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert f"Content-Length: {len(body)}".encode() in head
    assert caplog.messages == ["5 connections are open; further ones are refused"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: thaw\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: thaw\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(5_000)) + b"\r\n",
        b"GET / HTTP/9.9\r\nHost: thaw\r\nContent-Length: x\r\n\r\n",
        bytes(range(256)) * 20,
    ],
)
def test_what_is_over_long_or_malformed_is_refused_without_filling_the_log(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def insist(port: int, _front: Front) -> list[bytes]:
        answers = [await ask(port, request_bytes) for _ in range(50)]
        assert (await ask(port, CLOSING)).startswith(b"HTTP/1.1 200")
        return answers

    with caplog.at_level(logging.WARNING):
        answers = on(Limits(), insist)
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 400", b"HTTP/1.0 400", b""}
    assert len(caplog.records) <= 1
    assert "Traceback" not in caplog.text
    assert len(caplog.text) < 1_000


def test_a_certificate_makes_it_listen_with_tls_and_close_who_does_not_speak_it(tmp_path: Path) -> None:
    made = Certificates(tmp_path)

    async def conversation(port: int, _front: Front) -> tuple[bytes, bytes]:
        trusting = ssl.create_default_context(cafile=str(made.authority))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(HONEST)
        first = await reader.readline()
        writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context(cafile=str(made.stranger)))
        return first, await ask(port, HONEST)

    tls = server_tls(Settings(exporter_cert=str(made.server)))
    first, plain = on(Limits(handshake_seconds=1.0), conversation, tls=tls)
    assert first.startswith(b"HTTP/1.1 ")
    assert b"HTTP" not in plain
