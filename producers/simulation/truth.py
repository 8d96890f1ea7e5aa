"""The truth of a simulated fleet, kept beside the pipeline under a prefix of its own.

Only the page and the demo read it. What counts and estimates never does: a linter forbids the import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from redis import Redis

TTL_SECONDS = 24 * 3600


class RedisTruthBoard:
    """Truth per (survey, window) as a Redis hash, one field per block of the fleet."""

    def __init__(self, client: Redis, *, prefix: str = "") -> None:
        self._client, self._prefix = client, prefix

    def _key(self, survey_id: str, window_ms: int) -> str:
        return f"{self._prefix}thaw:truth:v1:{survey_id}:{window_ms}"

    def post(self, survey_id: str, window_ms: int, part: str, truth: dict[str, Any]) -> None:
        """Replace one part of the truth of a window."""
        key = self._key(survey_id, window_ms)
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hset(key, part, json.dumps(truth))
            pipe.expire(key, TTL_SECONDS)
            pipe.execute()

    def read(self, survey_id: str, window_ms: int) -> Truth | None:
        """Return the truth of a window as far as it was delivered; None if no simulated fleet wrote it."""
        parts: dict[bytes, bytes] = self._client.hgetall(self._key(survey_id, window_ms))  # type: ignore[assignment]  # sync client
        return Truth.combine(parts.values()) if parts else None


class Truth:
    """True quantities of a window over the devices delivered so far; None where no device has a say."""

    def __init__(self, shares: list[float | None], devices: int, *, settled: bool) -> None:
        self.shares, self.devices, self.settled = shares, devices, settled

    @classmethod
    def combine(cls, parts: Iterable[bytes]) -> Truth:
        """Add the parts of all blocks; settled once every block has delivered everything."""
        decoded = [json.loads(part) for part in parts]
        numerators = np.sum([part["numerators"] for part in decoded], axis=0)
        denominators = np.sum([part["denominators"] for part in decoded], axis=0)
        shares = [float(n / d) if d > 0 else None for n, d in zip(numerators, denominators, strict=True)]
        settled = len(decoded) == decoded[0]["blocks"] and all(part["settled"] for part in decoded)
        return cls(shares, sum(part["devices"] for part in decoded), settled=settled)
