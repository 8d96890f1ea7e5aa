"""Alert rules for Prometheus, written from survey files: thresholds stand in one place, from which no rule can drift.

Rules on values read bounds that hold at all looks together, so they need no waiting time: the rate of false alarms is
stated per window and rule, and looking every second does not raise it. `docs/runbooks` has one page per alert.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from producers.survey.alert_ranges import rule_problems, value_ranges
from producers.survey.alerts import AlertRule
from producers.survey.durations import format_duration
from producers.survey.survey import Survey
from streams.exporter.health import stale_after_ms

Severity = Literal["page", "ticket"]

RUNBOOKS: Final = "docs/runbooks"
"""Where the annotations point to unless told otherwise."""

LAG_RECORDS: Final = 1_000
"""Records behind which a growing lag is worth a word. Smaller: every restart of a worker is told."""
DEAD_LETTERS: Final = 10
DEAD_LETTER_RATIO: Final = 0.01
"""Dead letters in ten minutes, and their part of all reports, that are worth a word: strangers knock at every door."""
CONFLICTS: Final = 10
FLOOD_FACTOR: Final = 3
FLOOD_REPORTS: Final = 100
"""A shard floods with this many times the reports of an average shard in ten minutes, and so many more. By chance it
would take a count more than ten deviations off, whatever the fleet."""

_CLOSED = 'window=~"[1-5]"'


class AlertRenderError(ValueError):
    """A survey's rules could never speak; the message says why."""


