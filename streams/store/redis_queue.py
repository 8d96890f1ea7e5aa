"""Queues of windows in Redis: a sorted set each, and one short lock per window."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from streams.store import redis_checks
from streams.store.contract import STAMP_BYTES, QueuedWindow
from streams.store.redis_connection import RedisConnection, Script
from streams.store.shape import KEEP_MS

_PUT: Final = Script("queue_put")
_REMOVE: Final = Script("queue_remove")
_UNLOCK: Final = Script("unlock")


class RedisWindowQueue:
    """A `WindowQueue` in Redis.

    Args:
        connection: the connection.
        name: of the queue, in the name of its key.
        lock: what the locks of its windows are called in their keys.
    """

    def __init__(self, connection: RedisConnection, *, name: str, lock: str) -> None:
        self._connection, self._client = connection, connection.client
        self._key, self._lock = f"{connection.base}{{dirty}}:{name}", lock

    def put(self, windows: Iterable[tuple[str, int]]) -> None:
        """Put windows (survey id, start) into the queue; one that is there gets a higher score."""
        members = [_member(*window) for window in windows]
        if members:
            self._connection.run([(_PUT, (self._key,), (KEEP_MS, *members))])

    def entries(self) -> list[QueuedWindow]:
        """Return all queued windows, oldest first."""
        with self._connection.calling():
            found = self._client.zrange(self._key, 0, -1, withscores=True)
        # What no worker can have put is passed over.
        named = ((_window(member), score) for member, score in found)
        return [QueuedWindow(*window, float(score)) for window, score in named if window is not None]

    def remove(self, window: QueuedWindow) -> bool:
        """Remove a window unless it was put again since it was read; return whether it was removed."""
        member = _member(window.survey_id, window.window_ms)
        return bool(self._connection.run([(_REMOVE, (self._key,), (member, repr(window.score)))])[0])

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        """Try to take the short lock of a window; the returned secret proves ownership."""
        secret = secrets.token_bytes(STAMP_BYTES)
        key = self._connection.survey_key(survey_id, self._lock, window_ms)
        with self._connection.calling():
            won = self._client.set(key, secret, nx=True, px=ttl_ms)
        return secret if won else None

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        """Release the lock if the secret still holds it."""
        self._connection.run([(_UNLOCK, (self._connection.survey_key(survey_id, self._lock, window_ms),), (secret,))])


@dataclass
class _Scan:
    """How far the search for windows with counts has come after a restart of Redis."""

    run: bytes
    cursor: redis_checks.Cursor
    put: set[tuple[str, int]]
    """Windows put so far: each is found once per shard."""


class RedisRecomputeQueue(RedisWindowQueue):
    """A `RecomputeQueue` in Redis. The search after a restart is state of its own: for one thread."""

    def __init__(self, connection: RedisConnection) -> None:
        super().__init__(connection, name="windows", lock="lock")
        self._run_key = f"{connection.base}{{dirty}}:run"
        self._scan: _Scan | None = None

    def put_after_restart(self, for_ms: int | None = None) -> int:
        """Put every window with counts, once after each restart of Redis; return how many this call put.

        A call that took `for_ms` stops looking for windows; the next one goes on where it stopped.
        """
        limit = math.inf if for_ms is None else time.monotonic() + for_ms / 1_000
        with self._connection.calling():
            run = redis_checks.run_id(self._client)
            if run is None or self._client.get(self._run_key) == run:
                self._scan = None
                return 0
        if self._scan is None or self._scan.run != run:
            self._scan = _Scan(run, redis_checks.FIRST, set())
        scan, found = self._scan, set[tuple[str, int]]()
        cursor: redis_checks.Cursor | None = scan.cursor
        while cursor is not None:
            with self._connection.calling():
                cursor, windows = redis_checks.counted_windows(self._client, self._connection.base, cursor)
            found |= windows - scan.put
            if time.monotonic() >= limit:
                break
        self.put(found)
        scan.put |= found
        if cursor is not None:
            scan.cursor = cursor
        else:
            with self._connection.calling():
                self._client.set(self._run_key, run, px=KEEP_MS)
            self._scan = None
        return len(found)


def _member(survey_id: str, window_ms: int) -> str:
    return f"{survey_id}:{window_ms}"


def _window(member: bytes) -> tuple[str, int] | None:
    survey_id, _, window = member.decode(errors="replace").rpartition(":")
    return (survey_id, int(window)) if survey_id and re.fullmatch(r"-?[0-9]+", window) else None
