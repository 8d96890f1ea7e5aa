"""Every metric in one table: the collectors, the documentation and the tests of dashboards are derived from it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Kind = Literal["gauge", "counter", "histogram"]
Part = Literal["exporter", "worker"]

REPEATED = "May be repeated by a crash."
WINDOW = "The label window is an age: open, or 1 (closed last) to 5."


@dataclass(frozen=True)
class Metric:
    """One row: full name, kind, labels, help; `part` says which process exports it."""

    part: Part
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_VALUE = ("survey", "value", "window")

METRICS: tuple[Metric, ...] = (
    Metric("exporter", "thaw_store_up", "gauge", (), "1 if Redis answered this scrape."),
    Metric(
        "exporter", "thaw_survey_info", "gauge", ("survey", "name", "mechanism"), "1 for every survey in the folder."
    ),
    Metric(
        "exporter",
        "thaw_frequency_estimate_ratio",
        "gauge",
        _VALUE,
        f"Estimated share (or mean) of a value; unbiased, so it may leave 0 to 1. {WINDOW}",
    ),
    Metric("exporter", "thaw_frequency_variance", "gauge", _VALUE, "Variance of the estimate."),
    Metric(
        "exporter",
        "thaw_frequency_lower_bound_ratio",
        "gauge",
        _VALUE,
        "Lower end of the interval of one value at one look.",
    ),
    Metric(
        "exporter",
        "thaw_frequency_upper_bound_ratio",
        "gauge",
        _VALUE,
        "Upper end of the interval of one value at one look.",
    ),
    Metric(
        "exporter",
        "thaw_frequency_always_valid_lower_bound_ratio",
        "gauge",
        _VALUE,
        "Lower bound that holds at every look of a window's life; alerts on too high read this one.",
    ),
    Metric(
        "exporter",
        "thaw_frequency_always_valid_upper_bound_ratio",
        "gauge",
        _VALUE,
        "Upper bound that holds at every look of a window's life; alerts on too low read this one.",
    ),
    Metric(
        "exporter",
        "thaw_frequency_values_left_out",
        "gauge",
        ("survey",),
        "Values that have no series of their own because the survey has too many; the API has all of them.",
    ),
    Metric("exporter", "thaw_users", "gauge", ("survey", "window", "rung"), "Users whose last answer is of this rung."),
    Metric(
        "exporter",
        "thaw_homogeneity_p_ratio",
        "gauge",
        ("survey", "window"),
        "p-value of the test that users of all rungs have the same shares; below 0.001 the estimate is stratified.",
    ),
    Metric(
        "exporter",
        "thaw_window_end_timestamp_seconds",
        "gauge",
        ("survey", "window"),
        "When the window ends or ended.",
    ),
    Metric(
        "exporter",
        "thaw_estimate_timestamp_seconds",
        "gauge",
        ("survey", "window"),
        "When the stored estimate was computed.",
    ),
    Metric(
        "exporter",
        "thaw_last_estimate_timestamp_seconds",
        "gauge",
        ("survey",),
        "When the newest estimate of a survey was computed, whatever its window; alerts on stale estimates read this.",
    ),
    Metric(
        "exporter",
        "thaw_alert_bound_ratio",
        "gauge",
        ("survey", "value", "side", "window"),
        "What an alert rule of the survey reads: a lower bound for side above, an upper one for below. It holds at all "
        "looks at a window together, except with the rule's false-alarm rate.",
    ),
    Metric(
        "exporter",
        "thaw_alert_threshold_ratio",
        "gauge",
        ("survey", "value", "side"),
        "The threshold of an alert rule, as the survey file has it.",
    ),
    Metric(
        "exporter",
        "thaw_alert_false_alarm_ratio",
        "gauge",
        ("survey", "value", "side"),
        "False alarms per window of an alert rule: the survey file's alpha divided by the number of its rules.",
    ),
    Metric(
        "exporter",
        "thaw_canary_z_score",
        "gauge",
        _VALUE,
        "Distance of a canary's estimate from its known truth, in standard errors.",
    ),
    Metric(
        "exporter",
        "thaw_budget_spent_ratio",
        "gauge",
        ("survey",),
        "Part of the lifetime budget that a device has spent on the survey if it answered in every window since the "
        "first; devices that missed some have spent less.",
    ),
    Metric(
        "exporter",
        "thaw_dirty_windows",
        "gauge",
        (),
        "Windows whose stored estimate is older than their counts.",
    ),
    Metric(
        "exporter",
        "thaw_reports_applied_total",
        "counter",
        ("survey",),
        "Reports that changed a count. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_duplicate_total",
        "counter",
        ("survey",),
        "Reports that were there already. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_stale_total",
        "counter",
        ("survey",),
        "Reports of a lower rung than the one already counted. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_conflict_total",
        "counter",
        ("survey",),
        "Reports that contradict one of the same rung: a broken device. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_expired_total",
        "counter",
        ("survey",),
        f"Reports that came after the survey's retention. {REPEATED}",
    ),
    Metric(
        "exporter",
        "thaw_reports_rejected_total",
        "counter",
        ("survey", "reason"),
        f"Reports (or frames that cannot be read) sent to the dead-letter topic. {REPEATED}",
    ),
    Metric(
        "exporter",
        "thaw_shard_reports_total",
        "counter",
        ("survey", "shard"),
        "Reports counted for a shard, copies and old rungs too; the label is the shard number modulo 64. Exact.",
    ),
    Metric(
        "worker",
        "thaw_worker_lag_records",
        "gauge",
        ("partition",),
        "Records of an assigned partition that were not read yet.",
    ),
    Metric(
        "worker",
        "thaw_worker_last_batch_timestamp_seconds",
        "gauge",
        (),
        "When the last batch was applied; old while there is lag means that the worker hangs.",
    ),
    Metric("worker", "thaw_worker_batch_seconds", "histogram", (), "From a batch read to a batch applied."),
    Metric("worker", "thaw_worker_records_total", "counter", (), "Kafka records applied."),
    Metric("worker", "thaw_worker_reports_total", "counter", (), "Reports in them that were read without fault."),
    Metric("worker", "thaw_worker_dead_letters_total", "counter", ("reason",), "Dead letters sent."),
    Metric(
        "worker", "thaw_worker_recompute_seconds", "histogram", (), "Time to estimate one window anew and store it."
    ),
    Metric("worker", "thaw_worker_recompute_failures_total", "counter", (), "Windows whose estimate failed at a tick."),
    Metric(
        "worker",
        "thaw_worker_latency_seconds",
        "histogram",
        (),
        "From the emission of a frame to a stored estimate that contains it, per frame.",
    ),
    Metric("worker", "thaw_worker_store_up", "gauge", (), "1 if Redis answered at the last tick."),
)

TABLE: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}

# 40 buckets from 1 ms to 17 minutes, 1.42 apart: a quantile read from them is at most a fifth off.
_BUCKETS = tuple(round(0.001 * 2 ** (step / 2), 6) for step in range(41))


@dataclass(frozen=True)
class WorkerMetrics:
    """The metrics of one worker process, in a registry of their own."""

    registry: CollectorRegistry
    lag: Gauge
    last_batch: Gauge
    batch_seconds: Histogram
    records: Counter
    reports: Counter
    dead_letters: Counter
    recompute_seconds: Histogram
    recompute_failures: Counter
    latency: ManyHistogram
    store_up: Gauge


class ManyHistogram(Histogram):
    """A histogram that takes many equal observations as one: messages come by the hundred thousand a second."""

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
    return WorkerMetrics(
        registry,
        lag=gauge("thaw_worker_lag_records"),
        last_batch=gauge("thaw_worker_last_batch_timestamp_seconds"),
        batch_seconds=histogram("thaw_worker_batch_seconds"),
        records=counter("thaw_worker_records_total"),
        reports=counter("thaw_worker_reports_total"),
        dead_letters=counter("thaw_worker_dead_letters_total"),
        recompute_seconds=histogram("thaw_worker_recompute_seconds"),
        recompute_failures=counter("thaw_worker_recompute_failures_total"),
        latency=ManyHistogram(latency.name, latency.help, registry=registry, buckets=_BUCKETS),
        store_up=gauge("thaw_worker_store_up"),
    )


class Families:
    """The exporter's metrics of one scrape, made from the table; a name that is not in it cannot be exported."""

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for metric in METRICS:
            if metric.part == "exporter":
                kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                self._families[metric.name] = kind(metric.name, metric.help, labels=metric.labels)

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample; None is left out, as Prometheus has no null."""
        if value is not None:
            self._families[name].add_metric(labels, value)

    def all(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return all families, those without samples too."""
        return self._families.values()


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


def documentation(part: Part) -> str:
    """Return the table of one process as Markdown, for docs/metrics.md."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        if metric.part == part:
            labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)
