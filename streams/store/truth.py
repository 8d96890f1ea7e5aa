"""The truth of simulated fleets, beside the store under a prefix of its own.

A simulated fleet writes it; only the page and the demo read it. Counting and estimating never do: import-linter forbids
the import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import redis

from streams.store.redis_cluster import ClusterClient
from streams.store.redis_connection import translated
from streams.store.redis_types import remove_wrong_type

TTL_SECONDS: Final = 24 * 3600


@dataclass(frozen=True)
class Truth:
    """True quantities of a window over the devices delivered so far; None where no device contributes."""

    shares: list[float | None]
    devices: int
    settled: bool
    """Every block of the fleet has delivered everything."""

    @classmethod
    def combine(cls, blocks: Iterable[bytes]) -> Truth:
        """Add what all blocks of a fleet wrote.

        Raises:
            ValueError, KeyError, TypeError: it was not written by a fleet of this version.
        """
        decoded = [json.loads(block) for block in blocks]
        numerators = np.sum([block["numerators"] for block in decoded], axis=0)
        denominators = np.sum([block["denominators"] for block in decoded], axis=0)
        shares = [float(n / d) if d > 0 else None for n, d in zip(numerators, denominators, strict=True)]
        settled = len(decoded) == decoded[0]["blocks"] and all(block["settled"] for block in decoded)
        return cls(shares, sum(block["devices"] for block in decoded), settled)


class RedisTruths:
    """Truth per (survey, window) as a Redis hash, one field per block of the fleet.

    Any call may raise StoreUnavailableError.
    """

    def __init__(self, client: redis.Redis | ClusterClient, *, prefix: str = "") -> None:
        self._client: Any = client
        self._base = f"{prefix}thaw:truth:v1:"

    def _key(self, survey_id: str, window_ms: int) -> str:
        return f"{self._base}{survey_id}:{window_ms}"

    def post(self, survey_id: str, window_ms: int, block: str, truth: dict[str, Any]) -> None:
        """Replace what one block of a fleet wrote about a window, and whatever else stands in its place."""
        key = self._key(survey_id, window_ms)
        with translated(self._client):
            remove_wrong_type(self._client, key, b"hash")
            with self._client.pipeline(transaction=False) as pipe:
                pipe.hset(key, block, json.dumps(truth))
                pipe.expire(key, TTL_SECONDS)
                pipe.execute()

    def read(self, survey_id: str, window_ms: int) -> Truth | None:
        """Return the truth of a window as far as it was delivered; None if no fleet of this version wrote it."""
        return self.read_many(survey_id, [window_ms]).get(window_ms)

    def read_many(self, survey_id: str, starts: Sequence[int]) -> dict[int, Truth]:
        """Return the truth of those of these windows that a fleet of this version wrote it of, in one round trip."""
        if not starts:
            return {}
        with translated(self._client), self._client.pipeline(transaction=False) as pipe:
            for start_ms in starts:
                pipe.hgetall(self._key(survey_id, start_ms))
            replies: list[dict[bytes, bytes] | Exception] = pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
                    raise reply
        found = {}
        for start_ms, blocks in zip(starts, replies, strict=True):
            if blocks and not isinstance(blocks, Exception):
                with suppress(ValueError, KeyError, TypeError):
                    found[start_ms] = Truth.combine(blocks.values())
        return found
