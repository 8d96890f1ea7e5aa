"""The exporter's HTTP server: /metrics for Prometheus, the page at /, /api/v1 for programs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, exposition

from streams.exporter import openapi
from streams.exporter.alert_states import AlertSource, with_runbooks
from streams.exporter.api import Alerts
from streams.exporter.collector import ThawCollector
from streams.exporter.feed import Feed
from streams.exporter.guard import AUDIENCE, HEADERS, guard
from streams.exporter.query import LATEST_MS, check_names, chosen_word, number_in, problem, whole_number
from streams.exporter.reader import Reader
from streams.exporter.shared import Question, SharedAnswers, send, takes_gzip
from streams.exporter.views import MOST_WINDOWS, RECENT_WINDOWS, Views, stored_alerts, survey_info
from streams.exporter.visitors import client_modules, headers, with_gateway
from streams.exporter.watcher import FIRST_SECONDS, Watcher
from streams.folders import runbooks_folder
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

PAGE: Final = Path(__file__).parent / "dashboard"
READERS: Final = 4
"""Threads that read windows at the same time. More: one busy viewer takes all of Redis' time."""
READ_SECONDS: Final = 10.0
"""Longest time of one read, waiting for a thread included. A store that hangs is noticed by the watcher before."""
PING_SECONDS: Final = 15.0
"""Time between two comments on an event stream: proxies close idle connections."""

_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".md": "text/plain",
    "": "text/plain",
}


@dataclass(frozen=True)
class _File:
    body: bytes
    content_type: str
    etag: str


