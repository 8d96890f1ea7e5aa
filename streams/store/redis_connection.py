"""The connection to Redis that all parts of the store share: keys, scripts, and errors in the store's own terms."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from streams.store.contract import StoreRepairedError, StoreUnavailableError
from streams.store.redis_types import remove_wrong_types
from streams.store.shape import Key

VERSION: Final = "v1"


class Script:
    """A script from the folder `lua`, known to Redis by the hash of its text."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / "lua" / f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


Call = tuple[Script, Sequence[str], Sequence[Any]]
"""A script, its keys and its arguments."""


def connect(url: str, *, ca_file: str | None = None, timeout_seconds: float = 5.0) -> redis.Redis:
    """Return a client for an address such as `redis://127.0.0.1:6379/0`; it connects with the first call.

    `ca_file` holds the certificates that sign that of a `rediss://` server, if not the system's.

    The client does not retry: after a lost connection the outcome is unknown, and only the caller knows what to reload.
    """
    tls = {"ssl_ca_certs": ca_file} if ca_file and url.startswith("rediss://") else {}
    return redis.Redis.from_url(
        url,
        decode_responses=False,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        socket_keepalive=True,
        health_check_interval=30,
        retry=Retry(NoBackoff(), 0),
        **tls,
    )


class RedisConnection:
    """A client, the names of the keys, and script calls. Has no state beside connections, so threads may share it."""

    def __init__(self, client: redis.Redis, *, prefix: str = "") -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError(
                f"a key prefix must not contain braces, which decide where a cluster puts a key; got {prefix!r}"
            )
        self.client: Any = client
        self.base = f"{prefix}thaw:{VERSION}:"

    # Keys. What stands in braces decides the place in a cluster: all keys of one script call have it in common.

    def log_keys(self, key: Key) -> tuple[str, str, str]:
        """Return the keys of a report log, of its head and of its tally."""
        start, end = f"{self.base}{{{key.shard}}}:", f":{key.survey_id}:{key.window_ms}"
        return f"{start}log{end}", f"{start}head{end}", f"{start}tally{end}"

    def kept_key(self, key: Key) -> str:
        """Return where the remains of an unreadable log are kept."""
        return f"{self.base}{{{key.shard}}}:unreadable:{key.survey_id}:{key.window_ms}"

    def offset_key(self, topic: str, partition: int, shard: int) -> str:
        """Return the key of the offset below which everything of a shard is stored."""
        return f"{self.base}{{{shard}}}:offset:{topic}:{partition}"

    def survey_key(self, survey_id: str, name: str, window_ms: int | None = None) -> str:
        """Return a key of a survey, or of one of its windows."""
        key = f"{self.base}{{{survey_id}}}:{name}"
        return key if window_ms is None else f"{key}:{window_ms}"

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Turn errors of the client into StoreUnavailableError; remove keys of a wrong type before, if one was met.

        Raises:
            StoreUnavailableError: StoreRepairedError if keys were removed.
        """
        try:
            with translated(self.client):
                yield
        except StoreUnavailableError as error:
            if "WRONGTYPE" not in str(error.__cause__):
                raise
            with translated(self.client):
                removed = remove_wrong_types(self.client, self.base)
            raise StoreRepairedError(f"removed keys of a wrong type from Redis: {', '.join(removed)}") from error

    def run(self, calls: Sequence[Call], *, first: Mapping[str, tuple[int, int]] | None = None) -> list[Any]:
        """Run scripts in one round trip; a script that Redis does not know (it restarted) is sent again as text.

        `first` are numbers that are set before: key to number and lifetime in ms.
        """
        with self.calling(), self.client.pipeline(transaction=False) as pipe:
            for key, (number, life_ms) in (first or {}).items():
                pipe.set(key, number, px=life_ms)
            for script, keys, arguments in calls:
                pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            replies: list[Any] = pipe.execute(raise_on_error=False)[len(first or {}) :]
            for position, (script, keys, arguments) in enumerate(calls):
                if isinstance(replies[position], NoScriptError):
                    replies[position] = self.client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies


@contextmanager
def translated(client: Any) -> Iterator[None]:
    """Turn errors of the client into StoreUnavailableError."""
    try:
        yield
    except RedisError as error:
        raise StoreUnavailableError(_explained(error, _address(client))) from error


def _explained(error: RedisError, address: str) -> str:
    if isinstance(error, RedisTimeoutError):
        return f"no answer from Redis at {address} in time"
    if isinstance(error, RedisConnectionError):
        cause = error.__cause__ or error.__context__
        reason = os.strerror(cause.errno).lower() if isinstance(cause, OSError) and cause.errno else str(error)
        return f"Redis unreachable at {address} ({reason})"
    return f"Redis at {address} refused a command ({error})"


def _address(client: Any) -> str:
    place = client.connection_pool.connection_kwargs
    return str(place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}")
