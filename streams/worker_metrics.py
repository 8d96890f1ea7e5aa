"""The metrics of one worker process, made from the table of all metrics, and quantiles of its histograms."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.metrics import TABLE

UNREADABLE_PARTS = ("tally", "log")

# 40 buckets from 1 ms to 17 minutes, 1.42 apart: a quantile read from them is at most a fifth off.
_BUCKETS = tuple(round(0.001 * 2 ** (step / 2), 6) for step in range(41))
# Half a second to four, where an estimate comes: 1.09 apart, so that a quantile is at most a twentieth off.
_LATENCY_BUCKETS = tuple(sorted({*_BUCKETS, *(round(0.512 * 2 ** (step / 8), 6) for step in range(25))}))


@dataclass(frozen=True)
class WorkerMetrics:
    """The metrics of one worker process, in a registry of their own."""

    registry: CollectorRegistry
    lag: Gauge
    uncommitted: Gauge
    transaction_seconds: Gauge
    last_batch: Gauge
    batch_seconds: Histogram
    records: Counter
    reports: Counter
    dead_letters: Counter
    dead_letters_cut: Counter
    estimates_too_large: Counter
    deleted_unread: Counter
    clock_offset: Gauge
    topic_fault: Gauge
    recompute_seconds: Histogram
    recompute_failures: Counter
    recompute_delay: Gauge
    latency: ManyHistogram
    store_up: Gauge
    kafka_up: Gauge
    lag_seconds: Gauge
    unreadable: Counter
    rebuilt: Counter
    scrubbed: Counter


class ManyHistogram(Histogram):
    """A histogram that takes many equal observations as one: messages arrive by the hundred thousand per second."""

    def observe_many(self, amount: float, times: int) -> None:
        """Do what `observe(amount)` does, so many times."""
        self._sum.inc(amount * times)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(times)


def worker_metrics() -> WorkerMetrics:
    """Return fresh worker metrics at zero."""
    registry = CollectorRegistry()

    def gauge(name: str) -> Gauge:
        return Gauge(name, TABLE[name].help, TABLE[name].labels, registry=registry)

    def counter(name: str) -> Counter:
        return Counter(name, TABLE[name].help, TABLE[name].labels, registry=registry)

    def histogram(name: str) -> Histogram:
        return Histogram(name, TABLE[name].help, TABLE[name].labels, registry=registry, buckets=_BUCKETS)

    latency = TABLE["thaw_worker_latency_seconds"]
    kafka_up = gauge("thaw_worker_kafka_up")
    kafka_up.set(math.nan)
    metrics = WorkerMetrics(
        registry,
        lag=gauge("thaw_worker_lag_records"),
        uncommitted=gauge("thaw_worker_uncommitted_records"),
        transaction_seconds=gauge("thaw_worker_transaction_open_seconds"),
        last_batch=gauge("thaw_worker_last_batch_timestamp_seconds"),
        batch_seconds=histogram("thaw_worker_batch_seconds"),
        records=counter("thaw_worker_records_total"),
        reports=counter("thaw_worker_reports_total"),
        dead_letters=counter("thaw_worker_dead_letters_total"),
        dead_letters_cut=counter("thaw_worker_dead_letters_cut_total"),
        estimates_too_large=counter("thaw_worker_estimates_too_large_total"),
        deleted_unread=counter("thaw_worker_deleted_unread_records_total"),
        clock_offset=gauge("thaw_worker_clock_offset_seconds"),
        topic_fault=gauge("thaw_worker_topic_faults"),
        recompute_seconds=histogram("thaw_worker_recompute_seconds"),
        recompute_failures=counter("thaw_worker_recompute_failures_total"),
        recompute_delay=gauge("thaw_worker_recompute_delay_seconds"),
        latency=ManyHistogram(latency.name, latency.help, registry=registry, buckets=_LATENCY_BUCKETS),
        store_up=gauge("thaw_worker_store_up"),
        kafka_up=kafka_up,
        lag_seconds=gauge("thaw_worker_lag_seconds"),
        unreadable=counter("thaw_worker_unreadable_total"),
        rebuilt=counter("thaw_worker_windows_rebuilt_total"),
        scrubbed=counter("thaw_worker_logs_scrubbed_total"),
    )
    for part in UNREADABLE_PARTS:
        # A series that begins with its first event has no increase.
        metrics.unreadable.labels(part)
    return metrics


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Read a quantile from cumulative histogram buckets {upper bound: count}, linear inside a bucket.

    >>> quantile({1.0: 50, 2.0: 100, float("inf"): 100}, 0.75)
    1.5
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if not total:
        return None
    rank, below, lower = share * total, 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > below:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    return lower
