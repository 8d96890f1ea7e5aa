"""The table of metrics, and what is derived from it."""

import re

import pytest
from prometheus_client import generate_latest

from deploy.docs import generated_block
from streams.metrics import METRICS, TABLE, documentation
from streams.worker_metrics import quantile, worker_metrics
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "metrics.md"
# The unit of means (and of widths that are compared with them) is a label; an epsilon has none and is no ratio.
OWN_UNITS = re.compile(r"thaw_(alert_)?mean_\w+|thaw_limit_band|thaw_audit_epsilon_\w+")
UNITS = (
    "_ratio",
    "_seconds",
    "_total",
    "_records",
    "_bytes",
    "_requests",
    "_variance",
    "_up",
    "_info",
    "_users",
    "_workers",
    "_windows",
    "_left_out",
    "_z_score",
    "_per_second",
    "_contradicted",
    "_withheld",
    "_faults",
)


def test_names_tell_unit_and_kind() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"thaw_[a-z_]+", metric.name)
        own = OWN_UNITS.fullmatch(metric.name) is not None
        assert own or metric.name.endswith(UNITS), f"{metric.name} does not tell its unit"
        assert not own or not metric.name.endswith("_ratio"), f"{metric.name} is no share"
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
    assert len(TABLE) == len(METRICS), "a name stands twice in the table"


def test_no_label_can_name_a_person_or_grow_without_bound() -> None:
    allowed = {"survey", "value", "window", "rung", "reason", "partition", "name", "mechanism", "side", "shard", "unit"}
    allowed.add("part")  # of the store: tally or log
    allowed.add("rungs")  # what a survey assumes: any or independent
    allowed.add("state")  # of a worker: alive or dead
    allowed.add("owner")  # of a survey: who answers for it, from its file
    assert {label for metric in METRICS for label in metric.labels} <= allowed


def test_a_worker_exports_exactly_the_metrics_of_the_table() -> None:
    text = generate_latest(worker_metrics().registry).decode()
    exported = set(re.findall(r"^# TYPE (thaw_\w+) (?!gauge\n.*_created)", text, re.MULTILINE))
    exported = {name for name in exported if not name.endswith("_created")}
    assert exported == {metric.name for metric in METRICS if metric.process == "worker"}


def test_many_equal_observations_are_that_many_observations() -> None:
    amounts = (0.0, 0.001, 0.0015, 1.0, 5_000.0)
    once, apart = worker_metrics(), worker_metrics()
    for times, amount in enumerate(amounts, 1):
        once.latency.observe_many(amount, times)
        for _ in range(times):
            apart.latency.observe(amount)
    buckets, expected = (
        {
            (sample.name, sample.labels.get("le")): sample.value
            for family in metrics.latency.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for metrics in (once, apart)
    )
    assert buckets == expected
    assert buckets["thaw_worker_latency_seconds_count", None] == 15


@pytest.mark.parametrize("seconds", [0.6, 1.5, 3.0])
def test_a_latency_of_a_tick_or_two_is_read_to_a_twentieth(seconds: float) -> None:
    latency = worker_metrics().latency
    latency.observe_many(seconds, 100)
    [family] = latency.collect()
    buckets = {float(one.labels["le"]): one.value for one in family.samples if one.name.endswith("_bucket")}
    for share in (0.01, 0.5, 0.99):
        assert quantile(buckets, share) == pytest.approx(seconds, rel=0.1)
    assert quantile(buckets, 0.5) == pytest.approx(seconds, rel=0.05)


def test_quantiles_are_read_from_cumulative_buckets() -> None:
    buckets = {1.0: 10.0, 2.0: 10.0, 4.0: 20.0, float("inf"): 20.0}
    assert quantile(buckets, 0.25) == 0.5
    assert quantile(buckets, 0.75) == 3.0
    assert quantile({1.0: 0.0, float("inf"): 5.0}, 0.5) == 1.0, "all that is known: more than the last bound"
    assert quantile({}, 0.5) is None
    assert quantile({1.0: 0.0, float("inf"): 0.0}, 0.5) is None


def test_every_metric_is_documented() -> None:
    assert generated_block(DOCS, "exporter") == documentation("exporter")
    assert generated_block(DOCS, "worker") == documentation("worker")
