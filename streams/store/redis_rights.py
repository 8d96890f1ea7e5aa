"""The rights that each process needs at a Redis with access control: one table for the docs and the tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_CALLS: Final = ("+eval", "+evalsha", "+multi", "+exec", "+ping", "+time", "+info")
"""What every process does beside reading and writing: scripts, a health check, the clock, the id of a run."""
_READS: Final = ("+@read", "-@dangerous", *_CALLS)
_WRITES: Final = ("+@read", "+@write", "-@dangerous", *_CALLS)

_CLUSTER: Final = ("+cluster|slots", "+cluster|shards", "+command", "+asking")
"""What a client of a cluster does besides: it asks where keys are, and follows those that move."""
_ASKS: Final = "{prefix}thaw:v1:{{*}}:state:likelihood*"
"""Where workers look whether somebody has asked for a likelihood, the one thing that a reader may ask for."""


@dataclass(frozen=True)
class RedisRight:
    """What the user of some commands may do with which keys, by the words of Redis' access control lists.

    A script may call only what its user may: without a right to write, a script that writes is refused.
    """

    keys: tuple[str, ...]
    commands: tuple[str, ...]
    selector: str = ""
    """More rights, with keys of their own (Redis 7)."""

    def rule(self) -> str:
        """Return the rule for ACL SETUSER, behind the name and the password."""
        own = ["resetchannels", *(f"~{pattern}" for pattern in self.keys), "-@all", *self.commands]
        return " ".join([*own, f"({self.selector})"] if self.selector else own)


def redis_rights(prefix: str, *, cluster: bool = False) -> dict[str, RedisRight]:
    """Return what the user of each command must be allowed, for the prefix of a system."""
    store, truth = f"{prefix}thaw:v1:*", f"{prefix}thaw:truth:v1:*"
    found = {
        "thaw worker, thaw rebuild, thaw topics migrate": RedisRight((store,), (*_WRITES, "+config|get")),
        "thaw exporter, thaw estimates, thaw recount, thaw bulletin, thaw verify --source redis": RedisRight(
            (store, truth), _READS
        ),
        "thaw exporter, thaw estimates, to ask for a likelihood too": RedisRight(
            (store, truth), _READS, f"~{_ASKS.format(prefix=prefix)} +get +set +pexpireat"
        ),
        "thaw market": RedisRight((store,), _WRITES),
        "thaw fleet": RedisRight((truth,), ("+@read", "-@dangerous", "+hset", "+expire", "+del", "+eval", "+ping")),
        "thaw fleet --canary": RedisRight((store, truth), _WRITES),
    }
    more = _CLUSTER if cluster else ()
    return {command: replace(right, commands=(*right.commands, *more)) for command, right in found.items()}


def documentation() -> str:
    """Return the table as Markdown, for docs/settings.md."""
    lines = ["| user of | rule of `ACL SETUSER` |", "|---|---|"]
    lines += [f"| {command} | `{right.rule()}` |" for command, right in redis_rights("PREFIX").items()]
    lines += ["", f"At every node of a cluster also `{' '.join(_CLUSTER)}`."]
    return "\n".join(lines)