def page_files(folder: Path = PAGE) -> dict[str, _File]:
    """Read all files of the page into memory, by their path; files added later are not served."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in _TYPES:
            files[path.relative_to(folder).as_posix()] = _file_of(path.read_bytes(), path.suffix)
    return files


def _file_of(body: bytes, suffix: str) -> _File:
    return _File(body, _TYPES[suffix], hashlib.sha256(body).hexdigest()[:20])


class Server:
    """The handlers. Metrics, health and alerts are what the watcher saw last; windows are read in threads."""

    def __init__(
        self,
        reader: Reader,
        views: Views,
        alerts: AlertSource | None,
        *,
        value_limit: int,
        runbooks: str,
        demo_gateway: str = "",
    ) -> None:
        self._views = views
        self.watcher = Watcher(reader, views)
        self._source = alerts or self._stored_alerts
        self._runbooks, self._runbook_pages = runbooks or "/runbooks", page_files(runbooks_folder())
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ThawCollector(self.watcher.seen, value_limit=value_limit))
        self._exposed: dict[tuple[int, str, str], asyncio.Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(READERS, "reader")
        self._files = page_files()
        if demo_gateway:
            self._files |= {name: _file_of(path.read_bytes(), ".js") for name, path in client_modules().items()}
            page = with_gateway(self._files["index.html"].body, demo_gateway)
            self._files["index.html"] = _file_of(page, ".html")
        self._openapi = msgspec.json.encode(openapi.description())
        self.answers = SharedAnswers(self.read)
        self.feed = Feed(self.watcher, views, self.read, self._alerts, self.answers.forget)

    async def read(self, function: Callable[[], Any]) -> Any:
        """Run a blocking function that reads from the store, unless the store is known not to answer.

        Raises:
            StoreUnavailableError: it does not answer, or not in time.
        """

        def guarded() -> Any:
            # Again: the store may have stopped to answer while this waited for a thread.
            self.watcher.seen().current()
            return function()

        self.watcher.seen().current()
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, guarded)
        except TimeoutError:
            raise StoreUnavailableError(f"not read within {READ_SECONDS:g} s") from None

    def close(self) -> None:
        """Let the threads end after their present reads, and end all event streams."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.watcher.close()
        self.feed.close()

    async def _alerts(self) -> Alerts:
        return with_runbooks(await self._source(), self._runbooks, self._runbook_pages)

    async def _stored_alerts(self) -> Alerts:
        seen = self.watcher.seen()
        return stored_alerts(seen.health, seen.snapshot)

    async def page(self, request: web.Request) -> web.Response:
        """Serve a file of the page."""
        return _file(request, self._files.get(request.match_info.get("path", "index.html")))

    async def runbook(self, request: web.Request) -> web.Response:
        """Serve a runbook as text."""
        return _file(request, self._runbook_pages.get(request.match_info["name"]))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Serve Prometheus."""
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        seen = self.watcher.seen()
        key = seen.number, seen.error, content_type
        if key not in self._exposed:
            # All scrapes of one look share one text; those of earlier looks are not asked for again.
            text = asyncio.get_running_loop().run_in_executor(None, encode, self._registry)
            self._exposed = {other: kept for other, kept in self._exposed.items() if other[0] == seen.number}
            self._exposed[key] = text
        body = await asyncio.shield(self._exposed[key])
        return await send(request, body, {"Content-Type": content_type} | HEADERS)

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer 200 if the store answers, else 503, at once; for probes."""
        health = self.watcher.seen().health
        if health.status == "down":
            raise problem(web.HTTPServiceUnavailable, health.reasons[0])
        return web.Response(text="ok\n")

    async def openapi(self, _request: web.Request) -> web.Response:
        """Describe the API."""
        return _json_bytes(self._openapi)

    async def surveys(self, request: web.Request) -> web.Response:
        """List the surveys."""
        check_names(request.query)
        return _json_bytes(await asyncio.to_thread(self._views.surveys))

    async def survey(self, request: web.Request) -> web.Response:
        """Describe one survey."""
        check_names(request.query)
        return _json(survey_info(await self._survey(request)))

    async def windows(self, request: web.Request) -> web.StreamResponse:
        """List windows of a survey."""
        query = request.query
        check_names(query, "limit", "from_ms", "to_ms")
        limit = whole_number(query, "limit", RECENT_WINDOWS, low=1, high=MOST_WINDOWS)
        from_ms = whole_number(query, "from_ms", 0, low=0, high=LATEST_MS)
        to_ms = whole_number(query, "to_ms", LATEST_MS, low=0, high=LATEST_MS)
        survey = await self._survey(request)
        view = partial(self._views.windows, survey, from_ms=from_ms, to_ms=to_ms, limit=limit)
        make = partial(view, counted_ms=self.watcher.seen().current().counted_ms)
        found = await self._shared(request, ("windows", survey.id, from_ms, to_ms, limit), make)
        assert found is not None, "a survey without windows has an empty list"
        return found

    async def window(self, request: web.Request) -> web.StreamResponse:
        """Return the estimate of one window."""
        check_names(request.query)
        survey, start_ms = await self._place(request)
        make = partial(self._views.window, survey, start_ms, self.watcher.seen().current().counted_ms)
        found = await self._shared(request, ("window", survey.id, start_ms), make)
        if found is None:
            raise _no_window(survey, start_ms)
        return found

    async def history(self, request: web.Request) -> web.Response:
        """Return how the estimate of one window changed."""
        return await self._one_window(request, self._views.history)

    async def views(self, request: web.Request) -> web.Response:
        """Return the views of one window, and ask a worker for its likelihood if that is wanted."""
        asked = chosen_word(request.query, "ask", ("likelihood",))
        return await self._one_window(request, partial(self._views.views, ask=asked is not None), "ask")

    async def health(self, request: web.Request) -> web.Response:
        """Return the health of the pipeline, with status 200 whatever it is."""
        check_names(request.query)
        health = self.watcher.seen().health
        return _json(msgspec.structs.replace(health, now_ms=self._views.now_ms()))

    async def alerts(self, request: web.Request) -> web.Response:
        """Return the states of the alerts."""
        check_names(request.query)
        return _json(await self._alerts())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream changes as server-sent events."""
        check_names(request.query)
        if self.feed.full:
            raise problem(
                web.HTTPServiceUnavailable, "too many listeners; try again later, or poll /api/v1/health and /windows"
            )
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers | HEADERS)
        # Before the head of the answer: who has read it asks for windows, and must hear what changes from then on.
        listener = await self.feed.add_listener()
        ping = None
        try:
            await response.prepare(request)
            ping = asyncio.create_task(_ping(response))
            await response.write(b"retry: 2000\n\n")
            async for message in listener.messages():
                await response.write(message)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            if ping is not None:
                ping.cancel()
            self.feed.remove_listener(listener)
        return response

    async def _survey(self, request: web.Request) -> Any:
        survey_id = request.match_info["survey"]
        survey = await asyncio.to_thread(self._views.survey, survey_id)
        if survey is None:
            raise problem(web.HTTPNotFound, "unknown survey; /api/v1/surveys lists them")
        return survey

    async def _one_window(
        self, request: web.Request, view: Callable[[Any, int], Any], *parameters: str
    ) -> web.Response:
        check_names(request.query, *parameters)
        survey, start_ms = await self._place(request)
        found = await self.read(lambda: view(survey, start_ms))
        if found is None:
            raise _no_window(survey, start_ms)
        return _json(found)

    async def _place(self, request: web.Request) -> tuple[Any, int]:
        start_ms = number_in("start_ms", request.match_info["start_ms"], low=0, high=LATEST_MS)
        return await self._survey(request), start_ms

    async def _shared(
        self, request: web.Request, question: Question, make: Callable[[], bytes | None]
    ) -> web.StreamResponse | None:
        """Answer with JSON that all who ask the same between two looks share; None if there is nothing."""
        self.watcher.seen().current()
        gzip = takes_gzip(request)
        body = await self.answers.answer(question, make, gzip=gzip)
        if body is None:
            return None
        encoding = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} if gzip else {"Vary": "Accept-Encoding"}
        return await send(request, body, _JSON | encoding | HEADERS)


def _no_window(survey: Any, start_ms: int) -> web.HTTPError:
    return problem(web.HTTPNotFound, f"no window of {survey.id} with an estimate starts at {start_ms}")


def _file(request: web.Request, file: _File | None) -> web.Response:
    if file is None:
        raise problem(web.HTTPNotFound, "no such file; the page is at /")
    headers = {"ETag": f'"{file.etag}"', "Cache-Control": "no-cache"}
    if file.etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    response = web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=headers)
    response.enable_compression()
    return response


async def _ping(response: web.StreamResponse) -> None:
    while True:
        await asyncio.sleep(PING_SECONDS)
        try:
            await response.write(b": ping\n\n")
        except ConnectionResetError:
            return


def _json(data: Any) -> web.Response:
    return _json_bytes(msgspec.json.encode(data))


def _json_bytes(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})
    response.enable_compression()
    return response


def make_app(
    reader: Reader,
    *,
    value_limit: int,
    views: Views | None = None,
    alerts: AlertSource | None = None,
    token: str = "",
    runbooks: str = "",
    demo_gateway: str = "",
    tiers: Mapping[str, Views] | None = None,
    tokens: Mapping[bytes, str] = MappingProxyType({}),
) -> web.Application:
    """Return the HTTP application.

    Args:
        reader: reads the store.
        value_limit: values of a survey that get series.
        views: the answers of the API; by default without truths and heartbeats.
        alerts: where the states of alerts come from; by default they are evaluated on what is stored.
        token: required by /api and /metrics, if not empty.
        runbooks: URL that links from alerts lead to; by default the exporter's own pages.
        demo_gateway: address of the gateway through which visitors of a demo answer; none by default.
        tiers: by name, the answers for those who may read that tier of surveys alone.
        tokens: their tokens, as SHA-256, and whose they are.
    """
    served = views or Views(reader)
    options: Any = {"value_limit": value_limit, "runbooks": runbooks, "demo_gateway": demo_gateway}
    server = Server(reader, served, alerts, **options)
    # A server for every tier, with surveys of its own: what a tier may not know, it cannot reach.
    servers = {name: Server(own.reader, own, None, **options) for name, own in (tiers or {}).items()}

    def of_audience(handler: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            found = servers.get(request[AUDIENCE]) if AUDIENCE in request else server
            assert found is not None, "every tier with a token has a server"
            answer: web.StreamResponse = await getattr(found, handler)(request)
            return answer

        return handle

    app = web.Application(middlewares=[guard(token, headers(demo_gateway), tokens)])
    app.router.add_get("/", server.page)
    app.router.add_get("/static/{path:[A-Za-z0-9_./-]{1,200}}", server.page)
    app.router.add_get("/runbooks/{name:[A-Za-z]{1,80}[.]md}", server.runbook)
    app.router.add_get("/metrics", of_audience("metrics"))
    app.router.add_get("/healthz", server.healthz)
    app.router.add_get("/api/openapi.json", server.openapi)
    app.router.add_get("/api/v1/events", of_audience("events"))
    for operation in openapi.OPERATIONS:
        app.router.add_get(operation.path, of_audience(operation.handler))
    _run_with(app, [server, *servers.values()])
    return app


def _run_with(app: web.Application, servers: Sequence[Server]) -> None:
    """Let servers look at the store while the application runs."""

    async def feeding(_app: web.Application) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(one) for server in servers for one in (server.watcher.run(), server.feed.run())]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                for server in servers:
                    await server.watcher.after(0)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close_streams(_app: web.Application) -> None:
        for server in servers:
            server.close()

    app.cleanup_ctx.append(feeding)
    app.on_shutdown.append(close_streams)
