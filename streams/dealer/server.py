"""The dealer's HTTP server: POST /deal for devices, /metrics and /healthz for operators."""

from __future__ import annotations

import asyncio
import binascii
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, exposition

from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from producers.wire.cards import CLAIM_BYTES, Dealt
from streams.dealer.state import Ask, Card, DealerState
from streams.metrics import TABLE

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 1_024
"""Longest body of a request."""
MOST_AT_ONCE: Final = 500
"""Requests of one transaction. Fewer: more waits for the disk; more: the first of many waits for all of them."""
FORGET_SECONDS: Final = 60.0
"""Time between two looks for windows whose cards can be forgotten."""


class Surveys(Protocol):
    """The surveys that are dealt for."""

    def surveys(self, now_ms: int) -> Sequence[Survey]:
        """Return all surveys known at this time."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device asks with: survey id, start of the window, and a secret of its own in hexadecimal."""

    survey: str
    window_ms: int
    claim: str


class RefusedError(Exception):
    """No card is dealt: status, short reason for the counter, sentence for the device."""

    def __init__(self, status: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.reason = status, reason


class Dealer:
    """Judges requests and deals. For one thread at a time."""

    def __init__(self, state: DealerState, surveys: Surveys, clock: Clock = system_clock) -> None:
        self._state, self._surveys, self._clock = state, surveys, clock
        self.registry = CollectorRegistry()

        def counter(name: str) -> Counter:
            row = TABLE[name]
            return Counter(name.removesuffix("_total"), row.help, row.labels, registry=self.registry)

        self._dealt = counter("thaw_dealer_cards_total")
        self._refused = counter("thaw_dealer_refused_total")

    def deal(self, bodies: Sequence[bytes]) -> list[Dealt | RefusedError]:
        """Deal a card to every request, all in one transaction, or say why there is none."""
        judged = [self._judged(body) for body in bodies]
        asks = [one for one in judged if isinstance(one, Ask)]
        cards = iter(self._state.deal(asks) if asks else [])
        answers = [self._answer(one, next(cards)) if isinstance(one, Ask) else one for one in judged]
        for answer in answers:
            if isinstance(answer, RefusedError):
                self._refused.labels(answer.reason).inc()
        return answers

    def _judged(self, body: bytes) -> Ask | RefusedError:
        try:
            return self._ask(body)
        except RefusedError as error:
            return error

    def _ask(self, body: bytes) -> Ask:
        try:
            request = msgspec.json.decode(body, type=Request)
            claim = binascii.unhexlify(request.claim)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RefusedError(400, "malformed", f"expected survey, window_ms and claim; {error}") from None
        if len(claim) != CLAIM_BYTES:
            raise RefusedError(400, "malformed", f"a claim has {CLAIM_BYTES} bytes in hexadecimal; got {len(claim)}")
        survey = self._survey(request)
        return Ask(survey.id, request.window_ms, claim, survey.mechanism.cards, survey.mechanism.groups)

    def _answer(self, ask: Ask, card: Card | None) -> Dealt | RefusedError:
        if card is None:
            return RefusedError(409, "used up", "all cards of this window are dealt; this device does not answer in it")
        if not card.again:
            self._dealt.labels(ask.survey).inc()
        return Dealt(card.block, card.face)

    def _survey(self, request: Request) -> Survey:
        now_ms = self._clock()
        survey = next((one for one in self._surveys.surveys(now_ms) if one.id == request.survey), None)
        if survey is None or not survey.mechanism.cards:
            raise RefusedError(404, "survey", f"no survey {request.survey!r} with cards is known here; check its id")
        start, end = request.window_ms, survey.windows.end(request.window_ms)
        if start % survey.windows.step_ms or not survey.asks(start, now_ms):
            raise RefusedError(409, "window", "the survey has no such window; ask for the one that is open")
        if not start - survey.skew_ms <= now_ms < end + survey.skew_ms:
            raise RefusedError(409, "window", "cards are dealt while a window is open; ask for the one that is open")
        return survey

    def forget(self) -> int:
        """Forget the cards of windows for which none is dealt any more; return how many."""
        now_ms, forgotten = self._clock(), 0
        for survey in self._surveys.surveys(now_ms):
            if survey.mechanism.cards:
                forgotten += self._state.forget(survey.id, now_ms - survey.skew_ms - survey.windows.size_ms)
        return forgotten


class Desk:
    """Where requests wait. All that wait are dealt to in one transaction, so that they wait for the disk once.

    Judging and dealing, and the forgetting of windows that are over, happen in one thread, one after the other: a
    request that was judged while its window was open is never dealt to after the window was forgotten.
    """

    def __init__(self, dealer: Dealer) -> None:
        self._dealer = dealer
        self._thread = ThreadPoolExecutor(1, "deals")
        self._waiting: list[tuple[bytes, asyncio.Future[Dealt | RefusedError]]] = []
        self._working: asyncio.Task[None] | None = None

    async def deal(self, body: bytes) -> Dealt | RefusedError:
        """Wait for the answer to one request.

        Raises:
            sqlite3.Error: the file cannot be written; nothing was dealt.
        """
        answer: asyncio.Future[Dealt | RefusedError] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(self._thread, self._dealer.deal, [body for body, _ in taken])
            except sqlite3.Error as error:
                logger.error("no card is dealt: the file cannot be written (%s)", error)
                for _, answer in taken:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), dealt in zip(taken, found, strict=True):
                if not answer.done():  # a client that left has cancelled it
                    answer.set_result(dealt)

    async def forget(self) -> None:
        """Forget, again and again, what nobody may ask for any more."""
        while True:
            with suppress(sqlite3.Error):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._dealer.forget)
            await asyncio.sleep(FORGET_SECONDS)

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()


def make_app(dealer: Dealer) -> web.Application:
    """Return the application."""
    desk = Desk(dealer)

    async def deal(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            dealt = await desk.deal(body)
        except sqlite3.Error:
            return web.json_response({"error": "the dealer cannot write now; ask again"}, status=503)
        if isinstance(dealt, RefusedError):
            return web.json_response({"error": str(dealt)}, status=dealt.status)
        return web.Response(body=msgspec.json.encode(dealt), content_type="application/json")

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(dealer.registry), headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def forgetting(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(desk.forget())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        desk.close()

    app = web.Application(client_max_size=MOST_BYTES)
    app.add_routes([web.post("/deal", deal), web.get("/metrics", metrics), web.get("/healthz", healthz)])
    app.cleanup_ctx.append(forgetting)
    return app
