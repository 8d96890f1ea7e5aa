"""Prometheus metrics from what was seen last in the store, computed at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from estimators.mechanism import Quantity
from producers.survey.publication import EVERYTHING
from producers.survey.survey import Survey
from streams.exporter.health import canary_scores, lag_limit_ms, rule_bounds, stale_after_ms
from streams.exporter.reader import SurveyState
from streams.exporter.watcher import Seen
from streams.metrics import METRICS
from streams.store.counters import ALL_REASONS, UNKNOWN_SURVEY, Counters
from streams.windows.record import EstimateRecord, ValueEstimate

SHARD_SERIES = 64
"""Series per survey for reports by shard. More cost more series; with fewer, a flood of one shard is averaged away."""


class Families:
    """The exporter's metrics of one scrape, made from the table of metrics; other names cannot be exported."""

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for metric in METRICS:
            if metric.process == "exporter":
                kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                self._families[metric.name] = kind(metric.name, metric.help, labels=metric.labels)

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample; None adds nothing, as Prometheus has no null."""
        if value is not None:
            self._families[name].add_metric(labels, value)

    def all(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Return all families, those without samples included."""
        return self._families.values()


class ThawCollector(Collector):
    """Computes all metrics at every scrape, so that the series of a removed survey or an old window end."""

    def __init__(self, seen: Callable[[], Seen], *, value_limit: int) -> None:
        self._seen, self._value_limit = seen, value_limit

    def collect(self) -> Iterator[Family]:
        """Return all families; only `thaw_store_up` has a sample if the store does not answer."""
        families, seen = Families(), self._seen()
        families.add("thaw_store_up", 1 if seen.snapshot is not None else 0)
        if seen.snapshot is not None:
            health = seen.health
            families.add("thaw_kafka_up", {"up": 1, "down": 0}.get(health.kafka))
            families.add("thaw_lag_seconds", health.lag_seconds)
            families.add("thaw_workers", health.workers_alive, "alive")
            families.add("thaw_workers", health.workers_dead, "dead")
            families.add("thaw_recompute_queue_windows", len(seen.snapshot.queue))
            families.add("thaw_unreadable_windows", seen.snapshot.unreadable)
            _add_rejected(families, UNKNOWN_SURVEY, seen.snapshot.unknown_survey)
            for state in seen.snapshot.states:
                self._add(families, state)
        yield from families.all()

    def _add(self, families: Families, state: SurveyState) -> None:
        survey = state.survey
        owner = survey.registry.owner
        families.add("thaw_survey_info", 1, survey.id, survey.name, survey.mechanism.name, survey.rungs, owner)
        if survey.registry.expires_ms is not None:
            families.add("thaw_survey_expires_timestamp_seconds", _seconds(survey.registry.expires_ms), survey.id)
        if survey.tier is None:
            _add_counters(families, state)
        families.add("thaw_last_estimate_timestamp_seconds", _seconds(state.last_estimate_ms), survey.id)
        families.add("thaw_budget_spent_ratio", state.budget_spent, survey.id)
        families.add("thaw_canary_joint_z_score", None if state.canary is None else state.canary.z, survey.id)
        _add_epsilons(families, state)
        known = {quantity.label: quantity for quantity in survey.mechanism.quantities}
        if not state.superseded and not state.ended and survey.tier is None:
            families.add("thaw_limit_stale_seconds", _seconds(stale_after_ms(survey)), survey.id)
            families.add("thaw_limit_lag_seconds", _seconds(lag_limit_ms(survey)), survey.id)
        if not state.superseded and survey.tier is None:
            _add_limits(families, survey, known)
        shown = chosen_values(survey.mechanism.labels, state.records.values(), self._value_limit)
        families.add("thaw_frequency_values_left_out", len(survey.mechanism.labels) - len(shown), survey.id)
        for age, record in state.records.items():
            _add_window(families, survey, age, record, {label: known[label] for label in shown})


def _add_counters(families: Families, state: SurveyState) -> None:
    """Add what became of reports; those of tiers are among those of their survey."""
    survey, counters = state.survey, state.counters
    families.add("thaw_reports_applied_total", counters.applied, survey.id)
    families.add("thaw_reports_duplicate_total", counters.duplicate, survey.id)
    families.add("thaw_reports_outdated_total", counters.outdated, survey.id)
    families.add("thaw_reports_conflicting_total", counters.conflicting, survey.id)
    families.add("thaw_reports_expired_total", counters.expired, survey.id)
    _add_rejected(families, survey.id, counters)
    for shard, count in enumerate(folded(state.shard_reports)):
        families.add("thaw_shard_reports_total", count, survey.id, str(shard))