@dataclass(frozen=True)
class Rule:
    """One alerting rule of Prometheus."""

    alert: str
    expr: str
    severity: Severity
    summary: str
    description: str
    hold: str = "0s"
    """How long the expression must hold before anybody is told."""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together."""

    name: str
    rules: Sequence[Rule] = field(default_factory=tuple)


def pipeline_group() -> Group:
    """Return the rules that need no survey: is everything up, does it keep pace, is what it gets in order."""
    rejected = "sum by (survey) (increase(thaw_reports_rejected_total[10m]))"
    applied = "sum by (survey) (increase(thaw_reports_applied_total[10m]))"
    return Group(
        "thaw-pipeline",
        (
            Rule(
                "ThawTargetDown",
                'up{job=~"thaw.*"} == 0',
                "page",
                "{{ $labels.job }} at {{ $labels.instance }} does not answer",
                "Prometheus has not been able to read it for two minutes. Reports wait in Kafka; none is lost.",
                hold="2m",
            ),
            Rule(
                "ThawStoreDown",
                "min by (job, instance) (thaw_store_up == 0 or thaw_worker_store_up == 0)",
                "page",
                "{{ $labels.instance }} cannot reach Redis",
                "Nothing is counted until Redis answers again; reports wait in Kafka.",
                hold="1m",
            ),
            Rule(
                "ThawLagGrowing",
                f"sum(thaw_worker_lag_records) > {LAG_RECORDS}\nand\nsum(deriv(thaw_worker_lag_records[10m])) > 0",
                "ticket",
                "Workers are {{ $value | humanize }} records behind, and falling further behind",
                "Estimates are late by what is not read yet. Start more workers, or find out what slows them.",
                hold="10m",
            ),
            Rule(
                "ThawDeadLetters",
                f"{rejected} > {DEAD_LETTERS}\nunless on (survey)\n{rejected} <= {DEAD_LETTER_RATIO:g} * {applied}",
                "ticket",
                "{{ $value | humanize }} reports of {{ $labels.survey }} were refused in ten minutes",
                f"That is more than {DEAD_LETTER_RATIO:.0%} of all its reports. The dead-letter topic has them with "
                "reasons.",
            ),
            Rule(
                "ThawConflictingReports",
                f"sum by (survey) (increase(thaw_reports_conflict_total[1h])) > {CONFLICTS}",
                "ticket",
                "Devices contradict themselves in {{ $labels.survey }}",
                "{{ $value | humanize }} reports in an hour contradict another one of the same token and rung. A "
                "correct device never draws an answer twice.",
            ),
            Rule(
                "ThawRecomputeFailing",
                "sum(increase(thaw_worker_recompute_failures_total[5m])) > 0",
                "page",
                "Windows cannot be estimated",
                "The counts are safe, but {{ $value | humanize }} attempts at an estimate failed in five minutes. "
                "The workers' logs say why.",
                hold="5m",
            ),
        ),
    )


def survey_group(survey: Survey) -> Group:
    """Return the rules of one survey, with the thresholds of its file.

    Raises:
        AlertRenderError: a rule could never speak.
    """
    problems = rule_problems(survey)
    if problems:
        raise AlertRenderError(f"{survey.name}: {'; '.join(problems)}")
    rules = [_frequency(survey, rule) for rule in survey.alerts]
    return Group(survey.id, (*rules, *_health(survey)))


def _frequency(survey: Survey, rule: AlertRule) -> Rule:
    ranges = value_ranges(survey)
    share = ranges is not None and ranges[survey.mechanism.labels.index(rule.value)] == (0.0, 1.0)
    bound = _series("thaw_alert_bound_ratio", survey=survey.id, value=rule.value, side=rule.side)
    highest, beyond, end = ("max", ">", "lower") if rule.side == "above" else ("min", "<", "upper")
    shown = "{{ $value | humanizePercentage }}" if share else '{{ $value | printf "%.4g" }}'
    limit = f"{100 * rule.threshold:.6g} %" if share else f"{rule.threshold:g}"
    return Rule(
        f"ThawFrequency{rule.side.capitalize()}Threshold",
        f"{highest} by (survey, value) ({bound}) {beyond} {rule.threshold!r}",
        "page",
        f"{{{{ $labels.value }}}} in {{{{ $labels.survey }}}} is surely {rule.side} {limit}",
        f"In one of the last windows the {end} bound is {shown}. It holds at all looks at a window together: false "
        f"alarms come in at most {100 * rule.alpha:.3g} % of windows.",
        labels=(("survey", survey.id), ("value", literal(rule.value))),
    )


def _health(survey: Survey) -> Iterable[Rule]:
    limits, labels = survey.limits, (("survey", survey.id),)
    if limits.band_ratio is not None:
        ends = [
            f"thaw_frequency_{end}_bound_ratio{{survey={quoted(survey.id)},{_CLOSED}}}" for end in ("upper", "lower")
        ]
        yield Rule(
            "ThawBandTooWide",
            f"max by (survey) (\n  min by (survey, value) (\n    {ends[0]}\n    - {ends[1]}\n  )\n) > "
            f"{limits.band_ratio!r}",
            "ticket",
            "The estimates of {{ $labels.survey }} are too uncertain to be of use",
            f"No closed window has a band narrower than {limits.band_ratio:g} for every value; the best is "
            '{{ $value | printf "%.3g" }} wide.',
            hold="1m",
            labels=labels,
        )
    stale_ms = stale_after_ms(survey)
    last = _series("thaw_last_estimate_timestamp_seconds", survey=survey.id)
    yield Rule(
        "ThawEstimateStale",
        f"time() - max by (survey) ({last}) > {stale_ms / 1_000:g}",
        "page",
        "No new estimate of {{ $labels.survey }} for {{ $value | humanizeDuration }}",
        f"Its devices usually send something within {format_duration(stale_ms)}. What is shown is old.",
        hold="1m",
        labels=labels,
    )
    shards = _series("thaw_shard_reports_total", survey=survey.id)
    if limits.reports_per_shard_per_second is not None:
        flood = f"max by (survey) (rate({shards}[5m])) > {limits.reports_per_shard_per_second!r}"
        usual = f"the fleet can send {limits.reports_per_shard_per_second:g} reports per second and shard"
    else:
        many = f"increase({shards}[10m])"
        flood = f"max by (survey) ({many}) > {FLOOD_FACTOR} * avg by (survey) ({many}) + {FLOOD_REPORTS}"
        usual = f"no shard gets {FLOOD_FACTOR} times as many reports as the others"
    yield Rule(
        "ThawShardFlood",
        flood,
        "ticket",
        "One shard of {{ $labels.survey }} is flooded with reports",
        f"Tokens spread evenly over shards, and {usual}. Somebody sends far more.",
        hold="10m",
        labels=labels,
    )
    spent = _series("thaw_budget_spent_ratio", survey=survey.id)
    yield Rule(
        "ThawBudgetNearlySpent",
        f"max by (survey) ({spent}) > {limits.budget_ratio!r}",
        "ticket",
        "Devices have spent {{ $value | humanizePercentage }} of their budget on {{ $labels.survey }}",
        "Devices that answered every time will soon fall silent, first on the upper rungs. That is their right: plan "
        "the end of the survey.",
        labels=labels,
    )
    if survey.canary is not None:
        scores = f"thaw_canary_z_score{{survey={quoted(survey.id)},{_CLOSED}}}"
        yield Rule(
            "ThawCanaryOutOfCalibration",
            f"max by (survey) (\n  abs(sum by (survey, value) ({scores}))\n  / sqrt(count by (survey, value) "
            f"({scores}))\n) > {limits.canary_z!r}",
            "page",
            "The canary {{ $labels.survey }} is {{ $value | humanize }} standard errors from its truth",
            "Its truth is known, so the pipeline is at fault and not the world. Do not trust other estimates either.",
            labels=labels,
        )


def _series(name: str, **labels: str) -> str:
    return f"{name}{{{','.join(f'{label}={quoted(value)}' for label, value in labels.items())}}}"


def quoted(text: str) -> str:
    """Return a string literal that PromQL, Go's templates and YAML all read as this text.

    JSON would not do: it writes characters beyond 16 bits as two halves, which Go refuses.

    >>> print(quoted('a "b"'), quoted("\\u2028"))
    "a \\"b\\"" "\\u2028"
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def literal(text: str) -> str:
    """Return a template that expands to exactly this text, whatever it contains.

    >>> literal("Chrome"), literal("{{ $value }}")
    ('Chrome', '{{ "{{ $value }}" }}')
    """
    return f"{{{{ {quoted(text)} }}}}" if "{{" in text else text


def render(groups: Sequence[Group], *, runbooks: str = RUNBOOKS) -> str:
    """Return a rule file: YAML that Prometheus and promtool read."""
    lines = ["# Written by `thaw alerts render`; change the survey files and write it again.", "groups:"]
    for group in groups:
        lines += [f"  - name: {quoted(group.name)}", "    rules:"]
        for rule in group.rules:
            lines += _rule(rule, runbooks)
    return "\n".join(lines) + "\n"


def _rule(rule: Rule, runbooks: str) -> list[str]:
    annotations = {
        "summary": rule.summary,
        "description": rule.description,
        "runbook_url": f"{runbooks.rstrip('/')}/{rule.alert}.md",
    }
    lines = [f"      - alert: {rule.alert}", "        expr: |-"]
    lines += [f"          {line}" for line in rule.expr.splitlines()]
    lines += [f"        for: {rule.hold}", "        labels:", f"          severity: {rule.severity}"]
    lines += [f"          {name}: {quoted(value)}" for name, value in rule.labels]
    lines += ["        annotations:", *(f"          {name}: {quoted(text)}" for name, text in annotations.items())]
    return lines
