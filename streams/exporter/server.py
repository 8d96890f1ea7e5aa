"""The exporter's HTTP server: /metrics for Prometheus, the page at /, /api/v1 for programs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
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
from streams.exporter.query import LATEST_MS, check_names, number_in, problem, whole_number
from streams.exporter.reader import Reader
from streams.exporter.views import MOST_WINDOWS, RECENT_WINDOWS, Views, survey_info
from streams.folders import runbooks_folder
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

PAGE: Final = Path(__file__).parent / "dashboard"
PING_SECONDS: Final = 15.0
"""Time between two comments on an event stream: proxies close idle connections."""

# Text of survey files is never code: no inline script runs, and nothing is loaded from or sent to other hosts.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
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
            body = path.read_bytes()
            etag = hashlib.sha256(body).hexdigest()[:20]
            files[path.relative_to(folder).as_posix()] = _File(body, _TYPES[path.suffix], etag)
    return files


class Server:
    """The handlers. The store is read in a thread, by one request at a time."""

    def __init__(
        self, reader: Reader, views: Views, alerts: AlertSource | None, *, value_limit: int, runbooks: str
    ) -> None:
        self._views = views
        self._source = alerts or self._stored_alerts
        self._runbooks, self._runbook_pages = runbooks or "/runbooks", page_files(runbooks_folder())
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ThawCollector(reader, value_limit=value_limit))
        self._lock = asyncio.Lock()
        self._files = page_files()
        self._openapi = msgspec.json.encode(openapi.description())
        self.feed = Feed(views, self.read, self._alerts)

    async def read(self, function: Callable[[], Any]) -> Any:
        """Run a blocking function that reads from the store."""
        async with self._lock:
            return await asyncio.to_thread(function)

    async def _alerts(self) -> Alerts:
        return with_runbooks(await self._source(), self._runbooks, self._runbook_pages)

    async def _stored_alerts(self) -> Alerts:
        found: Alerts = await self.read(self._views.alerts)
        return found

    async def page(self, request: web.Request) -> web.Response:
        """Serve a file of the page."""
        return _file(request, self._files.get(request.match_info.get("path", "index.html")))

    async def runbook(self, request: web.Request) -> web.Response:
        """Serve a runbook as text."""
        return _file(request, self._runbook_pages.get(request.match_info["name"]))

    async def metrics(self, request: web.Request) -> web.Response:
        """Serve Prometheus."""
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        body = await self.read(lambda: encode(self._registry))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer 200 if the store answers, else 503; for probes."""
        health = await self.read(self._views.health)
        if health.status == "down":
            raise problem(web.HTTPServiceUnavailable, health.reasons[0])
        return web.Response(text="ok\n")

    async def openapi(self, _request: web.Request) -> web.Response:
        """Describe the API."""
        return _json_bytes(self._openapi)

    async def surveys(self, request: web.Request) -> web.Response:
        """List the surveys."""
        check_names(request.query)
        return _json(await self.read(self._views.surveys))

    async def survey(self, request: web.Request) -> web.Response:
        """Describe one survey."""
        check_names(request.query)
        return _json(survey_info(await self._survey(request)))

    async def windows(self, request: web.Request) -> web.Response:
        """List windows of a survey."""
        query = request.query
        check_names(query, "limit", "from_ms", "to_ms")
        limit = whole_number(query, "limit", RECENT_WINDOWS, low=1, high=MOST_WINDOWS)
        from_ms = whole_number(query, "from_ms", 0, low=0, high=LATEST_MS)
        to_ms = whole_number(query, "to_ms", LATEST_MS, low=0, high=LATEST_MS)
        survey = await self._survey(request)
        return _json(await self.read(lambda: self._views.windows(survey, from_ms=from_ms, to_ms=to_ms, limit=limit)))

    async def window(self, request: web.Request) -> web.Response:
        """Return the estimate of one window."""
        return await self._one_window(request, self._views.window)

    async def history(self, request: web.Request) -> web.Response:
        """Return how the estimate of one window changed."""
        return await self._one_window(request, self._views.history)

    async def health(self, request: web.Request) -> web.Response:
        """Return the health of the pipeline, with status 200 whatever it is."""
        check_names(request.query)
        return _json(await self.read(self._views.health))

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
        await response.prepare(request)
        listener = self.feed.add_listener()
        ping = asyncio.create_task(_ping(response))
        try:
            await response.write(b"retry: 2000\n\n")
            async for message in listener.messages():
                await response.write(message)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            ping.cancel()
            self.feed.remove_listener(listener)
        return response

    async def _survey(self, request: web.Request) -> Any:
        survey_id = request.match_info["survey"]
        survey = await self.read(lambda: self._views.survey(survey_id))
        if survey is None:
            raise problem(web.HTTPNotFound, "unknown survey; /api/v1/surveys lists them")
        return survey

    async def _one_window(self, request: web.Request, view: Callable[[Any, int], Any]) -> web.Response:
        check_names(request.query)
        start_ms = number_in("start_ms", request.match_info["start_ms"], low=0, high=LATEST_MS)
        survey = await self._survey(request)
        found = await self.read(lambda: view(survey, start_ms))
        if found is None:
            raise problem(web.HTTPNotFound, f"no window of {survey.id} with an estimate starts at {start_ms}")
        return _json(found)


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


