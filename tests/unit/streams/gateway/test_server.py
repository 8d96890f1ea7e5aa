"""The gateway's answers, by a real HTTP server over a broker that does what it is told."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from producers.survey.folder import SurveyFolder
from producers.wire.transport import Message
from streams.gateway import server
from streams.gateway.broker import NotAcknowledgedError
from streams.gateway.credentials import Credentials
from streams.gateway.documents import Documents
from streams.gateway.limits import BURST_SECONDS
from streams.gateway.metrics import GatewayMetrics
from streams.gateway.openapi import FRAMES
from streams.settings import Settings, SettingsError
from tests.support.surveys import survey, survey_text
from tests.unit.streams.gateway.test_mixing import LATER, body

ASKED = survey()
TOKEN = "0123456789abcdef0123456789abcdef"


class Held:
    """A broker that acknowledges, refuses, or leaves everybody waiting until it is let go."""

    partitions: int | None = 4
    up = 1.0

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.fails, self.go = False, asyncio.Event()
        self.go.set()

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def now_ms(self) -> int:
        return LATER

    def offset_ms(self) -> int | None:
        return None

    async def send(self, messages: Sequence[Message]) -> None:
        await self.go.wait()
        if self.fails:
            raise NotAcknowledgedError("away")
        self.sent += messages


class Served:
    """One gateway: its broker, its metrics, and a client."""

    def __init__(
        self,
        broker: Held,
        metrics: GatewayMetrics,
        client: TestClient[Any, Any],
        stop: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.broker, self.metrics, self.client, self.stop = broker, metrics, client, stop

    async def post(self, raw: bytes, **headers: str) -> tuple[int, dict[str, Any], str]:
        given = {"Content-Type": FRAMES, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.client.post("/v1/frames", data=io.BytesIO(raw), headers=given) as answer:
            return answer.status, await answer.json(), answer.headers.get("Retry-After", "")

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def serve(folder: Path, story: Callable[[Served], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a story with a gateway."""
    (folder / "colour.toml").write_text(survey_text())
    given = Settings(surveys=str(folder), **{"gateway_hold_ms": 1, "gateway_rate": 0, **settings})

    async def run() -> None:
        broker, metrics, files = Held(), GatewayMetrics(), SurveyFolder(folder, LATER)
        made = server.Gateway(given, files, Documents(files, valid_hours=1, clock=lambda: LATER), broker, metrics)
        app = server.make_app(made, given.gateway_origins)
        async with TestClient(TestServer(app)) as client:
            await story(Served(broker, metrics, client, app.shutdown))
            broker.go.set()

    asyncio.run(run())


def credentials(folder: Path, **more: Any) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    path = folder / "credentials"
    path.write_text("\n".join(["[[credential]]", 'name = "relay"', f'token_sha256 = "{digest}"', *lines]))
    return str(path)


