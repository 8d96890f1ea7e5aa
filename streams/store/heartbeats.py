"""What workers say about themselves in Redis every other second, so that the page knows who counts and who is behind.

Nothing is decided by it: offsets, stamps and marks are what counts. Each worker has one key that goes by itself when it
stops speaking, and a sorted set lists them by the time they spoke last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from redis.exceptions import RedisError

from producers.clock import Clock, system_clock
from streams.metrics import WorkerMetrics, quantile

if TYPE_CHECKING:
    from redis import Redis

logger = logging.getLogger(__name__)

BEAT_SECONDS: Final = 2.0
SILENT_MS: Final = 10_000
"""A worker that said nothing for so long is not counted as alive. Shorter: a long batch looks like a death; longer:
the page shows old numbers as fresh for that time."""
KEEP_MS: Final = 600_000
"""How long the last word of a worker is kept, to tell since when there is none."""


class Heartbeat(msgspec.Struct, frozen=True):
    """The last word of one worker. Times in ms since the epoch; null where there is nothing to tell yet."""

    worker: str
    time_ms: int
    lag_records: int | None
    """Records of its partitions that it has not read; null before partitions were assigned."""
    last_batch_ms: int | None
    latency_p50_seconds: float | None
    """From the emission of a frame to a stored estimate that contains it, since the worker started."""
    latency_p99_seconds: float | None


class Heartbeats:
    """The board in Redis. Calls raise `redis.exceptions.RedisError` when it does not answer.

    Args:
        client: a client with `decode_responses=False`.
        prefix: the one of the store.
    """

    def __init__(self, client: Redis, *, prefix: str = "") -> None:
        self._client: Any = client
        self._base = f"{prefix}thaw:v1:{{workers}}:"

    def beat(self, word: Heartbeat) -> None:
        """Say a word, and forget who has not spoken for long."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.set(f"{self._base}beat:{word.worker}", msgspec.json.encode(word), px=KEEP_MS)
            pipe.zadd(f"{self._base}beats", {word.worker: word.time_ms})
            pipe.zremrangebyscore(f"{self._base}beats", "-inf", word.time_ms - KEEP_MS)
            pipe.pexpire(f"{self._base}beats", KEEP_MS)
            pipe.execute()

    def farewell(self, worker: str) -> None:
        """Take a worker off the board that stops as planned."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.delete(f"{self._base}beat:{worker}")
            pipe.zrem(f"{self._base}beats", worker)
            pipe.execute()

    def read(self) -> list[Heartbeat]:
        """Return the last words of all workers that spoke in the last ten minutes, by name."""
        names = [name.decode() for name in self._client.zrange(f"{self._base}beats", 0, -1)]
        words = self._client.mget([f"{self._base}beat:{name}" for name in names]) if names else []
        return sorted((word for raw in words if (word := _decoded(raw)) is not None), key=lambda word: word.worker)


def _decoded(raw: bytes | None) -> Heartbeat | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Heartbeat)
    except msgspec.MsgspecError:
        return None  # a later version's; it counts as silent here


def heartbeat_of(worker: str, metrics: WorkerMetrics, now_ms: int) -> Heartbeat:
    """Sum up a worker's metrics."""
    lags = [sample.value for family in metrics.lag.collect() for sample in family.samples]
    (last_batch,) = (sample.value for family in metrics.last_batch.collect() for sample in family.samples)
    buckets = {
        float(sample.labels["le"]): sample.value
        for family in metrics.latency.collect()
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }
    return Heartbeat(
        worker,
        now_ms,
        lag_records=int(sum(lags)) if lags else None,
        last_batch_ms=int(last_batch * 1_000) or None,
        latency_p50_seconds=quantile(buckets, 0.5),
        latency_p99_seconds=quantile(buckets, 0.99),
    )


def alive(words: Sequence[Heartbeat], now_ms: int) -> list[Heartbeat]:
    """Return those who spoke lately."""
    return [word for word in words if now_ms - word.time_ms <= SILENT_MS]


def start_beating(
    board: Heartbeats, worker: str, metrics: WorkerMetrics, stop: threading.Event, *, clock: Clock = system_clock
) -> threading.Thread:
    """Beat in a thread of its own until `stop` is set, then say farewell. A Redis that is away is no reason to stop."""

    def run() -> None:
        while not stop.is_set():
            try:
                board.beat(heartbeat_of(worker, metrics, clock()))
            except RedisError as error:
                logger.debug("no heartbeat: %s", error)
            stop.wait(BEAT_SECONDS)
        try:
            board.farewell(worker)
        except RedisError as error:
            logger.debug("no farewell: %s", error)

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    return thread
