"""Every metric in one table; the collectors, the documentation and the dashboards are derived from it."""

from __future__ import annotations

from collections.abc import Mapping

from streams.metrics_gateway import GATEWAY, Metric, Process

REPEATED = "A crash may count some of them twice."
WINDOW = "The label window is an age: open, or 1 (closed last) to 5."


_VALUE = ("survey", "value", "window")
_RULE = ("survey", "value", "side")


def _estimates(prefix: str, suffix: str, labels: tuple[str, ...], quantity: str) -> tuple[Metric, ...]:
    """Return the series of one kind of quantity: shares are ratios, means are in the unit of the survey's values."""

    def gauge(name: str, text: str) -> Metric:
        return Metric("exporter", f"{prefix}_{name}", "gauge", labels, text)

    return (
        gauge(f"estimate{suffix}", f"Estimated {quantity}. {WINDOW}"),
        gauge("variance", f"Variance of the estimated {quantity.partition(';')[0]}."),
        gauge(f"lower_bound{suffix}", "Lower end of the confidence interval of one value at one look."),
        gauge(f"upper_bound{suffix}", "Upper end of the confidence interval of one value at one look."),
        gauge(f"always_valid_lower_bound{suffix}", "Lower bound that holds at every look at the window together."),
        gauge(f"always_valid_upper_bound{suffix}", "Upper bound that holds at every look at the window together."),
    )


_BOUND = (
    "Always-valid bound that an alert rule of the survey reads: a lower bound for side above, an upper bound for side "
    "below."
)
_THRESHOLD = "Threshold of an alert rule, from the [[alert]] tables of the survey file."

