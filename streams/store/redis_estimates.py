"""Tallies of windows, estimates, their histories and small states in Redis."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any, Final

from estimators.tally import Tally
from producers.wire.shards import partition_of
from streams.store import log_content
from streams.store.contract import HISTORY_POINTS, NO_STAMP, Seen, StoreCorruptError
from streams.store.ladders import fitted
from streams.store.redis_connection import Call, RedisConnection, Script, number_in
from streams.store.redis_pieces import rest_of
from streams.store.shape import Key, Shape
from streams.store.shard_counts import ShardCounts

_COUNTS: Final = Script("segments", "read_counts")
_SAVE: Final = Script("save_estimate")
_WINDOW_STARTS: Final = Script("window_starts")
_SWAP: Final = Script("swap_state")

_LOGS_AT_ONCE: Final = 16
"""Logs whose beginnings are read in one round trip, a piece in all. Fewer: more round trips; more: shorter beginnings,
so that more logs need another one."""

_DEFLATED: Final = b"\x78"
"""First byte of a compressed estimate; one that is not is JSON and begins with a brace."""
_INFLATED_BYTES: Final = 64 << 20
"""Most that a compressed estimate may become: 20 times one of 10,000 values. Larger: somebody else's bytes may take the
memory of their reader."""


class RedisEstimates:
    """An `EstimateStore` in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window.

        Raises:
            StoreCorruptError: with the logs whose tallies cannot be read or are missing; `ReportLog.load` repairs them.
        """
        keys = [Key(survey_id, window_ms, shard) for shard in range(shards)]
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(self._connection.log_keys(key)[2])
            found = pipe.execute()
        return sum(self._tallies(keys, found, shape), Tally.empty(shape.rungs, shape.groups, shape.size))

    def counts(
        self,
        survey_id: str,
        window_ms: int,
        shape: Shape,
        *,
        topic: str,
        partitions: int,
        known: Sequence[bytes] | None = None,
    ) -> list[ShardCounts]:
        """Return the counts of every shard of a window, each shard at one moment, with the offset of its partition.

        Raises:
            StoreCorruptError: with the logs whose tallies cannot be read or are missing; `ReportLog.load` repairs them.
        """
        keys = [Key(survey_id, window_ms, shard) for shard in range(shape.shards)]
        at_once = len(keys) if known is None else min(_LOGS_AT_ONCE, len(keys))
        most = log_content.PIECE_BYTES // at_once
        calls: list[Call] = []
        for key in keys:
            log, head, summary = self._connection.log_keys(key)
            offset = self._connection.offset_key(topic, partition_of(key.shard, partitions), key.shard)
            wanted = (0, b"") if known is None else (1, known[key.shard])
            calls.append((_COUNTS, (offset, head, summary, log), (*wanted, most)))
        replies: list[tuple[Any, ...]] = []
        for first in range(0, len(calls), at_once):
            some = self._connection.run(calls[first : first + at_once])
            # The rest of a long log at once: the longer that waits, the more of them have changed.
            for key, (offset, (stamp, limit), raw, begun) in zip(keys[first:], some, strict=False):
                entries = None if begun is None else rest_of(self._connection, key, stamp, *begun)
                replies.append((raw, stamp, offset, limit, entries, begun is not None and entries is None))
        tallies = self._tallies(keys, [raw for raw, *_ in replies], shape)
        return [
            ShardCounts(
                tally,
                stamp or NO_STAMP,
                number_in(offset),
                None if limit is None else number_in(limit),
                entries,
                changed,
            )
            for tally, (_, stamp, offset, limit, entries, changed) in zip(tallies, replies, strict=True)
        ]

    def _tallies(self, keys: Sequence[Key], found: Sequence[bytes | None], shape: Shape) -> list[Tally]:
        tallies: list[Tally] = []
        unreadable: dict[Key, Seen] = {}
        reason = ""
        empty = Tally.empty(shape.rungs, shape.groups, shape.size)
        for key, raw in zip(keys, found, strict=True):
            try:
                tallies.append(empty if raw is None else fitted(raw, shape, self._connection.log_keys(key)[2]))
            except ValueError as error:
                unreadable[key] = Seen(NO_STAMP, 0)
                reason = reason or f"{self._connection.log_keys(key)[2]}: {error}"
        for key in self._without_tally([key for key, raw in zip(keys, found, strict=True) if raw is None]):
            unreadable[key] = Seen(NO_STAMP, 0)
            reason = reason or f"{self._connection.log_keys(key)[2]} is missing, and its log is not"
        if unreadable:
            raise StoreCorruptError(reason, unreadable)
        return tallies

    def _without_tally(self, keys: Sequence[Key]) -> list[Key]:
        """Return the keys that have a log and no tally."""
        if not keys:
            return []
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                # In this order: a log that comes in between brings its tally along.
                log, _, tally = self._connection.log_keys(key)
                pipe.exists(log)
                pipe.exists(tally)
            found = pipe.execute()
        return [key for key, log, tally in zip(keys, found[::2], found[1::2], strict=True) if log and not tally]

    def save(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        """Store an estimate if the secret still holds the window's lock; add the point to the estimate history."""
        keys = (
            self._connection.survey_key(survey_id, "lock", window_ms),
            self._connection.survey_key(survey_id, "estimate", window_ms),
            self._connection.survey_key(survey_id, "windows"),
            self._connection.survey_key(survey_id, "life", window_ms),
        )
        arguments = (secret, _deflated(payload), expires_ms, window_ms, point, HISTORY_POINTS)
        return bool(self._connection.run([(_SAVE, keys, arguments)])[0])

    def read(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        with self._connection.calling():
            payload: bytes | None = self._client.get(self._connection.survey_key(survey_id, "estimate", window_ms))
        return _inflated(payload)

    def read_many(self, windows: Sequence[tuple[str, int]]) -> list[bytes | None]:
        """Return the stored estimates of windows (survey id, start), in their order, in one round trip."""
        # No MGET: in a cluster the keys of two surveys lie on two machines.
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for survey_id, window_ms in windows:
                pipe.get(self._connection.survey_key(survey_id, "estimate", window_ms))
            payloads: list[bytes | None] = pipe.execute()
        return [_inflated(payload) for payload in payloads]

    def history(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's estimate history, oldest first."""
        with self._connection.calling():
            points: list[bytes] = self._client.lrange(self._connection.survey_key(survey_id, "life", window_ms), 0, -1)
        return points

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        key = self._connection.survey_key(survey_id, "windows")
        found = self._connection.run([(_WINDOW_STARTS, (key,), ())])[0]
        # What no worker can have listed is passed over.
        return sorted(int(start) for start in found if re.fullmatch(rb"-?[0-9]{1,18}", start))


def _deflated(payload: bytes) -> bytes:
    """Return a payload as it is stored: one that is longer than a piece of a log is compressed."""
    return zlib.compress(payload, 1) if len(payload) > log_content.PIECE_BYTES else payload


def _inflated(stored: bytes | None) -> bytes | None:
    """Return the payload; of bytes that nobody here has stored, these bytes: they are no estimate."""
    if stored is None or not stored.startswith(_DEFLATED):
        return stored
    try:
        return zlib.decompressobj().decompress(stored, _INFLATED_BYTES)
    except zlib.error:
        return stored


class RedisSmallStates:
    """`SmallStates` in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client

    def get(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        """Return a state of a survey, or of one of its windows; empty if there is none."""
        with self._connection.calling():
            return bytes(self._client.get(self._connection.survey_key(survey_id, f"state:{name}", window_ms)) or b"")

    def swap(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        """Replace a state if it still is `expected` (empty: none); return whether it was replaced."""
        key = self._connection.survey_key(survey_id, f"state:{name}", window_ms)
        return bool(self._connection.run([(_SWAP, (key,), (expected, new, expires_ms))])[0])
