"""Report logs in Redis: one small script per shard number and batch, all in one round trip."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from producers.clock import system_clock
from streams.store.contract import (
    NO_STAMP,
    STAMP_BYTES,
    Change,
    Outcome,
    Seen,
    ShardBatch,
    Shortened,
    StoreCorruptError,
)
from streams.store.contradiction import contradiction
from streams.store.counters import Counters
from streams.store.ladders import refuse_longer
from streams.store.log_content import Content, FoldEntries, Loaded, LogContent, pieces_of
from streams.store.redis_connection import Call, RedisConnection, Script, number_in
from streams.store.redis_pieces import Reading, read_logs, shorten, stage
from streams.store.shape import DAY_MS, KEEP_MS, Key, Shape

_APPLY: Final = Script("add", "apply_batch")
_COUNT: Final = Script("add", "count")
_REPAIR: Final = Script("repair")
_REPLACE: Final = Script("replace_log")
_SET_ASIDE: Final = Script("set_aside")

_EXACT_FIELDS: Final = ("applied", "duplicate", "stale", "conflict")
"""Stored names of applied, duplicate, outdated and conflicting: counted in the atomic step, per shard."""
_EXPIRED: Final = "expired"
_REJECTED: Final = "rejected:"

_KEEP_UNREADABLE_MS: Final = 7 * DAY_MS
"""How long the remains of an unreadable log are kept for somebody to look at."""

_LOGS_AT_ONCE: Final = 64
# Begun in one round trip. More would only need more memory at a time.


class RedisReportLog:
    """A `ReportLog` in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client

    def _total_key(self, survey_id: str, shard: int) -> str:
        return f"{self._connection.base}{{{shard}}}:total:{survey_id}"

    def load(
        self, keys: Sequence[Key], shape: Shape, fold: FoldEntries[Content], *, whole: bool = False
    ) -> dict[Key, Loaded[Content]]:
        """Return the logs of these keys, with their entries if they are to be `whole`.

        A head or tally that lags behind its log is rewritten: the log wins.

        Raises:
            StoreCorruptError: with all logs among them that cannot be read, or that contradict their head or tally as
                no crash explains it; the others were repaired where necessary.
            LongerLadderError: a log is that of a survey with more rungs.
        """
        loaded: dict[Key, Loaded[Content]] = {}
        unreadable: dict[Key, _Unreadable] = {}
        waiting, pending = iter(keys), list[Key]()
        while pending := pending or list(islice(waiting, _LOGS_AT_ONCE)):
            readings = read_logs(self._connection, pending, shape, fold, whole=whole)
            repairs: dict[Key, tuple[Loaded[Content], Call]] = {}
            for key, reading in readings.items():
                try:
                    found, repair = self._judge(key, shape, reading)
                except _Unreadable as error:
                    unreadable[key] = error
                    continue
                if repair is None:
                    loaded[key] = found
                else:
                    repairs[key] = found, repair
            done = self._connection.run([repair for _, repair in repairs.values()]) if repairs else []
            loaded |= {key: found for (key, (found, _)), won in zip(repairs.items(), done, strict=True) if won}
            # A log that another writer changed while it was being read or repaired is read once more.
            pending = [key for key in pending if key not in loaded and key not in unreadable]
        if unreadable:
            first = next(iter(unreadable.values()))
            more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
            raise StoreCorruptError(
                f"{first}{more}; `thaw rebuild` reads the window again from Kafka",
                {key: error.seen for key, error in unreadable.items()},
                {key: error.content for key, error in unreadable.items() if error.content is not None},
            )
        return loaded

    def _judge(self, key: Key, shape: Shape, reading: Reading[Content]) -> tuple[Loaded[Content], Call | None]:
        """Return a log as it is once the returned repair, if any, has been done.

        Raises:
            _Unreadable: its entries cannot be of this survey, or contradict head or tally.
        """
        keys, stamp, segments = self._connection.log_keys(key), reading.stamp, reading.segments
        refuse_longer(reading.tally, shape, keys[2])
        if reading.error is not None:
            raise _Unreadable(f"{keys[0]}: {reading.error}", reading.seen) from reading.error
        content, in_log, whole = reading.content, reading.log_bytes // shape.entry_bytes, reading.whole
        expected_tally = content.tally().to_bytes()
        if not segments and stamp is None and reading.tally is None:
            return Loaded(NO_STAMP, 0, 0, content, whole=whole), None
        agrees = reading.counted == [b"%d" % segments, b"%d" % in_log] and reading.tally == expected_tally
        if segments and stamp and agrees:
            return Loaded(stamp, segments, in_log, content, whole=whole), None
        if stamp:
            found = reading.counted, segments, in_log, reading.tally, content.tally(), reading.coming
            fault = contradiction(*found)
            if fault is not None:
                raise _Unreadable(f"{keys[0]}: {fault}", reading.seen, content)
        fresh = secrets.token_bytes(STAMP_BYTES)
        arguments = [stamp or b"", segments, fresh, in_log, expected_tally, shape.expires_ms(key.window_ms)]
        loaded = Loaded(fresh if segments else NO_STAMP, segments, in_log, content, repaired=True, whole=whole)
        return loaded, (_REPAIR, keys, arguments)

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        """Return the stored offset of each shard, 0 if there is none."""
        numbers = list(shards)
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for shard in numbers:
                pipe.get(self._connection.offset_key(topic, partition, shard))
            # An offset that is no number says nothing: what the shard has is read again.
            return {shard: number_in(value) for shard, value in zip(numbers, pipe.execute(), strict=True)}

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        """Run one script per batch, all in one round trip."""
        calls: list[Call] = []
        stamps: list[dict[Key, bytes]] = []
        # One system call for all: with many windows open a batch changes thousands of logs.
        drawn = os.urandom(STAMP_BYTES * sum(len(batch.changes) for batch in batches))
        fresh_stamps = (drawn[at : at + STAMP_BYTES] for at in range(0, len(drawn), STAMP_BYTES))
        shards: dict[str, tuple[int, int]] = {}
        for batch in batches:
            keys = [self._connection.offset_key(batch.topic, batch.partition, batch.shard)]
            limit = "" if batch.limit is None else batch.limit
            arguments: list[Any] = [batch.last_offset, batch.next_offset, KEEP_MS, limit]
            fresh: dict[Key, bytes] = {}
            for change in batch.changes:
                key = change.key
                fresh[key] = next(fresh_stamps) if change.entries else change.stamp
                shards[self._connection.survey_key(key.survey_id, "shards")] = change.shape.shards, KEEP_MS
                keys += [*self._connection.log_keys(key), self._total_key(key.survey_id, key.shard)]
                arguments += _arguments(change, fresh[key])
            calls.append((_APPLY, keys, arguments))
            stamps.append(fresh)
        replies = self._connection.run(calls, first=shards)
        outcomes = []
        for batch, fresh, (verdict, *failed) in zip(batches, stamps, replies, strict=True):
            if verdict:
                outcomes.append(Outcome(frozenset(), {}, regressed_to=failed[0]))
                continue
            contended = frozenset(batch.changes[position].key for position in failed)
            outcomes.append(Outcome(contended, {key: stamp for key, stamp in fresh.items() if key not in contended}))
        return outcomes

    def seen(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        """Return what tells one state of these logs from another, without reading them."""
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                log, head, _ = self._connection.log_keys(key)
                pipe.hget(head, "stamp")
                pipe.llen(log)
            found = pipe.execute()
        pairs = zip(found[::2], found[1::2], strict=True)
        return {key: Seen(stamp or NO_STAMP, segments) for key, (stamp, segments) in zip(keys, pairs, strict=True)}

    def replace(self, key: Key, seen: Seen, content: LogContent, *, limit: int | None = None) -> bool:
        """Replace a log, readable or not, unless it changed since it was seen; return whether it was replaced."""
        staged, pieces = stage(self._connection, key, content.live(), content.shape.entry_bytes)
        fresh, expires_ms = secrets.token_bytes(STAMP_BYTES), content.shape.expires_ms(key.window_ms)
        known = "" if limit is None else limit
        tally = content.tally().to_bytes()
        arguments = [seen.stamp, seen.segments, fresh, pieces, len(content), tally, expires_ms, known]
        keys = *self._connection.log_keys(key), staged
        return bool(self._connection.run([(_REPLACE, keys, arguments)])[0])

    def shorten(self, key: Key, seen: Seen, keep: Callable[[bytes], bytes], shape: Shape) -> Shortened | None:
        """Take a piece of the oldest entries out and append what `keep` returns of them, in one atomic step.

        Returns None, and changes nothing, if the log changed since it was seen.
        """
        return shorten(self._connection, key, seen, keep, shape)

    def set_aside(self, key: Key, seen: Seen) -> bool:
        """Move a log that cannot be read out of the way, unless it changed since it was seen; return whether it was.

        What is left of it is kept for a week beside the log, which is empty then.
        """
        keys = self._connection.log_keys(key)
        kept = self._connection.kept_key(key)
        arguments = (seen.stamp, seen.segments, system_clock() + _KEEP_UNREADABLE_MS)
        return bool(self._connection.run([(_SET_ASIDE, (*keys, kept), arguments)])[0])

    def distrust(self, key: Key, seen: Seen) -> bool:
        """Forget what head and tally claim about a log, unless it changed since seen; return whether that was done.

        The next `load` makes both again from what is left of the log.
        """
        return bool(
            self._connection.run([(_SET_ASIDE, self._connection.log_keys(key), (seen.stamp, seen.segments))])[0]
        )

    def count(self, survey_id: str, window_ms: int | None, counters: Counters, expires_ms: int) -> None:
        """Add expired and rejected reports of a survey, and of a window if given; a crash may repeat it."""
        amounts = {_REJECTED + reason: reports for reason, reports in counters.rejected.items()}
        if counters.expired:
            amounts[_EXPIRED] = counters.expired
        keys = [self._connection.survey_key(survey_id, "counters")]
        if window_ms is not None:
            keys.append(self._connection.survey_key(survey_id, "counters", window_ms))
        arguments = [KEEP_MS, expires_ms, *(part for named in amounts.items() for part in named)]
        self._connection.run([(_COUNT, keys, arguments)])

    def counters(self, survey_id: str, window_ms: int | None = None) -> Counters:
        """Return the counters of a window, or of the survey since its first report; zeros if it is unknown."""
        with self._connection.calling():
            shards = self._shards(survey_id)
            with self._client.pipeline(transaction=False) as pipe:
                pipe.hgetall(self._connection.survey_key(survey_id, "counters", window_ms))
                for shard in range(shards):
                    if window_ms is None:
                        pipe.hmget(self._total_key(survey_id, shard), *_EXACT_FIELDS)
                    else:
                        pipe.hmget(self._connection.log_keys(Key(survey_id, window_ms, shard))[1], *_EXACT_FIELDS)
                other, *exact = pipe.execute()
        return sum((_exact(amounts) for amounts in exact), _others(other))

    def shard_reports(self, survey_id: str) -> list[int]:
        """Return `Counters.counted` of each shard since the first report; empty if the survey is unknown."""
        with self._connection.calling():
            shards = self._shards(survey_id)
            with self._client.pipeline(transaction=False) as pipe:
                for shard in range(shards):
                    pipe.hmget(self._total_key(survey_id, shard), *_EXACT_FIELDS)
                return [_exact(amounts).counted for amounts in pipe.execute()]

    def _shards(self, survey_id: str) -> int:
        return number_in(self._client.get(self._connection.survey_key(survey_id, "shards")))


class _Unreadable(Exception):  # noqa: N818  # becomes a StoreCorruptError with others of its kind
    def __init__(self, message: str, seen: Seen, content: LogContent | None = None) -> None:
        super().__init__(message)
        self.seen, self.content = seen, content


def _exact(amounts: Sequence[bytes | None]) -> Counters:
    applied, duplicate, outdated, conflicting = map(number_in, amounts)
    return Counters(applied, duplicate, outdated, conflicting)


def _others(stored: Mapping[bytes, bytes]) -> Counters:
    amounts = {name.decode(errors="replace"): number_in(amount) for name, amount in stored.items()}
    rejected = {name.removeprefix(_REJECTED): n for name, n in amounts.items() if name.startswith(_REJECTED)}
    return Counters(expired=amounts.get(_EXPIRED, 0), rejected=rejected)


def _arguments(change: Change, fresh: bytes) -> list[Any]:
    counters = change.counters
    amounts = (counters.duplicate, counters.outdated, counters.conflicting)
    named = [(name, amount) for name, amount in zip(_EXACT_FIELDS[1:], amounts, strict=True) if amount]
    pieces = pieces_of(change.entries, change.shape.entry_bytes) if change.entries else []
    arguments: list[Any] = [
        change.stamp,
        fresh,
        change.shape.expires_ms(change.key.window_ms),
        "check" if not change.entries else "rewrite" if change.rewrite else "append",
        change.log_entries,
        counters.applied,
        change.tally_bytes,
        len(pieces),
        *pieces,
        len(named),
    ]
    for pair in named:
        arguments += pair
    patches = change.patches if change.entries else ()
    arguments.append(len(patches))
    for position, raw in patches:
        arguments += [position, raw]
    return arguments