def _guard(token: str) -> Any:
    """Return the middleware that checks the token, adds headers, and turns failures into JSON."""
    secret = token.encode()

    def allowed(request: web.Request) -> bool:
        if not secret or not (request.path.startswith("/api/") or request.path == "/metrics"):
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # surrogateescape: header bytes that are no UTF-8 must compare unequal, not raise.
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "surrogateescape"), secret
        )

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not allowed(request):
                error = problem(
                    web.HTTPUnauthorized, "token missing or wrong; send it as `Authorization: Bearer TOKEN`"
                )
                error.headers["WWW-Authenticate"] = 'Bearer realm="thaw"'
                raise error
            response = await handler(request)
        except StoreUnavailableError as error:
            response = _plain(problem(web.HTTPServiceUnavailable, f"Redis does not answer: {error}; try again"))
        except web.HTTPException as error:
            response = _plain(error)
        except (asyncio.CancelledError, ConnectionResetError):
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = _plain(problem(web.HTTPInternalServerError, "internal error of the exporter; see its log"))
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    return guard


def _plain(error: web.HTTPException) -> web.Response:
    """Return an error as an ordinary answer; those of aiohttp itself (unknown path, wrong method) in the same form."""
    if error.content_type == "application/json":
        body = error.body
    else:
        body = msgspec.json.encode({"error": f"{error.status} {error.reason}; /api/openapi.json lists all paths"})
    kept = {name: value for name, value in error.headers.items() if name in ("Allow", "WWW-Authenticate")}
    return web.Response(status=error.status, body=body, content_type="application/json", headers=kept)


def make_app(
    reader: Reader,
    *,
    value_limit: int,
    views: Views | None = None,
    alerts: AlertSource | None = None,
    token: str = "",
    runbooks: str = "",
) -> web.Application:
    """Return the HTTP application.

    Args:
        reader: reads the store.
        value_limit: values of a survey that get series.
        views: the answers of the API; by default without truths and heartbeats.
        alerts: where the states of alerts come from; by default they are evaluated on what is stored.
        token: required by /api and /metrics, if not empty.
        runbooks: URL that links from alerts lead to; by default the exporter's own pages.
    """
    server = Server(reader, views or Views(reader), alerts, value_limit=value_limit, runbooks=runbooks)
    app = web.Application(middlewares=[_guard(token)])
    app.router.add_get("/", server.page)
    app.router.add_get("/static/{path:[A-Za-z0-9_./-]{1,200}}", server.page)
    app.router.add_get("/runbooks/{name:[A-Za-z]{1,80}[.]md}", server.runbook)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_get("/healthz", server.healthz)
    app.router.add_get("/api/openapi.json", server.openapi)
    app.router.add_get("/api/v1/events", server.events)
    for operation in openapi.OPERATIONS:
        app.router.add_get(operation.path, getattr(server, operation.handler))

    async def feeding(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(server.feed.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close_streams(_app: web.Application) -> None:
        server.feed.close()

    app.cleanup_ctx.append(feeding)
    app.on_shutdown.append(close_streams)
    return app
