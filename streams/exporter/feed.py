"""Server-sent events: one read of the store per second serves all listeners; each gets only what changed.

A slow listener never gets a queue of old messages: per window, and for health and alerts, only the newest is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from streams.exporter.api import Alerts, Window
from streams.exporter.views import Views
from streams.exporter.watcher import Seen, Watcher
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

THOROUGH_LOOKS: Final = 10
"""Looks between two looks at the older windows too, which late reports may have changed."""
MOST_LISTENERS: Final = 200
"""More are refused. Each costs a connection and an encoded copy of what changed, nothing in Redis."""

Read = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function in a thread."""
Key = tuple[str, ...]


class Listener:
    """Messages for one connection; a newer message of the same kind replaces an older one."""

    def __init__(self) -> None:
        self._queued: dict[Key, bytes] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, key: Key, message: bytes) -> None:
        """Queue a message; one with the same key that was not sent yet is replaced."""
        self._queued[key] = message
        self._wake.set()

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._wake.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield messages; all that are queued come joined into one."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            queued, self._queued = self._queued, {}
            if queued:
                yield b"".join(queued.values())


class Feed:
    """Reads the store and informs the listeners. Runs in the event loop of the HTTP server."""

    def __init__(self, watcher: Watcher, views: Views, read: Read, alerts: Callable[[], Awaitable[Alerts]]) -> None:
        self._watcher, self._views, self._read, self._alerts = watcher, views, read, alerts
        self._listeners: set[Listener] = set()
        self._seen: dict[Key, bytes] = {}
        self._latest: dict[Key, bytes] = {}
        self._looks = 0

    @property
    def full(self) -> bool:
        """Whether no more listeners are accepted."""
        return len(self._listeners) >= MOST_LISTENERS

    def add_listener(self) -> Listener:
        """Return a new listener; it first gets the last health and alerts, and requests windows by itself."""
        listener = Listener()
        for key, message in self._latest.items():
            listener.put(key, message)
        self._listeners.add(listener)
        return listener

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """End all connections."""
        for listener in self._listeners:
            listener.close()

    async def run(self) -> None:
        """Tell the listeners what each look of the watcher found, until cancelled."""
        number = 0
        while True:
            seen = await self._watcher.after(number)
            number = seen.number
            try:
                await self.look(seen)
            except StoreUnavailableError as error:
                logger.debug("cannot read the store: %s", error)
            except Exception:
                # The page shows that the stream stopped; the other paths of the exporter still work.
                logger.exception("reading the store for the event stream failed")

    async def look(self, seen: Seen) -> None:
        """Send what changed."""
        self._send(("health",), msgspec.json.encode(seen.health), keep=True)
        if not self._listeners:
            self._seen.clear()
            return
        self._send(("alerts",), msgspec.json.encode(await self._alerts()), keep=True)
        self._looks += 1
        thoroughly = self._looks % THOROUGH_LOOKS == 1
        counted_ms = seen.current().counted_ms
        windows: list[Window] = await self._read(
            lambda: list(self._views.recent(thoroughly=thoroughly, counted_ms=counted_ms))
        )
        for window in windows:
            key = ("window", window.survey, str(window.window_start_ms))
            payload = msgspec.json.encode(window)
            if self._seen.get(key) != payload:
                self._seen[key] = payload
                self._send(key, payload)
        if thoroughly:
            there = {("window", window.survey, str(window.window_start_ms)) for window in windows}
            self._seen = {key: payload for key, payload in self._seen.items() if key in there}

    def _send(self, key: Key, payload: bytes, *, keep: bool = False) -> None:
        message = b"event: %s\ndata: %s\n\n" % (key[0].encode(), payload)
        if keep:
            self._latest[key] = message
        for listener in self._listeners:
            listener.put(key, message)
