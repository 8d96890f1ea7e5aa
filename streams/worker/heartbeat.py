"""Publishes a worker's heartbeat every other second, from its own metrics."""

from __future__ import annotations

import logging
import math
import threading
from typing import Final

import msgspec

from producers.clock import Clock, system_clock
from streams.logs import StateLog
from streams.store.contract import StoreUnavailableError
from streams.store.heartbeats import Heartbeat, Heartbeats
from streams.worker_metrics import WorkerMetrics, quantile

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 2.0


def heartbeat_of(worker: str, metrics: WorkerMetrics, now_ms: int) -> Heartbeat:
    """Sum up a worker's metrics."""
    lags = [sample.value for family in metrics.lag.collect() for sample in family.samples]
    told = [sample.value for family in metrics.lag_seconds.collect() for sample in family.samples]
    ages = [age for age in told if not math.isnan(age)]
    waiting = [sample.value for family in metrics.uncommitted.collect() for sample in family.samples]
    open_ = [sample.value for family in metrics.transaction_seconds.collect() for sample in family.samples]
    (last_batch,) = (sample.value for family in metrics.last_batch.collect() for sample in family.samples)
    (kafka_up,) = (sample.value for family in metrics.kafka_up.collect() for sample in family.samples)
    (clock_offset,) = (sample.value for family in metrics.clock_offset.collect() for sample in family.samples)
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
        lag_seconds=max(ages, default=None),
        kafka_up=None if math.isnan(kafka_up) else bool(kafka_up),
        clock_offset_seconds=clock_offset,
        uncommitted_records=int(sum(waiting)) if waiting else None,
        transaction_open_seconds=max(open_, default=None),
    )


class HeartbeatLoop:
    """Publishes the heartbeats of one worker. Needs its own store connection, since it runs in its own thread."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        worker: str,
        metrics: WorkerMetrics,
        *,
        port: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._heartbeats, self._worker, self._metrics, self._port = heartbeats, worker, metrics, port
        self._clock = clock
        # A worker at rest writes nothing else: only its heartbeat meets a Redis that reads but takes no writes.
        self._redis = StateLog(logger, "Redis (for heartbeats: this worker is shown as dead)", clock=clock)

    def run(self, stop: threading.Event) -> None:
        """Publish heartbeats until `stop` is set, then remove the last one; a store that is away is waited for."""
        while not stop.is_set():
            try:
                beat = heartbeat_of(self._worker, self._metrics, self._clock())
                self._heartbeats.publish(msgspec.structs.replace(beat, metrics_port=self._port))
                self._redis.up()
            except StoreUnavailableError as error:
                self._redis.down(error)
            stop.wait(HEARTBEAT_SECONDS)
        try:
            self._heartbeats.remove(self._worker)
        except StoreUnavailableError as error:
            logger.debug("heartbeat not removed: %s", error)
