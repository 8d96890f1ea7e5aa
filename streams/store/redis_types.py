"""Keys of a wrong type: somebody else wrote into the names of this system. What they hold cannot be used; they go.

Every command that meets such a key fails, so a single one would stop all counting or all estimates. A log that is no
list cannot be read: its window is queued to be rebuilt from Kafka before the key is deleted. Everything else is a
summary that is made again.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

from streams.store.redis_cluster import servers

logger = logging.getLogger(__name__)

_SCANNED_AT_ONCE: Final = 1_000
_DROP: Final = (Path(__file__).parent / "lua" / "drop_wrong_type.lua").read_bytes()

TYPES: Final = {
    "log": b"list",
    "head": b"hash",
    "tally": b"string",
    "total": b"hash",
    "offset": b"string",
    "unreadable": b"list",
    "staged": b"list",
    "shards": b"string",
    "counters": b"hash",
    "estimate": b"string",
    "life": b"list",
    "windows": b"zset",
    "lock": b"string",
    "rebuild": b"string",
    "state": b"string",
    "run": b"string",
    "beat": b"string",
    "beats": b"zset",
}
"""The type of a key by the word behind its hash tag."""

_SOURCES: Final = {"source": b"string", "sources": b"zset"}
"""The same for keys that have no hash tag."""

_QUEUES: Final = {"windows": b"zset", "unreadable": b"zset"}
"""The same for keys of the queues, with the hash tag `dirty`."""


def right_type(key: str) -> bytes | None:
    """Return the type that a key of this name has, without its prefix; None if the name is not of this system.

    >>> right_type("{7}:log:colour-01234567:60000"), right_type("{dirty}:unreadable"), right_type("{7}:else")
    (b'list', b'zset', None)
    """
    found = re.match(r"\{([^}]*)\}:([a-z]+)", key)
    if found is None:
        return _SOURCES.get(key.partition(":")[0])
    tag, word = found.groups()
    return _QUEUES.get(word, TYPES.get(word)) if tag == "dirty" else TYPES.get(word)


def remove_wrong_types(client: Any, base: str) -> list[str]:
    """Delete all keys of a wrong type, by scanning all keys (seconds for millions); return their names."""
    removed = []
    queue = f"{base}{{dirty}}:unreadable"
    if remove_wrong_type(client, queue, _QUEUES["unreadable"]):
        removed.append(queue)
    literal = re.sub(r"([\\*?\[\]])", r"\\\1", base)
    for server in servers(client):
        cursor = None
        while cursor != 0:
            cursor, keys = server.scan(cursor or 0, match=f"{literal}*", count=_SCANNED_AT_ONCE)
            with client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.type(key)
                types = pipe.execute()
            for key, found in zip(keys, types, strict=True):
                name = key.decode(errors="replace")
                right = right_type(name.removeprefix(base))
                if right is not None and found not in (right, b"none") and _remove(client, base, key, name, right):
                    removed.append(name)
    return removed


def _remove(client: Any, base: str, key: bytes, name: str, right: bytes) -> bool:
    if re.search(r"\}:log:", name):
        # As `RedisWindowQueue.put` does it.
        survey_id, window = name.rsplit(":", 2)[1:]
        seconds, microseconds = client.time()
        client.zadd(f"{base}{{dirty}}:unreadable", {f"{survey_id}:{window}": seconds * 10**6 + microseconds}, gt=True)
    if name == f"{base}{{dirty}}:windows":
        # What was queued is unknown: everything is queued again, as after a restart.
        client.delete(f"{base}{{dirty}}:run")
    return remove_wrong_type(client, key, right)


def remove_wrong_type(client: Any, key: bytes | str, right: bytes) -> bool:
    """Delete a key that is not of the right type; return whether it was deleted."""
    gone = bool(client.eval(_DROP, 1, key, right))
    if gone:
        name = key.decode(errors="replace") if isinstance(key, bytes) else key
        logger.error("%s was no %s: somebody else wrote to it; deleted, it is made again", name, right.decode())
    return gone
