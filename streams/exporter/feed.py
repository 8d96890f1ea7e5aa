"""Server-sent events: one look at the store a second for all who listen, and to each only what changed.

A listener that is slow never gets a queue of old news: per window, and for health and alerts, only the newest waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from streams.exporter.api import Alerts, Health, Window
from streams.exporter.views import Views
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
THOROUGH_LOOKS: Final = 10
"""Every so many looks the older windows are looked at too: late reports may have changed them."""
MOST_LISTENERS: Final = 200
"""More are refused. Each costs a connection and an encoded copy of what changed, nothing in Redis."""

Read = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function in a thread."""
Key = tuple[str, ...]


class Listener:
    """News for one connection; newer news of the same kind replace older ones."""

    def __init__(self) -> None:
        self._news: dict[Key, bytes] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, key: Key, message: bytes) -> None:
        """Leave a message; one with the same key that was not yet taken is replaced."""
        self._news[key] = message
        self._wake.set()

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._wake.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield messages, all that wait joined into one."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            news, self._news = self._news, {}
            if news:
                yield b"".join(news.values())


class Feed:
    """Looks at the store and tells the listeners. Lives in the event loop of the HTTP server."""

    def __init__(self, views: Views, read: Read, alerts: Callable[[], Awaitable[Alerts]]) -> None:
        self._views, self._read, self._alerts = views, read, alerts
        self._listeners: set[Listener] = set()
        self._seen: dict[Key, bytes] = {}
        self._latest: dict[Key, bytes] = {}
        self._looks = 0

    @property
    def full(self) -> bool:
        """Whether no more listeners are taken."""
        return len(self._listeners) >= MOST_LISTENERS

    def join(self) -> Listener:
        """Return a new listener; it first gets the last health and alerts. The windows it must ask for itself."""
        listener = Listener()
        for key, message in self._latest.items():
            listener.put(key, message)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """End all connections."""
        for listener in self._listeners:
            listener.close()

    async def run(self) -> None:
        """Look for ever. Without listeners only the counters are looked at, so that rates are there when one comes."""
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self.look()
            except StoreUnavailableError as error:
                logger.debug("no look at the store: %s", error)
            except Exception:
                # The page says that it hears nothing; the other paths of the exporter still work.
                logger.exception("a look at the store failed")
            elapsed = asyncio.get_running_loop().time() - started
            await asyncio.sleep(max(LOOK_SECONDS - elapsed, LOOK_SECONDS / 4))

    async def look(self) -> None:
        """Look once and tell what is new."""
        health: Health = await self._read(self._views.health)
        self._tell(("health",), msgspec.json.encode(health), keep=True)
        if not self._listeners:
            self._seen.clear()
            return
        self._tell(("alerts",), msgspec.json.encode(await self._alerts()), keep=True)
        self._looks += 1
        thoroughly = self._looks % THOROUGH_LOOKS == 1
        windows: list[Window] = await self._read(lambda: list(self._views.recent(thoroughly=thoroughly)))
        for window in windows:
            key = ("window", window.survey, str(window.window_start_ms))
            payload = msgspec.json.encode(window)
            if self._seen.get(key) != payload:
                self._seen[key] = payload
                self._tell(key, payload)
        if thoroughly:
            there = {("window", window.survey, str(window.window_start_ms)) for window in windows}
            self._seen = {key: payload for key, payload in self._seen.items() if key in there}

    def _tell(self, key: Key, payload: bytes, *, keep: bool = False) -> None:
        message = b"event: %s\ndata: %s\n\n" % (key[0].encode(), payload)
        if keep:
            self._latest[key] = message
        for listener in self._listeners:
            listener.put(key, message)
