"""The connection to Redis that all parts of the store share: keys, scripts, and errors in the store's own terms."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    ClusterError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from streams.settings import SettingsError
from streams.store.contract import StoreDeniedError, StoreRepairedError, StoreUnavailableError
from streams.store.redis_cluster import ClusterClient
from streams.store.redis_types import remove_wrong_types
from streams.store.shape import Key
from streams.urls import cluster_nodes, masked

VERSION: Final = "v1"


class Script:
    """A script from the folder `lua`, behind others that it needs, known to Redis by the hash of its text."""

    def __init__(self, *names: str) -> None:
        folder = Path(__file__).parent / "lua"
        self.text = b"".join((folder / f"{name}.lua").read_bytes() for name in names)
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


Call = tuple[Script, Sequence[str], Sequence[Any]]
"""A script, its keys and its arguments."""


_SCRIPT_DENIED: Final = "The user executing the script can't"
"""How Redis 7.0 refuses a command of a script; later versions say NOPERM."""

ANSWER_SECONDS: Final = 5.0
"""How long a call waits for its answer. Longer: a Redis that hangs is told later; shorter: a busy one looks down."""


def connect(
    url: str, *, ca_file: str | None = None, timeout_seconds: float = ANSWER_SECONDS, retries: int = 0
) -> redis.Redis | ClusterClient:
    """Return a client for an address such as `redis://127.0.0.1:6379/0`, or `redis+cluster://HOST:PORT,HOST:PORT`.

    It connects with the first call. `ca_file` holds the certificates that sign that of a server with TLS, if not the
    system's.

    The client does not retry: after a lost connection the outcome is unknown, and only the caller knows what to reload.
    `retries` is for callers whose calls change nothing when they are repeated.

    Raises:
        SettingsError: the client library cannot use the address.
    """
    options: dict[str, Any] = {
        "decode_responses": False,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": 30,
        "retry": Retry(NoBackoff(), retries),
    }
    if ca_file and url.startswith("rediss"):
        options["ssl_ca_certs"] = ca_file
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    try:
        nodes = cluster_nodes(url)
        if nodes:
            return ClusterClient(nodes, **options)
        client = redis.Redis.from_url(url, **options)
        # The library looks at most of an address only when it connects, and then with errors of any kind.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except (TypeError, ValueError, RedisError) as error:
        raise SettingsError(f"THAW_REDIS cannot be used ({error}); got {masked(url)!r}") from error
    return client


class RedisConnection:
    """A client, the names of the keys, and script calls. Has no state beside connections, so threads may share it."""

    def __init__(self, client: redis.Redis | ClusterClient, *, prefix: str = "") -> None:
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

    def staged_key(self, key: Key) -> str:
        """Return where a log is written that is to take the place of another; every attempt adds a name of its own."""
        return f"{self.base}{{{key.shard}}}:staged:{key.survey_id}:{key.window_ms}"

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


def number_in(raw: bytes | None) -> int:
    """Return a stored number; 0 if there is none, or something else."""
    return int(raw) if raw is not None and raw.isdigit() else 0


@contextmanager
def translated(client: Any) -> Iterator[None]:
    """Turn errors of the client into StoreUnavailableError."""
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        if isinstance(client, ClusterClient):
            client.forget_nodes()
        # A cluster client that reaches no node says so, and why only in the cause.
        wrapped = isinstance(error, RedisClusterException) and isinstance(error.__cause__, RedisError)
        raise _explained(error.__cause__ if wrapped else error, client, any_node=wrapped) from error


def _explained(error: BaseException | None, client: Any, *, any_node: bool) -> StoreUnavailableError:
    """Return an error of the client in the store's own terms; `any_node`: no node of a cluster was reached."""
    address = _address(client)
    if isinstance(error, AuthenticationError | NoPermissionError) or str(error).startswith(_SCRIPT_DENIED):
        return StoreDeniedError(_denied(error, client))
    if isinstance(error, RedisTimeoutError):
        return StoreUnavailableError(f"no answer from Redis at {address} in time")
    if isinstance(error, MovedError) and not isinstance(client, ClusterClient):
        return StoreUnavailableError(
            f"Redis at {address} is part of a cluster; write redis+cluster:// instead of redis://, or "
            "rediss+cluster:// instead of rediss://"
        )
    if isinstance(error, ReadOnlyError):
        return StoreUnavailableError(f"Redis at {address} is a replica, which takes no writes; name its master")
    if isinstance(error, ClusterDownError | RedisClusterException):
        return StoreUnavailableError(
            f"the cluster of Redis at {address} is not complete ({error}); start the nodes that are down"
        )
    if type(error) is ClusterError:
        # The library's own end of following a key: it says no more.
        return StoreUnavailableError(
            f"a slot of the cluster of Redis at {address} moves from one node to another, and its keys are not in one "
            "place yet; end a move that has stopped with `redis-cli --cluster fix`"
        )
    if isinstance(error, RedisConnectionError):
        if isinstance(client, ClusterClient) and not any_node:
            return StoreUnavailableError(
                f"the cluster of Redis at {address} is not complete: a node is unreachable ({_reason(error)}); start "
                "the nodes that are down"
            )
        return StoreUnavailableError(f"Redis unreachable at {address} ({_reason(error)})")
    return StoreUnavailableError(f"Redis at {address} refused a command ({error})")


def _denied(error: BaseException | None, client: Any) -> str:
    place = _place(client)
    user = f"user {place['username']!r}" if place.get("username") else "the default user"
    if not isinstance(error, AuthenticationError):
        return (
            f"{user} lacks a right at Redis at {_address(client)} ({error}); docs/settings.md#rights-at-redis lists "
            "the rights that each command needs"
        )
    how = "with this password" if place.get("password") else "without a password"
    return f"Redis at {_address(client)} does not accept {user} {how}; check THAW_REDIS"


def _reason(error: RedisConnectionError) -> str:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}; check THAW_REDIS_CA"
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection: {cause.reason or error}"
    if isinstance(cause, socket.gaierror):
        return (cause.strerror or "unknown host").lower()
    return os.strerror(cause.errno).lower() if isinstance(cause, OSError) and cause.errno else str(error)


def _place(client: Any) -> Mapping[str, Any]:
    """Return the options with which the client connects."""
    return client.place if isinstance(client, ClusterClient) else client.connection_pool.connection_kwargs


def _address(client: Any) -> str:
    place = _place(client)
    named = place.get("nodes") or place.get("path")
    return str(named or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}")
