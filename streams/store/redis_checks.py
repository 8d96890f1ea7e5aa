"""Checks of a Redis server: guarantees that its settings cannot keep, and restarts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import ResponseError

UNREADABLE: Final = (
    "cannot read the configuration of Redis (CONFIG GET was refused): make sure that it runs with "
    "maxmemory-policy noeviction, appendonly yes and appendfsync everysec"
)

_SCANNED_AT_ONCE: Final = 1_000


def warnings(settings: Mapping[str, str]) -> Iterator[str]:
    """Return the guarantees that settings of Redis (as CONFIG GET returns them) cannot keep."""
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"Redis runs with maxmemory-policy {policy}: when memory is short it evicts counts without an error; "
            "set maxmemory-policy noeviction"
        )
    if settings.get("appendonly", "yes") != "yes":
        yield (
            "Redis runs without an append-only file: a restart loses everything since its last snapshot, and workers "
            "read it again only as far back as Kafka keeps it; set appendonly yes"
        )
    elif settings.get("appendfsync", "everysec") == "no":
        yield (
            "Redis runs with appendfsync no: a power cut loses what the system had not written, often 30 seconds, "
            "which workers then read again from Kafka; set appendfsync everysec"
        )


def run_id(client: Any) -> bytes | None:
    """Return the id of this run of the server, new after every restart and failover; None if it cannot be read."""
    try:
        return str(client.info("server")["run_id"]).encode()
    except (ResponseError, KeyError):
        return None


def counted_windows(client: Any, base: str, cursor: int) -> tuple[int, set[tuple[str, int]]]:
    """Scan some of all keys from a cursor (0: the first); return the next cursor (0: that was all) and what was found.

    That is survey id and window start of every window with counts.
    """
    literal = re.sub(r"([\\*?\[\]])", r"\\\1", base)
    following, keys = client.scan(cursor, match=f"{literal}{{*}}:head:*", count=_SCANNED_AT_ONCE)
    named = (key.decode().rsplit(":", 2)[1:] for key in keys)
    return int(following), {(survey_id, int(window_ms)) for survey_id, window_ms in named}
