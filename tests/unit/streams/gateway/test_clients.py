"""Both clients of this project before a gateway that takes little of them, or answers what it should not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.spec_stories import served
from producers.device.agent import Device
from producers.survey.survey import parse_survey
from producers.wire.http import HttpTransport
from tests.support.surveys import WINDOW_MS, survey_text
from tests.support.web_client import FOLDER, run_node
from tests.unit.streams.gateway.test_mixing import LATER
from tests.unit.streams.gateway.test_server import TOKEN, Served, credentials, serve

LABELS = ", ".join(f'"v{number}"' for number in range(400))
TEXTS = {
    "many": survey_text(name='name = "many"', retention='retention = "1h"'),
    "wide": survey_text(name='name = "wide"', values=f"values = [{LABELS}]").replace("grr", "oue"),
}
MANY, WIDE = map(parse_survey, TEXTS.values())
WINDOWS = 15
REPORTS = 2 * WINDOWS + 1
"""Of every window the first rung and the top, and one large report that is at its first rung."""

SCRIPT = f"""
import {{ Device, Gateway, Survey }} from "{FOLDER}/index.js";
import {{ FileStore }} from "{FOLDER}/node.js";
let text = "";
for await (const part of process.stdin) text += part;
const {{ url, token, ledger, surveys, observed, now_ms: nowMs }} = JSON.parse(text);
const known = await Promise.all(surveys.map((one) => Survey.of(one)));
const device = new Device(new FileStore(ledger), known, new Gateway(url, {{ token }}));
for (const [place, value, moment] of observed) await device.observe(known[place], value, moment);
const {{ sent, waiting, refused }} = await device.tick(nowMs);
console.log(JSON.stringify([sent, waiting, refused.join()]));
"""

OBSERVED = [*((0, "red", LATER - window * WINDOW_MS) for window in range(WINDOWS + 1, 1, -1)), (1, "v7", LATER)]


class Told(NamedTuple):
    """What a client says after a tick: what it sent, what waits, and why."""

    sent: int
    waiting: int
    why: str


Client = Callable[[Path, str, list[Any], int], Told]


def python(folder: Path, url: str, observed: list[Any], now_ms: int, caplog: pytest.LogCaptureFixture) -> Told:
    transport = HttpTransport(url, token=TOKEN)
    caplog.clear()
    try:
        with Device(folder / "ledger", [MANY, WIDE], transport) as device:
            for place, value, moment_ms in observed:
                device.observe((MANY, WIDE)[place], value, moment_ms)
            tick = device.tick(now_ms)
    finally:
        transport.close()
    return Told(tick.sent, tick.waiting, caplog.text)


def web(folder: Path, url: str, observed: list[Any], now_ms: int) -> Told:
    script = folder / "client.mjs"
    script.write_text(SCRIPT)
    given = {"url": url, "token": TOKEN, "ledger": str(folder / "ledger.json"), "observed": observed, "now_ms": now_ms}
    done = run_node(script, given={**given, "surveys": [served(MANY), served(WIDE)]})
    assert done.returncode == 0, done.stderr
    return Told(*json.loads(done.stdout))


@pytest.fixture(params=["python", "web"])
def client(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Client:
    return partial(python, caplog=caplog) if request.param == "python" else web


def told_by(client: Client, folder: Path, observed: list[Any], now_ms: int, **limits: int) -> tuple[Told, float, float]:
    """Let a client live with a gateway; return what it says, the confirmed reports and the requests too large."""
    found = []

    async def story(gateway: Served) -> None:
        url = str(gateway.client.make_url("/"))
        told = await asyncio.to_thread(client, folder, url, observed, now_ms)
        reports = sum(gateway.metric("thaw_gateway_reports_total", survey=asked.id) for asked in (MANY, WIDE))
        found.append((told, reports, gateway.metric("thaw_gateway_refused_total", reason="large")))

    for name, text in TEXTS.items():
        (folder / f"{name}.toml").write_text(text)
    serve(folder, story, gateway_credentials=credentials(folder, **limits))
    [only] = found
    return only


@pytest.mark.parametrize(("request_bytes", "wait"), [(1_000, 0), (100, 1), (1, REPORTS)])
def test_a_gateway_that_takes_small_requests_gets_all_that_fits_and_the_rest_waits_until_it_takes_more(
    client: Client, request_bytes: int, wait: int, tmp_path: Path
) -> None:
    told, confirmed, too_large = told_by(client, tmp_path, OBSERVED, LATER, request_bytes=request_bytes)
    assert (told.sent, told.waiting, confirmed) == (REPORTS - wait, wait, REPORTS - wait)
    assert ("at most" in told.why) == (wait > 0), "who waits says why"
    assert 1 <= too_large <= 12, "requests are halved, and what is as large as a refused report is not tried"
    told, confirmed, too_large = told_by(client, tmp_path, [], LATER + WINDOW_MS, request_bytes=1 << 20)
    assert (told.waiting, confirmed, too_large) == (0, wait, 0)


def test_what_was_confirmed_before_a_gateway_tells_to_wait_is_not_sent_again(client: Client, tmp_path: Path) -> None:
    told, confirmed, _ = told_by(client, tmp_path, OBSERVED, LATER, request_bytes=1_000, reports_per_second=1)
    assert 0 < confirmed < REPORTS
    assert (told.sent, told.waiting) == (confirmed, REPORTS - confirmed)


@contextmanager
def answering(status: int, answer: Any) -> Iterator[str]:
    """Serve one answer to everything; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="answers", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("frame", [REPORTS, -1])
@pytest.mark.parametrize("again", [True, False])
def test_a_refusal_of_a_frame_that_was_not_sent_changes_nothing(
    client: Client, frame: int, again: bool, tmp_path: Path
) -> None:
    named = {"frame": frame, "reason": "expired", "text": "it is late", "again": again}
    with answering(422, {"reason": "expired", "error": "a frame is refused", "frames": [named]}) as url:
        told = client(tmp_path, url, OBSERVED, LATER)
    assert (told.sent, told.waiting) == (0, REPORTS)
