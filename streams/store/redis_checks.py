"""Checks of a Redis server: guarantees that its settings cannot keep, and restarts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import ResponseError

from streams.store.redis_cluster import servers

Cursor = tuple[int, int]
"""How far a scan has come: which server, and its own cursor."""
FIRST: Final[Cursor] = (0, 0)

UNREADABLE: Final = (
    "cannot read the configuration of Redis (CONFIG GET was refused): make sure that it runs with "
    "maxmemory-policy noeviction, appendonly yes and appendfsync everysec"
)

_START: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
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
    """Return the id of this run of the servers, new after a restart or failover of any; None if it cannot be read."""
    try:
        return " ".join(sorted(str(server.info("server")["run_id"]) for server in servers(client))).encode()
    except (ResponseError, KeyError):
        return None


def counted_windows(client: Any, base: str, cursor: Cursor) -> tuple[Cursor | None, set[tuple[str, int]]]:
    """Scan some of all keys from a cursor; return the next cursor (None: that was all) and what was found.

    That is survey id and window start of every window with counts.
    """
    nodes, (number, position) = servers(client), cursor
    if number >= len(nodes):
        return None, set()
    literal = re.sub(r"([\\*?\[\]])", r"\\\1", base)
    following, keys = nodes[number].scan(position, match=f"{literal}{{*}}:head:*", count=_SCANNED_AT_ONCE)
    named = (key.decode(errors="replace").rsplit(":", 2)[1:] for key in keys)
    # What no worker can have written is passed over.
    found = {(survey_id, int(start)) for survey_id, start in named if _START.fullmatch(start)}
    if following:
        return (number, int(following)), found
    return (number + 1, 0) if number + 1 < len(nodes) else None, found
