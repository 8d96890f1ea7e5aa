"""Server-sent events: one read of the store per second serves all listeners; each gets only what changed.

A slow listener never gets a queue of old messages: per window, and for health and alerts, only the newest is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from streams.exporter.api import Alerts
from streams.exporter.shared import Read
from streams.exporter.views import Views
from streams.exporter.watcher import Seen, Watcher
from streams.exporter.windows import EncodedWindow
from streams.store.contract import StoreUnavailableError

logger = logging.getLogger(__name__)

THOROUGH_LOOKS: Final = 10
"""Looks between two looks at the older windows too, which late reports may have changed."""
MOST_LISTENERS: Final = 1_200
"""More are refused. Each costs a connection and one write for each window that changed; the bytes are shared."""

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
        """Yield messages, oldest first. They are not joined: all listeners share their bytes."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._queued:
                # Taken when it is sent, not before: a slow listener gets the newest of its kind.
                yield self._queued.pop(next(iter(self._queued)))


class Feed:
    """Reads the store and informs the listeners. Runs in the event loop of the HTTP server."""

    def __init__(
        self,
        watcher: Watcher,
        views: Views,
        read: Read,
        alerts: Callable[[], Awaitable[Alerts]],
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a feed; `looked` is called after each look, when the listeners have been told."""
        self._watcher, self._views, self._read, self._alerts, self._looked = watcher, views, read, alerts, looked
        self._listeners: set[Listener] = set()
        self._seen: dict[Key, int] = {}
        self._latest: dict[Key, bytes] = {}
        self._looks = 0
        self._beginning = asyncio.Lock()

    @property
    def full(self) -> bool:
        """Whether no more listeners are accepted."""
        return len(self._listeners) >= MOST_LISTENERS

    async def add_listener(self) -> Listener:
        """Return a new listener; it first gets the last health and alerts, and requests windows by itself.

        Windows are seen before it is told to: what changes after its request is an event.
        """
        async with self._beginning:
            if not self._seen:
                with suppress(StoreUnavailableError):
                    for window in await self._windows(thoroughly=True):
                        self._seen[_key(window)] = hash(window.body)
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
            self._looked()

    async def look(self, seen: Seen) -> None:
        """Send what changed."""
        self._send(("health",), msgspec.json.encode(seen.health), keep=True)
        if not self._listeners:
            self._seen.clear()
            return
        self._send(("alerts",), msgspec.json.encode(await self._alerts()), keep=True)
        self._looks += 1
        thoroughly = self._looks % THOROUGH_LOOKS == 1
        windows = await self._windows(thoroughly=thoroughly)
        for window in windows:
            key, value = _key(window), hash(window.body)
            if self._seen.get(key) != value:
                self._seen[key] = value
                self._send(key, window.body)
        if thoroughly:
            there = {_key(window) for window in windows}
            self._seen = {key: value for key, value in self._seen.items() if key in there}

    async def _windows(self, *, thoroughly: bool) -> list[EncodedWindow]:
        counted_ms = self._watcher.seen().current().counted_ms
        found: list[EncodedWindow] = await self._read(
            lambda: list(self._views.recent(thoroughly=thoroughly, counted_ms=counted_ms))
        )
        return found

    def _send(self, key: Key, payload: bytes, *, keep: bool = False) -> None:
        message = b"event: %s\ndata: %s\n\n" % (key[0].encode(), payload)
        if keep:
            self._latest[key] = message
        for listener in self._listeners:
            listener.put(key, message)


def _key(window: EncodedWindow) -> Key:
    return "window", window.survey, str(window.window_start_ms)
