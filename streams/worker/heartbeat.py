"""Publishes a worker's heartbeat every other second, from its own metrics."""

from __future__ import annotations

import logging
import math
import threading
from typing import Final

from producers.clock import Clock, system_clock
from streams.metrics import WorkerMetrics, quantile
from streams.store.contract import StoreUnavailableError
from streams.store.heartbeats import Heartbeat, Heartbeats

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 2.0


def heartbeat_of(worker: str, metrics: WorkerMetrics, now_ms: int) -> Heartbeat:
    """Sum up a worker's metrics."""
    lags = [sample.value for family in metrics.lag.collect() for sample in family.samples]
    ages = [sample.value for family in metrics.lag_seconds.collect() for sample in family.samples]
    (last_batch,) = (sample.value for family in metrics.last_batch.collect() for sample in family.samples)
    (kafka_up,) = (sample.value for family in metrics.kafka_up.collect() for sample in family.samples)
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
    )


def start_heartbeats(
    heartbeats: Heartbeats, worker: str, metrics: WorkerMetrics, stop: threading.Event, *, clock: Clock = system_clock
) -> threading.Thread:
    """Publish heartbeats from a thread until `stop` is set, then remove the last one; errors are ignored."""

    def run() -> None:
        while not stop.is_set():
            try:
                heartbeats.publish(heartbeat_of(worker, metrics, clock()))
            except StoreUnavailableError as error:
                logger.debug("heartbeat not published: %s", error)
            stop.wait(HEARTBEAT_SECONDS)
        try:
            heartbeats.remove(worker)
        except StoreUnavailableError as error:
            logger.debug("heartbeat not removed: %s", error)

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    return thread
