"""Answers that many ask for at the same time: read, encoded and packed once, then sent to all of them.

An answer is shared until the feed has looked at the store again, so that who connects to the event stream and then asks
never gets an answer from before an event that they did not hear.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

KEPT_BYTES: Final = 16 << 20
"""Answers that are kept until the next look, together. More: memory that strangers can fill with different questions;
fewer: large answers are made again for everybody who asks."""
PIECE_BYTES: Final = 32 << 10
"""An answer is handed over in pieces, the next when the client has read the one before: a client that does not read
holds a piece and no copy of the answer. Smaller: more work for each answer."""
_FASTEST: Final = 1
_GZIP_BITS: Final = 31

Read = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function in a thread."""
Question = tuple[object, ...]


def packed(body: bytes) -> bytes:
    """Return a gzip file of these bytes; quickly rather than small."""
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP_BITS)
    return packer.compress(body) + packer.flush()


def takes_gzip(request: web.Request) -> bool:
    """Tell whether a client takes packed answers."""
    return "gzip" in request.headers.get("Accept-Encoding", "").lower()


class SharedAnswers:
    """Answers by question, until `forget`. Belongs to the event loop."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._asked: dict[Question, asyncio.Future[bytes | None]] = {}
        self._bytes = 0

    def forget(self) -> None:
        """Read again what is asked from now on."""
        self._asked.clear()
        self._bytes = 0

    async def answer(self, question: Question, make: Callable[[], bytes | None], *, gzip: bool) -> bytes | None:
        """Return what `make` returns, in a thread, for the first who asks; None is an answer too.

        Raises:
            StoreUnavailableError: to all who wait for it.
        """
        key = (*question, gzip)
        asked = self._asked.get(key)
        if asked is None:

            def made() -> bytes | None:
                body = make()
                return packed(body) if gzip and body is not None else body

            asked = self._asked[key] = asyncio.ensure_future(self._read(made))
            asked.add_done_callback(lambda done: self._weigh(key, done))
        # Who leaves must not end the read that others wait for.
        return await asyncio.shield(asked)

    def _weigh(self, key: Question, done: asyncio.Future[bytes | None]) -> None:
        if self._asked.get(key) is not done:
            return
        failed = done.cancelled() or done.exception() is not None
        size = 0 if failed else len(done.result() or b"")
        if failed or self._bytes + size > KEPT_BYTES:
            del self._asked[key]
        else:
            self._bytes += size


async def send(request: web.Request, body: bytes, headers: dict[str, str]) -> web.StreamResponse:
    """Send an answer piece by piece, from the bytes that all share."""
    if len(body) <= PIECE_BYTES or request.method == "HEAD":
        return web.Response(body=body, headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_length = len(body)
    await response.prepare(request)
    view = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):
        await response.write(view[start : start + PIECE_BYTES])
    return response