METRICS: tuple[Metric, ...] = (
    Metric("exporter", "thaw_store_up", "gauge", (), "1 if Redis answered when it was last read, every second."),
    Metric(
        "exporter",
        "thaw_kafka_up",
        "gauge",
        (),
        "0 if no broker answers one of the live workers; absent if no live worker tells.",
    ),
    Metric("exporter", "thaw_workers", "gauge", ("state",), "Workers by their heartbeat: alive, or dead for 10 min."),
    Metric(
        "exporter",
        "thaw_lag_seconds",
        "gauge",
        (),
        "Age of the oldest report that is in no estimate, at most; absent if no live worker tells.",
    ),
    Metric(
        "exporter",
        "thaw_survey_info",
        "gauge",
        ("survey", "name", "mechanism", "rungs", "owner"),
        "1 for every survey in the folder. The label rungs is what it assumes: any, nothing; independent, that the "
        "rung of a device does not depend on its value. The label owner is empty where the file names none.",
    ),
    Metric(
        "exporter", "thaw_survey_expires_timestamp_seconds", "gauge", ("survey",), "Expiry, where the file has one."
    ),
    *_estimates(
        "thaw_frequency", "_ratio", _VALUE, "share of devices with a value; unbiased, so it may lie outside 0 to 1"
    ),
    *_estimates("thaw_mean", "", (*_VALUE, "unit"), "mean, in the unit of the survey's values"),
    Metric(
        "exporter",
        "thaw_frequency_values_left_out",
        "gauge",
        ("survey",),
        "Values without series because the survey has more than THAW_VALUE_LIMIT; the API has all of them.",
    ),
    Metric("exporter", "thaw_users", "gauge", ("survey", "window", "rung"), "Devices whose answer is of this rung."),
    Metric("exporter", "thaw_withdrawn_users", "gauge", ("survey", "window"), "Users who took their answers back."),
    Metric(
        "exporter",
        "thaw_homogeneity_p_ratio",
        "gauge",
        ("survey", "window"),
        "p-value of the test that users of all rungs have the same shares; absent where the test cannot tell.",
    ),
    Metric(
        "exporter",
        "thaw_rungs_contradicted",
        "gauge",
        ("survey", "window"),
        "1 if thaw_homogeneity_p_ratio is below 0.001 and so contradicts rungs = independent; absent for surveys that "
        "assume nothing. The estimate of such a window is stratified.",
    ),
    Metric(
        "exporter",
        "thaw_estimate_withheld",
        "gauge",
        ("survey", "window"),
        "1 if the survey publishes no estimate of this window yet: it has fewer devices than publish.least_devices, or "
        "has not settled and publish.totals_only is set; absent for surveys without either.",
    ),
    Metric("exporter", "thaw_window_end_timestamp_seconds", "gauge", ("survey", "window"), "End of the window."),
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
        "When the newest of the survey's stored estimates was computed. Compare with thaw_limit_stale_seconds.",
    ),
    Metric("exporter", "thaw_alert_bound_ratio", "gauge", (*_RULE, "window"), f"{_BOUND} Shares."),
    Metric("exporter", "thaw_alert_threshold_ratio", "gauge", _RULE, f"{_THRESHOLD} Shares."),
    Metric("exporter", "thaw_alert_mean_bound", "gauge", (*_RULE, "window", "unit"), f"{_BOUND} Means."),
    Metric("exporter", "thaw_alert_mean_threshold", "gauge", (*_RULE, "unit"), f"{_THRESHOLD} Means."),
    Metric(
        "exporter",
        "thaw_alert_false_alarm_ratio",
        "gauge",
        _RULE,
        "False-alarm rate of an alert rule per window: the survey file's alpha divided by the number of its rules.",
    ),
    Metric(
        "exporter",
        "thaw_canary_z_score",
        "gauge",
        _VALUE,
        "Distance of a canary's estimate from its known truth, in standard errors, in one window.",
    ),
    Metric(
        "exporter",
        "thaw_canary_joint_z_score",
        "gauge",
        ("survey",),
        "The same over the last five settled windows together, for the value that is farthest off. Compare its size "
        "with thaw_limit_canary_z_score.",
    ),
    Metric(
        "exporter",
        "thaw_audit_epsilon_lower_bound",
        "gauge",
        ("survey", "rung"),
        "The answers of canary devices up to this rung, as they arrived, cost at least this epsilon. Holds for all "
        "rungs and for all time together, except with probability thaw_audit_false_alarm_ratio.",
    ),
    Metric(
        "exporter",
        "thaw_audit_epsilon_declared",
        "gauge",
        ("survey", "rung"),
        "Declared privacy level of the answers up to this rung, for canaries with a thaw_audit_epsilon_lower_bound.",
    ),
    Metric(
        "exporter",
        "thaw_audit_false_alarm_ratio",
        "gauge",
        ("survey",),
        "Probability that thaw_audit_epsilon_lower_bound ever passes what is declared although devices keep it: alpha "
        "of the [canary] table.",
    ),
    Metric(
        "exporter",
        "thaw_audit_timestamp_seconds",
        "gauge",
        ("survey",),
        "When answers of canary devices were last compared with the truth.",
    ),
    Metric(
        "exporter",
        "thaw_budget_spent_ratio",
        "gauge",
        ("survey",),
        "Part of the lifetime budget that a device has spent on the survey if it answered in every window since the "
        "first; devices that missed windows have spent less.",
    ),
    Metric("exporter", "thaw_limit_stale_seconds", "gauge", ("survey",), "Age at which the last estimate is stale."),
    Metric(
        "exporter",
        "thaw_limit_band",
        "gauge",
        ("survey",),
        "Width above which a confidence interval is too wide, in the unit of the estimate; absent without one.",
    ),
    Metric("exporter", "thaw_limit_budget_ratio", "gauge", ("survey",), "Limit of thaw_budget_spent_ratio."),
    Metric(
        "exporter",
        "thaw_limit_shard_reports_per_second",
        "gauge",
        ("survey",),
        "Limit of the rate of thaw_shard_reports_total; absent if the survey file has none.",
    ),
    Metric("exporter", "thaw_limit_canary_z_score", "gauge", ("survey",), "Limit of thaw_canary_joint_z_score."),
    Metric(
        "exporter",
        "thaw_limit_lag_seconds",
        "gauge",
        ("survey",),
        "Limit of thaw_worker_lag_seconds: a step of the survey, from 15 s to 10 min; absent after its end.",
    ),
    Metric(
        "exporter",
        "thaw_recompute_queue_windows",
        "gauge",
        (),
        "Windows whose counts changed since their estimate was computed.",
    ),
    Metric(
        "exporter",
        "thaw_unreadable_windows",
        "gauge",
        (),
        "Windows with a report log that could not be read, which wait to be rebuilt from Kafka.",
    ),
    Metric("exporter", "thaw_reports_applied_total", "counter", ("survey",), "Reports that changed a count. Exact."),
    Metric("exporter", "thaw_reports_duplicate_total", "counter", ("survey",), "Reports already counted. Exact."),
    Metric(
        "exporter",
        "thaw_reports_outdated_total",
        "counter",
        ("survey",),
        "Reports of a lower rung than the one already counted. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_conflicting_total",
        "counter",
        ("survey",),
        "Reports with the token and rung of a counted one but another answer: a broken device. Exact.",
    ),
    Metric(
        "exporter",
        "thaw_reports_expired_total",
        "counter",
        ("survey",),
        f"Reports that arrived after the survey's retention. {REPEATED}",
    ),
    Metric(
        "exporter",
        "thaw_reports_rejected_total",
        "counter",
        ("survey", "reason"),
        f"Reports (or unreadable frames) sent to the dead-letter topic. {REPEATED}",
    ),
    Metric(
        "exporter",
        "thaw_shard_reports_total",
        "counter",
        ("survey", "shard"),
        "Reports received for a shard, duplicate and outdated ones included; the label is the shard number modulo 64. "
        "Exact.",
    ),
    Metric(
        "worker",
        "thaw_worker_lag_records",
        "gauge",
        ("partition",),
        "Consumer lag: records of an assigned partition that can be read and were not read yet.",
    ),
    Metric(
        "worker",
        "thaw_worker_uncommitted_records",
        "gauge",
        ("partition",),
        "Records of an assigned partition from the first one of an open transaction on; they are read when it ends.",
    ),
    Metric(
        "worker",
        "thaw_worker_transaction_open_seconds",
        "gauge",
        ("partition",),
        "For how long records of an assigned partition have waited behind the same open transaction; 0 without one.",
    ),
    Metric(
        "worker",
        "thaw_worker_last_batch_timestamp_seconds",
        "gauge",
        (),
        "When the last batch was applied. An old time while there is lag means that the worker hangs.",
    ),
    Metric("worker", "thaw_worker_batch_seconds", "histogram", (), "Time from reading a batch to having applied it."),
    Metric("worker", "thaw_worker_records_total", "counter", (), "Kafka records applied."),
    Metric("worker", "thaw_worker_reports_total", "counter", (), "Valid reports in the applied records."),
    Metric(
        "worker",
        "thaw_worker_deleted_unread_records_total",
        "counter",
        (),
        "Records that the broker deleted before this worker had read them; they are not counted.",
    ),
    Metric(
        "worker",
        "thaw_worker_clock_offset_seconds",
        "gauge",
        (),
        "How far this worker's clock is ahead of the broker's, as far as records prove it; negative if it is behind.",
    ),
    Metric(
        "worker",
        "thaw_worker_topic_faults",
        "gauge",
        ("reason",),
        "1 while the topic of reports is missing, or has timestamps of devices (create_time) instead of the broker's.",
    ),
    Metric("worker", "thaw_worker_dead_letters_total", "counter", ("reason",), "Dead letters sent."),
    Metric(
        "worker",
        "thaw_worker_dead_letters_cut_total",
        "counter",
        (),
        "Dead letters that were cut because the dead-letter topic takes no message of their size.",
    ),
    Metric(
        "worker",
        "thaw_worker_estimates_too_large_total",
        "counter",
        (),
        "Estimates that were stored but not published because their topic takes no message of their size.",
    ),
    Metric("worker", "thaw_worker_recompute_seconds", "histogram", (), "Time to estimate and store one window."),
    Metric("worker", "thaw_worker_recompute_failures_total", "counter", (), "Windows whose estimate failed at a tick."),
    Metric(
        "worker",
        "thaw_worker_recompute_delay_seconds",
        "gauge",
        (),
        "Longest time that a current window of the last tick has waited for its estimate since this worker saw its "
        "counts change, those included that wait still. A tick, about a second, is normal.",
    ),
    Metric(
        "worker",
        "thaw_worker_latency_seconds",
        "histogram",
        (),
        "Time from the emission of a frame to a stored estimate that contains it, per frame.",
    ),
    Metric("worker", "thaw_worker_store_up", "gauge", (), "1 if Redis answered at the last tick."),
    Metric(
        "worker",
        "thaw_worker_kafka_up",
        "gauge",
        (),
        "1 if a broker answered when it was last asked, every other second; NaN before that.",
    ),
    Metric(
        "worker",
        "thaw_worker_lag_seconds",
        "gauge",
        ("partition",),
        "Age of the oldest record of an assigned partition that was not counted yet, at most; 0 if all were. Where "
        "that is not known, the time since it was; NaN for moments after an assignment.",
    ),
    Metric(
        "worker",
        "thaw_worker_unreadable_total",
        "counter",
        ("part",),
        "Tallies and report logs in Redis that could not be read. A tally is made again from its log; a log is set "
        "aside and its window rebuilt from Kafka.",
    ),
    Metric(
        "worker",
        "thaw_worker_windows_rebuilt_total",
        "counter",
        (),
        "Windows with an unreadable report log that this worker counted again from Kafka.",
    ),
    Metric(
        "worker",
        "thaw_worker_logs_scrubbed_total",
        "counter",
        (),
        "Report logs at rest that this worker read to see whether they are whole.",
    ),
    Metric("dealer", "thaw_dealer_cards_total", "counter", ("survey",), "Cards dealt since the start, each once."),
    Metric("dealer", "thaw_dealer_refused_total", "counter", ("reason",), "Requests that were dealt no card."),
    *GATEWAY,
)

TABLE: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def documentation(process: Process) -> str:
    """Return the table of one process as Markdown, for docs/metrics.md."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        if metric.process == process:
            labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)
