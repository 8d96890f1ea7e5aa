"""The gateway's HTTP server. It writes no log line about a request, and nothing of one but its reports leaves it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from producers.survey.lookup import SurveyLookup
from streams.exporter.listen import Limits
from streams.gateway.broker import NotAcknowledgedError
from streams.gateway.credentials import Credentials, Sender
from streams.gateway.documents import Documents
from streams.gateway.judge import Judgement, RefusedFrame, judge
from streams.gateway.limits import Memory, Rates
from streams.gateway.metrics import GatewayMetrics, Watched
from streams.gateway.mixer import Mixer, Sink
from streams.gateway.openapi import FRAME_TYPES, FRAMES, Confirmed, Problem, description
from streams.settings import Settings
from streams.settings_gateway import origins_of

logger = logging.getLogger(__name__)

BODY_SECONDS: Final = 20.0
"""Longest time for a body to come. Longer: slow senders take memory; shorter: phones on bad networks."""
RETRY_SECONDS: Final = 5
"""When a client that was told to come again does so, at least."""
SOCKETS: Final = Limits(connections=4_096)
"""Requests wait for their batch, so that there are as many connections as requests in that time."""
_METHODS: Final = "GET, POST, OPTIONS"


class Way(Sink, Watched, Protocol):
    """The way to the brokers."""

    async def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    def now_ms(self) -> int:
        """Return the broker's time, as far as it is known."""
        ...


