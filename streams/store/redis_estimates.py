"""Tallies of windows, estimates, their histories and small states in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from estimators.tally import Tally
from streams.store.contract import HISTORY_POINTS, NO_STAMP, Seen, StoreCorruptError
from streams.store.redis_connection import RedisConnection, Script
from streams.store.shape import Key, Shape

_SAVE: Final = Script("save_estimate")
_WINDOW_STARTS: Final = Script("window_starts")
_SWAP: Final = Script("swap_state")


class RedisEstimates:
    """An `EstimateStore` in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window.

        Raises:
            StoreCorruptError: with the logs whose tallies cannot be read; `ReportLog.load` repairs them.
        """
        keys = [Key(survey_id, window_ms, shard) for shard in range(shards)]
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(self._connection.log_keys(key)[2])
            found = pipe.execute()
        total = Tally.empty(shape.rungs, shape.groups, shape.size)
        unreadable: dict[Key, Seen] = {}
        reason = ""
        for key, raw in zip(keys, found, strict=True):
            if raw is not None:
                try:
                    total = total + Tally.from_bytes(raw)
                except ValueError as error:
                    unreadable[key] = Seen(NO_STAMP, 0)
                    reason = reason or f"{self._connection.log_keys(key)[2]}: {error}"
        if unreadable:
            raise StoreCorruptError(reason, unreadable)
        return total

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
        arguments = (secret, payload, expires_ms, window_ms, point, HISTORY_POINTS)
        return bool(self._connection.run([(_SAVE, keys, arguments)])[0])

    def read(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        with self._connection.calling():
            payload: bytes | None = self._client.get(self._connection.survey_key(survey_id, "estimate", window_ms))
        return payload

    def read_many(self, windows: Sequence[tuple[str, int]]) -> list[bytes | None]:
        """Return the stored estimates of windows (survey id, start), in their order, in one round trip."""
        # No MGET: in a cluster the keys of two surveys lie on two machines.
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for survey_id, window_ms in windows:
                pipe.get(self._connection.survey_key(survey_id, "estimate", window_ms))
            payloads: list[bytes | None] = pipe.execute()
        return payloads

    def history(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's estimate history, oldest first."""
        with self._connection.calling():
            points: list[bytes] = self._client.lrange(self._connection.survey_key(survey_id, "life", window_ms), 0, -1)
        return points

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        key = self._connection.survey_key(survey_id, "windows")
        return sorted(map(int, self._connection.run([(_WINDOW_STARTS, (key,), ())])[0]))


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
