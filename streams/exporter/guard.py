"""What stands before every handler: the token, a limit on guesses at it, headers, and failures as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from streams.exporter.query import problem
from streams.store.contract import StoreDeniedError, StoreUnavailableError

logger = logging.getLogger(__name__)

# Text of survey files is never code: no inline script runs, and nothing is loaded from or sent to other hosts. No CORS
# header is sent: pages of other origins cannot read an answer.
POLICY: Final = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KEPT: Final = ("Allow", "Retry-After", "WWW-Authenticate")
AUDIENCE: Final = web.RequestKey("audience", str)
"""Where a request has the tier that it may read; absent for the owner."""
GUESSES: Final = 10
"""Different wrong tokens that an address may send within PENALTY_SECONDS. More: guessing is faster; fewer: a person who
mistypes is locked out."""
PENALTY_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 4_096
"""Addresses that are remembered, the latest. More: memory that strangers can fill."""


@dataclass
class _Guesser:
    since: float
    tokens: set[bytes] = field(default_factory=set)
    refused: int = 0


class Guesses:
    """Counts different wrong tokens by address. The same wrong token again is a wrong setting, not another guess."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()

    def blocked(self, address: str) -> float:
        """Return for how many more seconds no token of this address is looked at; 0 if they are."""
        guesser = self._guessers.get(_network(address))
        if guesser is None or len(guesser.tokens) < GUESSES:
            return 0.0
        left = guesser.since + PENALTY_SECONDS - self._time()
        if left > 0:
            guesser.refused += 1
        return max(left, 0.0)

    def wrong(self, address: str, token: bytes) -> None:
        """Take note of a wrong token; the first one of an address and the one that blocks it are logged."""
        network, now = _network(address), self._time()
        guesser = self._guessers.get(network)
        if guesser is None or now - guesser.since >= PENALTY_SECONDS:
            if guesser is not None and guesser.refused:
                logger.warning("%s was refused %d times while it was blocked", network, guesser.refused)
            guesser = self._guessers[network] = _Guesser(now)
            logger.warning("%s sent a wrong token", network)
        self._guessers.move_to_end(network)
        while len(self._guessers) > MOST_ADDRESSES:
            self._guessers.popitem(last=False)
        before = len(guesser.tokens)
        guesser.tokens.add(_digest(token)[:8])
        if before < GUESSES == len(guesser.tokens):
            guesser.since = now
            logger.warning(
                "%s sent %d different wrong tokens; its tokens are not looked at for %.0f s",
                network,
                GUESSES,
                PENALTY_SECONDS,
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _network(address: str) -> str:
    """Return an address, or the /64 of an IPv6 one: a single host has that many addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((int(parsed), 64), strict=False))


def guard(
    token: str,
    more_headers: Mapping[str, str] = MappingProxyType({}),
    tiers: Mapping[bytes, str] = MappingProxyType({}),
) -> Any:
    """Return the middleware that checks the token, adds headers (`more_headers` last), and turns failures into JSON.

    tiers: by the SHA-256 of their tokens; a request with one of them gets it as `request[AUDIENCE]`.
    """
    headers = HEADERS | dict(more_headers)
    secret, expected = token.encode(), _digest(token.encode())
    guesses: Guesses | None = None

    def check(request: web.Request) -> None:
        nonlocal guesses
        if not secret or not (request.path.startswith("/api/") or request.path == "/metrics"):
            return
        if guesses is None:
            guesses = Guesses(asyncio.get_running_loop().time)
        address = request.remote or "unknown"
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # surrogateescape: header bytes that are no UTF-8 must compare unequal, not raise.
        sent = given.strip().encode("utf-8", "surrogateescape")
        if sent and (seconds := guesses.blocked(address)):
            error = problem(web.HTTPTooManyRequests, f"too many wrong tokens; try again in {seconds:.0f} s")
            error.headers["Retry-After"] = f"{max(1, round(seconds))}"
            raise error
        # Digests have one length, so that the time tells nothing about the length of the token either.
        if hmac.compare_digest(_digest(sent), expected) and scheme.lower() == "bearer":
            return
        # Looked up by digest: the time tells nothing of a token that could be used.
        if scheme.lower() == "bearer" and (tier := tiers.get(_digest(sent))) is not None:
            request[AUDIENCE] = tier
            return
        if sent:
            guesses.wrong(address, sent)
        error = problem(web.HTTPUnauthorized, "token missing or wrong; send it as `Authorization: Bearer TOKEN`")
        error.headers["WWW-Authenticate"] = 'Bearer realm="thaw"'
        raise error

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check(request)
            response = await handler(request)
        except StoreUnavailableError as error:
            response = _plain(problem(web.HTTPServiceUnavailable, _without_store(error)))
        except web.HTTPException as error:
            response = _plain(error)
        except (asyncio.CancelledError, ConnectionResetError):
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = _plain(problem(web.HTTPInternalServerError, "internal error of the exporter; see its log"))
        if not response.prepared:
            response.headers.update(headers)
        return response

    return middleware


def _without_store(error: StoreUnavailableError) -> str:
    """Return what the store said; one that refuses a right does answer, and trying again is of no use."""
    return str(error) if isinstance(error, StoreDeniedError) else f"Redis does not answer: {error}; try again"


def _plain(error: web.HTTPException) -> web.Response:
    """Return an error as an ordinary answer; those of aiohttp itself (unknown path, wrong method) in the same form."""
    if error.content_type == "application/json":
        body = error.body
    else:
        body = msgspec.json.encode({"error": f"{error.status} {error.reason}; /api/openapi.json lists all paths"})
    kept = {name: value for name, value in error.headers.items() if name in _KEPT}
    return web.Response(status=error.status, body=body, content_type="application/json", headers=kept)