def _add_epsilons(families: Families, state: SurveyState) -> None:
    """Add what canary devices have shown of their epsilon. A survey that was replaced declares nothing any more."""
    if state.epsilon is None:
        return
    families.add("thaw_audit_timestamp_seconds", _seconds(state.epsilon.updated_ms), state.survey.id)
    families.add("thaw_audit_false_alarm_ratio", state.epsilon.alpha, state.survey.id)
    for level in state.epsilon.rungs:
        place = state.survey.id, str(level.rung)
        families.add("thaw_audit_epsilon_lower_bound", level.lower_bound, *place)
        families.add("thaw_audit_epsilon_declared", None if state.superseded else level.declared, *place)


def _add_limits(families: Families, survey: Survey, known: Mapping[str, Quantity]) -> None:
    """Add what alert rules compare with. A survey without these series does not alert."""
    limits = survey.limits
    families.add("thaw_limit_band", limits.band_ratio, survey.id)
    families.add("thaw_limit_budget_ratio", limits.budget_ratio, survey.id)
    families.add("thaw_limit_shard_reports_per_second", limits.reports_per_shard_per_second, survey.id)
    if survey.canary is not None:
        families.add("thaw_limit_canary_z_score", limits.canary_z, survey.id)
    for rule in survey.alerts:
        place = survey.id, rule.value, rule.side
        families.add("thaw_alert_false_alarm_ratio", rule.alpha, *place)
        if known[rule.value].kind == "share":
            families.add("thaw_alert_threshold_ratio", rule.threshold, *place)
        else:
            families.add("thaw_alert_mean_threshold", rule.threshold, *place, known[rule.value].unit)


def _add_window(
    families: Families, survey: Survey, age: str, record: EstimateRecord, shown: Mapping[str, Quantity]
) -> None:
    families.add("thaw_window_end_timestamp_seconds", _seconds(record.window_end_ms), survey.id, age)
    families.add("thaw_estimate_timestamp_seconds", _seconds(record.computed_ms), survey.id, age)
    families.add("thaw_homogeneity_p_ratio", record.homogeneity_p, survey.id, age)
    if record.assumption == "independent":
        families.add("thaw_rungs_contradicted", record.contradicted, survey.id, age)
    if survey.publication != EVERYTHING:
        families.add("thaw_estimate_withheld", record.withheld is not None, survey.id, age)
    for rung, users in enumerate(record.users_per_rung):
        families.add("thaw_users", round(users / survey.mechanism.copies), survey.id, age, str(rung))
    families.add("thaw_withdrawn_users", record.withdrawn, survey.id, age)
    known = {quantity.label: quantity for quantity in survey.mechanism.quantities}
    for rule, bound in rule_bounds(survey, record):
        place = survey.id, rule.value, rule.side, age
        if known[rule.value].kind == "share":
            families.add("thaw_alert_bound_ratio", bound.bound, *place)
        else:
            families.add("thaw_alert_mean_bound", bound.bound, *place, known[rule.value].unit)
    for z, value in canary_scores(survey, record):
        if value in shown:
            families.add("thaw_canary_z_score", z, survey.id, value, age)
    for row in record.values:
        if row.value in shown:
            _add_estimate(families, (survey.id, row.value, age), row, shown[row.value])


def _add_estimate(families: Families, place: tuple[str, ...], row: ValueEstimate, quantity: Quantity) -> None:
    if quantity.kind == "share":
        prefix, suffix = "thaw_frequency", "_ratio"
    else:
        prefix, suffix, place = "thaw_mean", "", (*place, quantity.unit)
    families.add(f"{prefix}_estimate{suffix}", row.estimate, *place)
    families.add(f"{prefix}_variance", row.variance, *place)
    families.add(f"{prefix}_lower_bound{suffix}", row.lower, *place)
    families.add(f"{prefix}_upper_bound{suffix}", row.upper, *place)
    families.add(f"{prefix}_always_valid_lower_bound{suffix}", row.always_valid_lower, *place)
    families.add(f"{prefix}_always_valid_upper_bound{suffix}", row.always_valid_upper, *place)


def _add_rejected(families: Families, survey_id: str, counters: Counters) -> None:
    # All reasons from the start: Prometheus does not see a counter rise that was not there before.
    rejected = dict.fromkeys(ALL_REASONS, 0) | dict(counters.rejected)
    for reason, count in rejected.items():
        families.add("thaw_reports_rejected_total", count, survey_id, reason)


def folded(counts: Sequence[int]) -> list[int]:
    """Add the counts of shards whose numbers are equal modulo SHARD_SERIES."""
    sums = [0] * min(len(counts), SHARD_SERIES)
    for shard, count in enumerate(counts):
        sums[shard % SHARD_SERIES] += count
    return sums


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1_000


def chosen_values(labels: Sequence[str], records: Iterable[EstimateRecord], limit: int) -> frozenset[str]:
    """Return the values that get series: all, or the `limit` most frequent over the windows shown, ties as listed."""
    if len(labels) <= limit:
        return frozenset(labels)
    users = dict.fromkeys(labels, 0.0)
    for record in records:
        for row in record.values:
            users[row.value] = users.get(row.value, 0.0) + (row.estimate or 0.0) * record.users
    return frozenset(sorted(labels, key=lambda label: -users[label])[:limit])