class RefusedError(Exception):
    """A request is not taken: status, reason for counter and client, sentence, seconds to wait, frames."""

    def __init__(
        self,
        status: int,
        reason: str,
        text: str,
        *,
        wait_seconds: float = 0.0,
        frames: list[RefusedFrame] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.reason, self.wait_seconds, self.frames = status, reason, wait_seconds, frames or []


class Gateway:
    """Judges requests, holds what is good, and confirms what the broker has."""

    def __init__(
        self,
        settings: Settings,
        surveys: SurveyLookup,
        documents: Documents,
        broker: Way,
        metrics: GatewayMetrics,
    ) -> None:
        self._surveys, self._documents, self._broker, self._metrics = surveys, documents, broker, metrics
        self._credentials = Credentials(settings)
        self._memory = Memory(settings.gateway_memory_mib << 20)
        self._hold_ms = settings.gateway_hold_ms
        self._mixer = Mixer(
            broker,
            hold_ms=settings.gateway_hold_ms,
            hold_reports=settings.gateway_hold_reports,
            on_batch=metrics.batch_requests.observe,
        )
        self._rates: Rates | None = None
        self._stopping = False
        metrics.watch(broker, self._memory)

    async def send(self, request: web.Request) -> web.Response:
        """Answer POST /v1/frames."""
        sender = self._credentials.sender(request)
        if sender is None:
            raise RefusedError(
                401,
                "credential",
                "the token or certificate is missing or wrong; a token is sent as `Authorization: Bearer TOKEN`",
            )
        if self._stopping:
            raise RefusedError(503, "stopping", "the gateway stops; send it again", wait_seconds=RETRY_SECONDS)
        _check_form(request, sender)
        # Who owes is told so before a body takes memory and processor time.
        self._check_rate(sender, 0)
        held = _Held(self._memory)
        try:
            body = await self._read(request, sender, held)
            judged = judge(body, self._surveys, self._broker.now_ms(), later_ms=self._hold_ms)
            # What is refused counts too: it was read and judged.
            self._check_rate(sender, max(judged.reports + len(judged.refused), 1))
            _check_frames(judged)
            answer = Confirmed(len(judged.taken), judged.reports)
            counts = [(frame.survey.id, len(frame.reports)) for frame in judged.taken]
            done = self._mixer.put(judged.taken)
            # From here on the batch alone has the bytes, and lets go of them when it is mixed.
            del body, judged
        except BaseException:
            held.release()
            raise
        # The bytes are in memory as long as the batch is, whether or not the client still waits.
        done.add_done_callback(lambda _: held.release())
        try:
            await asyncio.shield(done)
        except NotAcknowledgedError:
            raise RefusedError(
                503, "broker", "no broker acknowledged; send the same bytes again", wait_seconds=RETRY_SECONDS
            ) from None
        for survey_id, reports in counts:
            self._metrics.reports.labels(survey_id).inc(reports)
        self._metrics.requests.inc()
        return _json(answer)

    async def _read(self, request: web.Request, sender: Sender, held: _Held) -> bytes:
        """Read the body; memory is taken as bytes come, so that announced ones take none."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while part := await request.content.readany():
                    size += len(part)
                    if size > sender.request_bytes:
                        raise _too_large(sender)
                    if not held.take(len(part)):
                        raise RefusedError(
                            503, "busy", "the gateway is full; send the same bytes again", wait_seconds=RETRY_SECONDS
                        )
                    parts.append(part)
        except TimeoutError:
            raise RefusedError(408, "slow", f"the body did not come within {BODY_SECONDS:.0f} s") from None
        return b"".join(parts)

    def _check_rate(self, sender: Sender, reports: int) -> None:
        if self._rates is None:
            self._rates = Rates(asyncio.get_running_loop().time)
        wait_seconds = self._rates.wait_seconds(sender.key, reports, sender.rate)
        if wait_seconds > 0:
            raise RefusedError(
                429, "rate", f"more than {sender.rate} reports a second; send it again later", wait_seconds=wait_seconds
            )

    async def surveys(self, _request: web.Request) -> web.Response:
        """Answer GET /v1/surveys."""
        return _json(self._documents.index())

    async def survey(self, request: web.Request) -> web.Response:
        """Answer GET /v1/surveys/{survey}."""
        found = self._documents.envelope(request.match_info["survey"])
        if found is None:
            raise RefusedError(404, "survey", "no such survey is served here; /v1/surveys lists all")
        return web.Response(body=found, content_type="application/json")

    async def bulletin(self, request: web.Request) -> web.Response:
        """Answer GET /v1/surveys/{survey}/bulletin."""
        found = self._documents.bulletin(request.match_info["survey"])
        if found is None:
            raise RefusedError(404, "survey", "no bulletin of such a survey is served here; /v1/surveys lists surveys")
        return web.Response(body=found, content_type="application/json")

    async def healthz(self, _request: web.Request) -> web.Response:
        """Answer 200 while brokers answer."""
        well = self._broker.partitions is not None and self._broker.up == 1.0
        return web.Response(text="ok\n" if well else "no broker answers\n", status=200 if well else 503)

    def refusal(self, error: RefusedError) -> web.Response:
        """Count a refusal and return its answer."""
        again = bool(error.wait_seconds) or error.status == 408
        (self._metrics.postponed if again else self._metrics.refused).labels(error.reason).inc()
        response = _json(Problem(error.reason, str(error), self._broker.now_ms(), error.frames), status=error.status)
        if error.wait_seconds:
            response.headers["Retry-After"] = str(math.ceil(error.wait_seconds))
        if error.status == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="thaw"'
        return response

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Connect to the broker; at the end send what is held."""
        await self._broker.start()
        yield
        await self._mixer.close()
        await self._broker.stop()

    async def stop_holding(self, _app: web.Application) -> None:
        """Take nothing more, and send what is held, while its clients still wait."""
        self._stopping = True
        await self._mixer.close()


class _Held:
    """The memory of one request."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._size = memory, 0

    def take(self, size: int) -> bool:
        if not self._memory.take(size):
            return False
        self._size += size
        return True

    def release(self) -> None:
        self._memory.give_back(self._size)
        self._size = 0


def _check_form(request: web.Request, sender: Sender) -> None:
    if request.content_type not in FRAME_TYPES:
        raise RefusedError(415, "type", f"frames are sent as {FRAMES}; got {request.content_type[:80]!r}")
    if "Content-Encoding" in request.headers:
        raise RefusedError(415, "type", "frames are sent as they are; leave out Content-Encoding")
    if (request.content_length or 0) > sender.request_bytes:
        raise _too_large(sender)


def _check_frames(judged: Judgement) -> None:
    if not judged.refused:
        return
    first = judged.refused[0]
    more = f" (and {len(judged.refused) - 1} more)" if len(judged.refused) > 1 else ""
    raise RefusedError(
        422,
        first.reason,
        f"frame {first.frame} is refused: {first.text}{more}; nothing was taken; leave out what is refused and send "
        "the others again",
        frames=judged.refused,
    )


def _too_large(sender: Sender) -> RefusedError:
    return RefusedError(413, "large", f"a request has at most {sender.request_bytes} bytes; send fewer frames at once")


def _json(answer: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), status=status, content_type="application/json")


def _cross_origin(origins: str) -> Any:
    """Return the middleware that lets web pages of these origins use the gateway. It has no cookies to protect."""
    allowed = set(origins_of(origins))

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        let_in = bool(origin) and ("*" in allowed or origin in allowed)
        if request.method == "OPTIONS" and let_in:
            response: web.StreamResponse = web.Response(status=204)
            response.headers["Access-Control-Allow-Methods"] = _METHODS
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            response.headers["Access-Control-Max-Age"] = "86400"
        else:
            response = await handler(request)
        if let_in:
            response.headers["Access-Control-Allow-Origin"] = "*" if "*" in allowed else origin
            response.headers["Access-Control-Expose-Headers"] = "Retry-After"
            response.headers["Vary"] = "Origin"
        return response

    return middleware


def make_app(gateway: Gateway, origins: str = "") -> web.Application:
    """Return the application."""

    @web.middleware
    async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except RefusedError as error:
            response = gateway.refusal(error)
        except web.HTTPException as error:
            problem = RefusedError(
                error.status, "path", f"{error.status} {error.reason}; /v1/openapi.json has all paths"
            )
            response = gateway.refusal(problem)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            # Without the request: neither its address nor its headers belong into a log.
            logger.exception("a request failed")
            response = gateway.refusal(RefusedError(500, "fault", "internal error of the gateway; see its log"))
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    async def openapi(_request: web.Request) -> web.Response:
        return _json(description())

    app = web.Application(middlewares=[_cross_origin(origins), refusals])
    app.add_routes(
        [
            web.post("/v1/frames", gateway.send),
            web.get("/v1/surveys", gateway.surveys),
            web.get("/v1/surveys/{survey}", gateway.survey),
            web.get("/v1/surveys/{survey}/bulletin", gateway.bulletin),
            web.get("/v1/openapi.json", openapi),
            web.get("/healthz", gateway.healthz),
        ]
    )
    app.cleanup_ctx.append(gateway.running)
    app.on_shutdown.append(gateway.stop_holding)
    return app
