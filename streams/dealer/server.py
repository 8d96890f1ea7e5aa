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
from streams.dealer.state import Card, DealerState
from streams.metrics import TABLE

logger = logging.getLogger(__name__)

CLAIM_BYTES: Final = 16
MOST_BYTES: Final = 1_024
"""Longest body of a request."""
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


class Dealt(msgspec.Struct, frozen=True):
    """The answer: the block, and the face of the card, 1 to L."""

    block: int
    card: int


class RefusedError(Exception):
    """No card is dealt: status, short reason for the counter, sentence for the device."""

    def __init__(self, status: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.reason = status, reason


class Dealer:
    """Judges requests and deals. One thread uses the file, so that cards are dealt one after the other."""

    def __init__(self, state: DealerState, surveys: Surveys, clock: Clock = system_clock) -> None:
        self._state, self._surveys, self._clock = state, surveys, clock
        self.registry = CollectorRegistry()

        def counter(name: str) -> Counter:
            row = TABLE[name]
            return Counter(name.removesuffix("_total"), row.help, row.labels, registry=self.registry)

        self._dealt = counter("thaw_dealer_cards_total")
        self._refused = counter("thaw_dealer_refused_total")

    def deal(self, body: bytes) -> Dealt:
        """Deal a card to a request.

        Raises:
            RefusedError: there is none for it.
        """
        try:
            request = msgspec.json.decode(body, type=Request)
            claim = binascii.unhexlify(request.claim)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RefusedError(400, "malformed", f"expected survey, window_ms and claim; {error}") from None
        if len(claim) != CLAIM_BYTES:
            raise RefusedError(400, "malformed", f"a claim has {CLAIM_BYTES} bytes in hexadecimal; got {len(claim)}")
        survey = self._survey(request)
        mechanism = survey.mechanism
        card = self._state.deal(survey.id, request.window_ms, claim, mechanism.cards, mechanism.groups)
        if card is None:
            raise RefusedError(409, "used up", "all cards of this window are dealt; this device does not answer in it")
        self._note(survey, card)
        return Dealt(card.block, card.face)

    def _survey(self, request: Request) -> Survey:
        now_ms = self._clock()
        survey = next((one for one in self._surveys.surveys(now_ms) if one.id == request.survey), None)
        if survey is None or not survey.mechanism.cards:
            raise RefusedError(404, "survey", f"no survey {request.survey!r} with cards is known here; check its id")
        start, end = request.window_ms, survey.windows.end(request.window_ms)
        if start % survey.windows.step_ms or not survey.asks(start):
            raise RefusedError(409, "window", "the survey has no such window; ask for the one that is open")
        if not start - survey.skew_ms <= now_ms < end + survey.skew_ms:
            raise RefusedError(409, "window", "cards are dealt while a window is open; ask for the one that is open")
        return survey

    def _note(self, survey: Survey, card: Card) -> None:
        if not card.again:
            self._dealt.labels(survey.id).inc()

    def refuse(self, error: RefusedError) -> None:
        """Count a refusal."""
        self._refused.labels(error.reason).inc()

    def forget(self) -> int:
        """Forget the cards of windows for which none is dealt any more; return how many."""
        now_ms, forgotten = self._clock(), 0
        for survey in self._surveys.surveys(now_ms):
            if survey.mechanism.cards:
                forgotten += self._state.forget(survey.id, now_ms - survey.skew_ms - survey.windows.size_ms)
        return forgotten


def make_app(dealer: Dealer) -> web.Application:
    """Return the application."""
    one_thread = ThreadPoolExecutor(1, "deals")

    async def deal(request: web.Request) -> web.Response:
        body = await request.read()
        loop = asyncio.get_running_loop()
        try:
            dealt = await loop.run_in_executor(one_thread, dealer.deal, body)
        except RefusedError as error:
            dealer.refuse(error)
            return web.json_response({"error": str(error)}, status=error.status)
        except sqlite3.Error as error:
            logger.error("no card is dealt: the file cannot be written (%s)", error)
            return web.json_response({"error": "the dealer cannot write now; ask again"}, status=503)
        return web.Response(body=msgspec.json.encode(dealt), content_type="application/json")

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(dealer.registry), headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def forgetting(_app: web.Application) -> AsyncIterator[None]:
        async def forget() -> None:
            while True:
                with suppress(sqlite3.Error):
                    await asyncio.get_running_loop().run_in_executor(one_thread, dealer.forget)
                await asyncio.sleep(FORGET_SECONDS)

        task = asyncio.create_task(forget())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        one_thread.shutdown()

    app = web.Application(client_max_size=MOST_BYTES)
    app.add_routes([web.post("/deal", deal), web.get("/metrics", metrics), web.get("/healthz", healthz)])
    app.cleanup_ctx.append(forgetting)
    return app