def test_a_holder_of_a_token_may_send_what_its_credential_says(tmp_path: Path) -> None:
    some = body(ASKED, 10_000, seed=1)

    async def story(gateway: Served) -> None:
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            assert (await gateway.post(some, **wrong))[0] == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        status, answer, _ = await gateway.post(bytes(2 * len(some)), **known)
        assert (status, answer["reason"]) == (413, "large")
        # Far more than a burst passes once, and is owed for longer than this test runs.
        assert (await gateway.post(some, **known))[0] == 200
        status, answer, wait = await gateway.post(some, **known)
        assert (status, answer["reason"]) == (429, "rate")
        assert int(wait) >= 1
        assert gateway.metric("thaw_gateway_refused_total", reason="credential") == 3
        assert gateway.metric("thaw_gateway_postponed_total", reason="rate") == 1
        assert gateway.metric("thaw_gateway_held_bytes") == 0

    serve(tmp_path, story, gateway_credentials=credentials(tmp_path, reports_per_second=2, request_bytes=len(some) + 1))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "credential"),
        ('[[credential]]\nname = "a"', "one of both"),
        (f'[[credential]]\nname = "a"\ntoken_sha256 = "{"A" * 64}"', "lower case"),
        (f'[[credential]]\nname = "a"\ntoken_sha256 = "{"1" * 64}"\ncertificate_sha256 = "{"1" * 64}"', "one of both"),
        (f'[[credential]]\nname = "a"\ncertificate_sha256 = "{"1" * 64}"', "THAW_GATEWAY_CLIENT_CA"),
        (2 * f'[[credential]]\nname = "a"\ntoken_sha256 = "{"1" * 64}"\n', "of its own"),
        (f'[[credential]]\nname = "a"\ntoken_sha256 = "{"1" * 64}"\nrequest_bytes = 0', "request_bytes"),
    ],
)
def test_a_wrong_file_of_credentials_is_refused_at_the_start(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    with pytest.raises(SettingsError, match=why):
        Credentials(Settings(gateway_credentials=str(path)))


def test_refused_frames_count_for_the_rate(tmp_path: Path) -> None:
    async def story(gateway: Served) -> None:
        unknown = body(survey(name='name = "unknown"'), 1_000, seed=1)
        status, answer, _ = await gateway.post(unknown * 20)
        assert status == 422
        assert len(answer["frames"]) > 20 * BURST_SECONDS
        assert (await gateway.post(unknown))[0] == 429

        # Who owes is told so before the body is read.
        where = gateway.client.server
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(f"POST /v1/frames HTTP/1.1\r\nHost: h\r\nContent-Type: {FRAMES}\r\n".encode())
        writer.write(b"Content-Length: 1000000\r\n\r\nTHW")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 429")
        writer.close()
        assert gateway.metric("thaw_gateway_postponed_total", reason="rate") == 2
        assert gateway.metric("thaw_gateway_held_bytes") == 0

    serve(tmp_path, story, gateway_rate=1)


def test_a_broker_that_does_not_acknowledge_is_told_and_what_waits_is_bounded(tmp_path: Path) -> None:
    some = body(ASKED, 2_000, seed=1)
    room = (2 << 20) // len(some)

    async def story(gateway: Served) -> None:
        gateway.broker.go.clear()
        waiting = [asyncio.create_task(gateway.post(some)) for _ in range(room + 5)]
        first, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        while len(first) < 5:
            first, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
        for task in first:
            status, answer, wait = task.result()
            assert (status, answer["reason"], wait) == (503, "busy", "5")
        assert len(first) == 5
        assert room * len(some) <= gateway.metric("thaw_gateway_held_bytes") <= 2 << 20
        gateway.broker.fails = True
        gateway.broker.go.set()
        for task in set(waiting) - first:
            status, answer, wait = await task
            assert (status, answer["reason"], wait) == (503, "broker", "5")
        assert gateway.metric("thaw_gateway_held_bytes") == 0
        assert gateway.metric("thaw_gateway_reports_total", survey=ASKED.id) == 0
        gateway.broker.fails = False
        assert (await gateway.post(some))[0] == 200

    serve(tmp_path, story, gateway_memory_mib=2)


def test_a_body_that_does_not_come_is_given_up_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)

    async def story(gateway: Served) -> None:
        where = gateway.client.server
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(b"POST /v1/frames HTTP/1.1\r\nHost: h\r\nContent-Type: application/octet-stream\r\n")
        writer.write(b"Content-Length: 1000000\r\n\r\nTHW")
        answer = await reader.readuntil(b"\r\n")
        assert answer.startswith(b"HTTP/1.1 408")
        writer.close()
        assert gateway.metric("thaw_gateway_held_bytes") == 0
        assert gateway.metric("thaw_gateway_postponed_total", reason="slow") == 1

    serve(tmp_path, story)


def test_what_is_held_at_a_stop_is_sent_and_confirmed_and_nothing_more_is_taken(tmp_path: Path) -> None:
    some = body(ASKED, 10, seed=1)

    async def story(gateway: Served) -> None:
        waiting = asyncio.create_task(gateway.post(some))
        while not gateway.metric("thaw_gateway_held_bytes"):
            await asyncio.sleep(0)
        await gateway.stop()
        status, answer, _ = await waiting
        assert (status, answer["reports"]) == (200, 10)
        status, answer, wait = await gateway.post(some)
        assert (status, answer["reason"], wait) == (503, "stopping", "5")
        assert len(gateway.broker.sent) > 0

    serve(tmp_path, story, gateway_hold_ms=60_000)


def test_a_client_that_goes_away_leaves_its_reports_with_the_batch(tmp_path: Path) -> None:
    async def story(gateway: Served) -> None:
        gateway.broker.go.clear()
        async with ClientSession() as other:
            url = gateway.client.make_url("/v1/frames")
            request = asyncio.create_task(
                other.post(url, data=body(ASKED, 10, seed=1), headers={"Content-Type": FRAMES})
            )
            while not gateway.metric("thaw_gateway_held_bytes"):
                await asyncio.sleep(0)
            request.cancel()
        gateway.broker.go.set()
        while gateway.metric("thaw_gateway_held_bytes"):
            await asyncio.sleep(0)
        assert len(gateway.broker.sent) > 0

    serve(tmp_path, story)


def test_pages_of_named_origins_may_send_and_others_may_not(tmp_path: Path) -> None:
    async def story(gateway: Served) -> None:
        for origin, allowed in (("https://a.example", "https://a.example"), ("https://b.example", None)):
            async with gateway.client.options("/v1/frames", headers={"Origin": origin}) as answer:
                assert answer.headers.get("Access-Control-Allow-Origin") == allowed
            async with gateway.client.get("/v1/surveys", headers={"Origin": origin}) as answer:
                assert answer.headers.get("Access-Control-Allow-Origin") == allowed

    serve(tmp_path, story, gateway_origins="https://a.example")


def test_without_named_origins_no_page_may_send(tmp_path: Path) -> None:
    async def story(gateway: Served) -> None:
        async with gateway.client.options("/v1/frames", headers={"Origin": "https://a.example"}) as answer:
            assert answer.status == 405
            assert not [name for name in answer.headers if name.startswith("Access-Control-")]

    serve(tmp_path, story)
