"""Report logs in Redis, piece by piece: no reply and no argument is larger than one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic

from streams.store import log_content
from streams.store.contract import NO_STAMP, STAMP_BYTES, Seen, Shortened
from streams.store.log_content import Content, FoldEntries, pieces_of
from streams.store.redis_connection import Call, RedisConnection, Script
from streams.store.shape import Key, Shape

_LOAD: Final = Script("segments", "load")
_SHORTEN: Final = Script("shorten")

STAGED_MS: Final = 600_000
"""How long a log waits to take the place of another. Less: a slow connection cannot replace a large one; more: what a
process leaves that is killed meanwhile takes memory."""


class Reading(Generic[Content]):
    """A log as it was at one moment, folded as its pieces come."""

    def __init__(self, content: Content, *, whole: bool) -> None:
        self.content = content
        self.stamp: bytes | None = None
        self.counted: list[bytes | None] = [None, None]
        self.coming: bytes | None = None
        self.segments = 0
        self.tally: bytes | None = None
        self.log_bytes = 0
        self._entries: list[bytes] = []
        self.error: ValueError | None = None
        self.changed = False
        """It changed between two pieces."""
        self._whole, self._begun, self._read = whole, False, 0

    @property
    def seen(self) -> Seen:
        """What tells this state of the log from another."""
        return Seen(self.stamp or NO_STAMP, self.segments)

    @property
    def whole(self) -> bytes | None:
        """The entries, if they were asked for."""
        return b"".join(self._entries) if self._whole else None

    @property
    def done(self) -> bool:
        """Whether nothing more is to be read."""
        return self.changed or self.error is not None or (self._begun and self._read == self.segments)

    def call(self, keys: Sequence[str], most: int, least: int) -> Call:
        """Return the call for the next piece."""
        return _LOAD, keys, (self._read, most, least, 0 if self._begun else 1)

    def take(self, reply: Any) -> None:
        """Fold a piece."""
        (stamp, *counted, coming), segments, tally, pieces = reply
        if not self._begun:
            self.stamp, self.counted, self.coming, self.segments, self.tally = stamp, counted, coming, segments, tally
            self._begun = True
        elif (stamp, segments) != (self.stamp, self.segments):
            self.changed = True
            return
        self._read += len(pieces)
        try:
            for piece in pieces:
                self.content.fold_log(piece)
                self.log_bytes += len(piece)
        except ValueError as error:
            self.error = error
        if self._whole:
            self._entries += pieces


def read_logs(
    connection: RedisConnection, keys: Sequence[Key], shape: Shape, fold: FoldEntries[Content], *, whole: bool
) -> dict[Key, Reading[Content]]:
    """Read logs, each as it was at one moment; those that changed meanwhile are not among what is returned.

    The first round trip brings all short ones; of the others each is read by itself.
    """
    readings = {key: Reading(fold(shape, b""), whole=whole) for key in keys}

    def read(some: Sequence[Key], most: int, least: int) -> None:
        calls = [readings[key].call(connection.log_keys(key), most, least) for key in some]
        for key, reply in zip(some, connection.run(calls), strict=True):
            readings[key].take(reply)

    read(keys, log_content.PIECE_BYTES // max(len(keys), 1), 0)
    for key, reading in readings.items():
        while not reading.done:
            read([key], log_content.PIECE_BYTES, 1)
    return {key: reading for key, reading in readings.items() if not reading.changed}


def rest_of(
    connection: RedisConnection, key: Key, stamp: bytes | None, segments: int, begun: Sequence[bytes]
) -> bytes | None:
    """Return the entries of a log of which the first segments were read; None if it changed since."""
    keys, pieces = connection.log_keys(key), list(begun)
    while len(pieces) < segments:
        [((found, *_), length, _, more)] = connection.run([(_LOAD, keys, (len(pieces), log_content.PIECE_BYTES, 1, 0))])
        if (found, length) != (stamp, segments):
            return None
        pieces += more
    return b"".join(pieces)


def shorten(
    connection: RedisConnection, key: Key, seen: Seen, keep: Callable[[bytes], bytes], shape: Shape
) -> Shortened | None:
    """Take a piece of the oldest entries out and append what `keep` returns of them; None if the log changed."""
    keys = connection.log_keys(key)
    [((stamp, _, records, _), segments, _, pieces)] = connection.run(
        [(_LOAD, keys, (0, log_content.PIECE_BYTES, 1, 0))]
    )
    if Seen(stamp or NO_STAMP, segments) != seen or not records or not records.isdigit():
        return None
    oldest = b"".join(pieces)
    kept = keep(oldest)
    dropped = (len(oldest) - len(kept)) // shape.entry_bytes
    fresh = secrets.token_bytes(STAMP_BYTES)
    arguments = (seen.stamp, seen.segments, len(pieces), kept, int(records) - dropped, fresh)
    [left] = connection.run([(_SHORTEN, keys[:2], arguments)])
    return Shortened(fresh, left, dropped) if left else None


def stage(connection: RedisConnection, key: Key, entries: bytes, entry_bytes: int) -> tuple[str, int]:
    """Write a log beside the one whose place it is to take; return its key and the number of its segments."""
    name = f"{connection.staged_key(key)}:{secrets.token_hex(8)}"
    pieces = pieces_of(entries, entry_bytes) if entries else []
    for piece in pieces:
        with connection.calling(), connection.client.pipeline(transaction=False) as pipe:
            pipe.rpush(name, piece)
            pipe.pexpire(name, STAGED_MS)
            pipe.execute()
    return name, len(pieces)
