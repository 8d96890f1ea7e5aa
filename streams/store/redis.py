"""The store in Redis: keys that a cluster keeps together, one small script per shard number and batch."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from estimators.tally import Tally
from streams.store import redis_checks
from streams.store.contract import (
    KEEP_MS,
    NO_STAMP,
    STAMP_BYTES,
    Change,
    Key,
    Loaded,
    Outcome,
    QueuedWindow,
    Seen,
    Shape,
    ShardBatch,
    StoreCorruptError,
    StoreUnavailableError,
)
from streams.windows.history import HISTORY_POINTS
from streams.worker.table import AnyTable, Table

VERSION: Final = "v1"
EXACT_COUNTERS: Final = ("applied", "duplicate", "stale", "conflict")
"""Counted in the atomic step, per shard."""


class _Script:
    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / "lua" / f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


_APPLY = _Script("apply_batch")
_LOAD = _Script("load")
_REPAIR = _Script("repair")
_REPLACE = _Script("replace_log")
_MARK_DIRTY = _Script("mark_dirty")
_CLEAR_DIRTY = _Script("clear_dirty")
_UNLOCK = _Script("unlock")
_SAVE_ESTIMATE = _Script("save_estimate")
_WINDOW_STARTS = _Script("window_starts")
_SWAP_STATE = _Script("swap_state")

_LOGS_AT_ONCE: Final = 64
# Read in one round trip. More would only need more memory at a time.

_Call = tuple[_Script, Sequence[str], Sequence[Any]]


class RedisStore:
    """A `Store` on any Redis from 6.2 on. Has no state of its own beside connections, so threads may share it.

    Args:
        client: a client with `decode_responses=False`; see `connect` for one with the right time-outs.
        prefix: stands before every key, so that several collectors or tests can share a Redis.
        table: what logs are read into.
    """

    def __init__(self, client: redis.Redis, *, prefix: str = "", table: Callable[[Shape], AnyTable] = Table) -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError(
                f"a key prefix must not contain braces, which decide where a cluster puts a key; got {prefix!r}"
            )
        self._client: Any = client
        self._base = f"{prefix}thaw:{VERSION}:"
        self._table = table

    @classmethod
    def connect(
        cls, url: str, *, prefix: str = "", ca_file: str | None = None, timeout_seconds: float = 5.0
    ) -> RedisStore:
        """Return a store for an address such as `redis://127.0.0.1:6379/0`; connects with the first call.

        `ca_file` holds the certificates that sign that of a `rediss://` server, if not the system's.

        The client does not retry by itself: after a lost connection the outcome is unknown, and only the caller knows
        what to reload.
        """
        client = redis.Redis.from_url(
            url,
            decode_responses=False,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            socket_keepalive=True,
            health_check_interval=30,
            retry=Retry(NoBackoff(), 0),
            **({"ssl_ca_certs": ca_file} if ca_file else {}),
        )
        return cls(client, prefix=prefix)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    # Keys. What stands in braces decides the place in a cluster: all keys of one script call have it in common.

    def _offset_key(self, topic: str, partition: int, shard: int) -> str:
        return f"{self._base}{{{shard}}}:offset:{topic}:{partition}"

    def _log_keys(self, key: Key) -> tuple[str, str, str]:
        start, end = f"{self._base}{{{key.shard}}}:", f":{key.survey_id}:{key.window_ms}"
        return f"{start}log{end}", f"{start}head{end}", f"{start}tally{end}"

    def _total_key(self, survey_id: str, shard: int) -> str:
        return f"{self._base}{{{shard}}}:total:{survey_id}"

    def _survey_key(self, survey_id: str, name: str, window_ms: int | None = None) -> str:
        key = f"{self._base}{{{survey_id}}}:{name}"
        return key if window_ms is None else f"{key}:{window_ms}"

    @property
    def _dirty_key(self) -> str:
        return f"{self._base}{{dirty}}:windows"

    # The log, and the one step that changes it.

    def load(self, keys: Sequence[Key], shape: Shape) -> dict[Key, Loaded]:
        """Return the logs of these keys; a head or tally that disagrees with its log is rewritten: the log wins."""
        loaded: dict[Key, Loaded] = {}
        pending = list(keys)
        while pending:
            some = pending[:_LOGS_AT_ONCE]
            repairs: dict[Key, tuple[Loaded, _Call]] = {}
            for key, reply in zip(some, self._run([(_LOAD, self._log_keys(key), ()) for key in some]), strict=True):
                found, repair = self._read(key, shape, reply)
                if repair is None:
                    loaded[key] = found
                else:
                    repairs[key] = found, repair
            done = self._run([repair for _, repair in repairs.values()]) if repairs else []
            loaded |= {key: found for (key, (found, _)), won in zip(repairs.items(), done, strict=True) if won}
            # A log that somebody changed while it was being repaired is read once more.
            pending = [key for key in pending if key not in loaded]
        return loaded

    def _read(self, key: Key, shape: Shape, reply: Any) -> tuple[Loaded, _Call | None]:
        """Return a log as it is once the returned repair, if any, has been done."""
        (stamp, *counted), segments, tally = reply
        keys = self._log_keys(key)
        entries = b"".join(segments)
        table = self._table(shape)
        try:
            table.fold_log(entries)
        except ValueError as error:
            raise StoreCorruptError(f"{keys[0]}: {error}; `thaw rebuild` reads the window again from Kafka") from error
        in_log = len(entries) // shape.entry_bytes
        expected_tally = table.tally().to_bytes()
        if not segments and stamp is None and tally is None:
            return Loaded(NO_STAMP, b"", 0, table), None
        if segments and stamp and counted == [b"%d" % len(segments), b"%d" % in_log] and tally == expected_tally:
            return Loaded(stamp, entries, len(segments), table), None
        fresh = secrets.token_bytes(STAMP_BYTES)
        arguments = [stamp or b"", len(segments), fresh, in_log, expected_tally, shape.expires_ms(key.window_ms)]
        return Loaded(fresh if segments else NO_STAMP, entries, len(segments), table), (_REPAIR, keys, arguments)

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        """Return the stored offset of each shard, 0 if there is none."""
        numbers = list(shards)
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for shard in numbers:
                pipe.get(self._offset_key(topic, partition, shard))
            return {shard: int(value or 0) for shard, value in zip(numbers, pipe.execute(), strict=True)}

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        """Run one script per batch, all in one round trip."""
        calls: list[_Call] = []
        stamps: list[dict[Key, bytes]] = []
        shards: dict[str, int] = {}
        for batch in batches:
            keys = [self._offset_key(batch.topic, batch.partition, batch.shard)]
            arguments: list[Any] = [batch.last_offset, batch.next_offset, KEEP_MS]
            fresh: dict[Key, bytes] = {}
            for change in batch.changes:
                key = change.key
                fresh[key] = secrets.token_bytes(STAMP_BYTES) if change.entries else change.stamp
                shards[key.survey_id] = change.shape.shards
                keys += [*self._log_keys(key), self._total_key(key.survey_id, key.shard)]
                arguments += _arguments(change, fresh[key])
            calls.append((_APPLY, keys, arguments))
            stamps.append(fresh)
        replies = self._run(calls, remember_shards=shards)
        outcomes = []
        for batch, fresh, (verdict, *failed) in zip(batches, stamps, replies, strict=True):
            contended = frozenset(batch.changes[position].key for position in failed)
            applied = {} if verdict else {key: stamp for key, stamp in fresh.items() if key not in contended}
            outcomes.append(Outcome(bool(verdict), contended, applied))
        return outcomes

    def seen(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        """Return what tells one state of these logs from another, without reading them."""
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                log, head, _ = self._log_keys(key)
                pipe.hget(head, "stamp")
                pipe.llen(log)
            found = pipe.execute()
        pairs = zip(found[::2], found[1::2], strict=True)
        return {key: Seen(stamp or NO_STAMP, segments) for key, (stamp, segments) in zip(keys, pairs, strict=True)}

    def replace(self, key: Key, seen: Seen, table: AnyTable) -> bool:
        """Put the entries of a table in the place of a log, if nobody changed it since it was seen."""
        keys, entries, expires_ms = self._log_keys(key), table.live(), table.shape.expires_ms(key.window_ms)
        fresh = secrets.token_bytes(STAMP_BYTES)
        arguments = [seen.stamp, seen.segments, fresh, entries, len(table), table.tally().to_bytes(), expires_ms]
        return bool(self._run([(_REPLACE, keys, arguments)])[0])

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window."""
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for shard in range(shards):
                pipe.get(self._log_keys(Key(survey_id, window_ms, shard))[2])
            found = pipe.execute()
        total = Tally.empty(shape.rungs, shape.groups, shape.size)
        for shard, raw in enumerate(found):
            if raw is not None:
                try:
                    total = total + Tally.from_bytes(raw)
                except ValueError as error:
                    raise StoreCorruptError(
                        f"{self._log_keys(Key(survey_id, window_ms, shard))[2]}: {error}"
                    ) from error
        return total

    # Counters.

    def count(self, survey_id: str, window_ms: int | None, counters: Mapping[str, int], expires_ms: int) -> None:
        """Add to counters of a survey, and of a window if given (rejected:REASON, expired); a crash may repeat it."""
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for name, amount in counters.items():
                pipe.hincrby(self._survey_key(survey_id, "counters"), name, amount)
                if window_ms is not None:
                    pipe.hincrby(self._survey_key(survey_id, "counters", window_ms), name, amount)
            pipe.pexpire(self._survey_key(survey_id, "counters"), KEEP_MS)
            if window_ms is not None:
                pipe.pexpireat(self._survey_key(survey_id, "counters", window_ms), expires_ms)
            pipe.execute()

    def counters(self, survey_id: str, window_ms: int | None = None) -> dict[str, int]:
        """Return applied, duplicate, stale, conflict, expired, rejected:REASON of a window, or of all ever if None."""
        with _translated():
            shards = int(self._client.get(self._survey_key(survey_id, "shards")) or 0)
            with self._client.pipeline(transaction=False) as pipe:
                pipe.hgetall(self._survey_key(survey_id, "counters", window_ms))
                for shard in range(shards):
                    if window_ms is None:
                        pipe.hmget(self._total_key(survey_id, shard), *EXACT_COUNTERS)
                    else:
                        pipe.hmget(self._log_keys(Key(survey_id, window_ms, shard))[1], *EXACT_COUNTERS)
                other, *exact = pipe.execute()
        counted = Counter(dict.fromkeys(EXACT_COUNTERS, 0))
        counted.update({name.decode(): int(amount) for name, amount in other.items()})
        for amounts in exact:
            counted.update({name: int(amount or 0) for name, amount in zip(EXACT_COUNTERS, amounts, strict=True)})
        return dict(counted)

    # Recomputation without a leader.

    def mark_dirty(self, windows: Iterable[tuple[str, int]]) -> None:
        """Mark windows for recomputation."""
        members = [f"{survey_id}:{window_ms}" for survey_id, window_ms in windows]
        if members:
            self._run([(_MARK_DIRTY, (self._dirty_key,), (KEEP_MS, *members))])

    def mark_after_restart(self) -> int:
        """Mark every window with counts if the store was started anew since somebody did this; return how many."""
        done_key = f"{self._base}{{dirty}}:run"
        with _translated():
            run = redis_checks.run_id(self._client)
            if run is None or self._client.get(done_key) == run:
                return 0
            windows = redis_checks.counted_windows(self._client, self._base)
        self.mark_dirty(windows)
        with _translated():
            self._client.set(done_key, run, px=KEEP_MS)
        return len(windows)

    def dirty(self) -> list[QueuedWindow]:
        """Return all marks, oldest first."""
        with _translated():
            marks = self._client.zrange(self._dirty_key, 0, -1, withscores=True)
        return [QueuedWindow(*_window_of(member), float(score)) for member, score in marks]

    def clear_dirty(self, mark: QueuedWindow) -> bool:
        """Remove the mark if its score has not changed."""
        member = f"{mark.survey_id}:{mark.window_ms}"
        return bool(self._run([(_CLEAR_DIRTY, (self._dirty_key,), (member, repr(mark.score)))])[0])

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        """Try to take the short lock of a window; the returned secret proves ownership."""
        secret = secrets.token_bytes(STAMP_BYTES)
        with _translated():
            won = self._client.set(self._survey_key(survey_id, "lock", window_ms), secret, nx=True, px=ttl_ms)
        return secret if won else None

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        """Give the lock back if it is still ours."""
        self._run([(_UNLOCK, (self._survey_key(survey_id, "lock", window_ms),), (secret,))])

    def save_estimate(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        """Store an estimate if the lock is still ours, and add a point to the window's life."""
        keys = (
            self._survey_key(survey_id, "lock", window_ms),
            self._survey_key(survey_id, "estimate", window_ms),
            self._survey_key(survey_id, "windows"),
            self._survey_key(survey_id, "life", window_ms),
        )
        arguments = (secret, payload, expires_ms, window_ms, point, HISTORY_POINTS)
        return bool(self._run([(_SAVE_ESTIMATE, keys, arguments)])[0])

    def life(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's life, oldest first."""
        with _translated():
            points: list[bytes] = self._client.lrange(self._survey_key(survey_id, "life", window_ms), 0, -1)
        return points

    def estimate(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        with _translated():
            payload: bytes | None = self._client.get(self._survey_key(survey_id, "estimate", window_ms))
        return payload

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        return sorted(map(int, self._run([(_WINDOW_STARTS, (self._survey_key(survey_id, "windows"),), ())])[0]))

    def shard_reports(self, survey_id: str) -> list[int]:
        """Return the reports ever counted for each shard; empty if the survey was never seen."""
        with _translated():
            shards = int(self._client.get(self._survey_key(survey_id, "shards")) or 0)
            with self._client.pipeline(transaction=False) as pipe:
                for shard in range(shards):
                    pipe.hmget(self._total_key(survey_id, shard), *EXACT_COUNTERS)
                return [sum(int(amount or 0) for amount in amounts) for amounts in pipe.execute()]

    def state(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        """Return a small state of a survey, or of one of its windows; empty if there is none."""
        with _translated():
            return bytes(self._client.get(self._survey_key(survey_id, f"state:{name}", window_ms)) or b"")

    def swap_state(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        """Replace a state if it still is `expected`; says whether it did."""
        key = self._survey_key(survey_id, f"state:{name}", window_ms)
        return bool(self._run([(_SWAP_STATE, (key,), (expected, new, expires_ms))])[0])

    def durability_warnings(self) -> list[str]:
        """Say in plain words which promises this Redis' settings cannot keep."""
        try:
            with _translated():
                found = self._client.config_get("maxmemory-policy", "appendonly", "appendfsync")
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, ResponseError):
                raise
            return [redis_checks.UNREADABLE]
        return list(redis_checks.warnings({_text(name): _text(value) for name, value in found.items()}))

    def _run(self, calls: Sequence[_Call], *, remember_shards: Mapping[str, int] | None = None) -> list[Any]:
        """Run scripts in one round trip; what Redis has forgotten (it restarted) is sent again as text."""
        with _translated(), self._client.pipeline(transaction=False) as pipe:
            for survey_id, shards in (remember_shards or {}).items():
                pipe.set(self._survey_key(survey_id, "shards"), shards, px=KEEP_MS)
            for script, keys, arguments in calls:
                pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            replies: list[Any] = pipe.execute(raise_on_error=False)[len(remember_shards or {}) :]
            for position, (script, keys, arguments) in enumerate(calls):
                if isinstance(replies[position], NoScriptError):
                    replies[position] = self._client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise StoreUnavailableError(
            f"Redis did not answer as expected ({type(error).__name__}: {error}); what it has done is unknown"
        ) from error


def _arguments(change: Change, fresh: bytes) -> list[Any]:
    arguments: list[Any] = [
        change.stamp,
        fresh,
        change.shape.expires_ms(change.key.window_ms),
        "check" if not change.entries else "rewrite" if change.rewrite else "append",
        change.entries,
        change.log_entries,
        change.accepted,
        change.tally_bytes,
        len(change.counters),
    ]
    for name, amount in change.counters.items():
        arguments += [name, amount]
    patches = change.patches if change.entries else ()
    arguments.append(len(patches))
    for position, raw in patches:
        arguments += [position, raw]
    return arguments


def _window_of(member: bytes) -> tuple[str, int]:
    survey_id, _, window = member.decode().rpartition(":")
    return survey_id, int(window)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
