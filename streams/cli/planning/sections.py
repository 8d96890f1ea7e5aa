"""The sections of a plan: each adds numbers to the JSON object, tables, and charts where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from rich.console import Console

from estimators.mechanisms.mean import Mean
from estimators.mechanisms.uldp import URAP, UtilityOptimized
from estimators.papers.yes_no import crossings as card_crossings
from estimators.planning.comparison import MIDDLE, Domain, compare
from estimators.reproduction.charts import Chart
from producers.planning.draft import Draft, sensitive_parameter
from producers.planning.intervals import Expectation, checked_parts
from producers.planning.ladders import Goal, LadderPlan, cheapest_ladders
from producers.planning.noticing import alert_outlook, noisiest
from producers.planning.outlook import outlook
from producers.planning.year import year_of
from producers.survey.alerts import AlertRule, Side
from producers.survey.file import RungAssumption
from producers.survey.survey import Survey
from streams.cli.planning import charts, tables
from streams.cli.terminal.numbers import scales_of

NOTICED_PART = 0.05
"""Part of a quantity's range that an alert is to notice unless --notice says another."""
CANDIDATES = ("grr", "oue", "sue")
"""Mechanisms that are tried where none is named."""
SENSITIVE_CANDIDATES = ("urr", "urap")


@dataclass(frozen=True)
class Assumed:
    """What the flags assume about devices and alerts."""

    users: int
    attackers: int
    band: float | None
    shares: tuple[float, ...] | None
    stops: tuple[float, ...] | None
    changes: int
    notice: float | None
    value: str | None
    threshold: float | None
    below: bool
    alpha: float
    power: float

    @property
    def side(self) -> Side:
        """The side of the alert."""
        return "below" if self.below else "above"


@dataclass
class Plan:
    """What was planned: an object for programs, tables for people, charts if they are wanted."""

    assumed: Assumed
    drawn: bool
    data: dict[str, Any] = field(default_factory=dict)
    shown: list[Callable[[Console], None]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)


def add_survey(plan: Plan, survey: Survey) -> None:
    """Add intervals, lying devices, people who stop early, alerts and the year of a survey."""
    assumed = plan.assumed
    users, attackers, band = assumed.users, assumed.attackers, assumed.band
    expected = Expectation(survey, shares=assumed.shares, stops=assumed.stops)
    # First, since it is here that flags may be wrong.
    rules = _rules(survey, expected, assumed)
    alerts = [
        alert_outlook(survey, rule, notice=notice, users=users, stops=expected.stops, power=assumed.power)
        for rule, notice in rules
    ]
    rungs = outlook(expected, users=users, attackers=attackers, band=band)
    intervals = expected.intervals(sorted({max(users // 10, 1), users, 10 * users}))
    stopping = expected.stopping(users)
    year = year_of(survey, stops=expected.stops, changes=assumed.changes)
    plan.data |= {"survey": survey.id, "mechanism": survey.mechanism.name, "users": users, "attackers": attackers}
    plan.data |= {
        "band": band,
        "rungs": [asdict(row) for row in rungs],
        "quantities": [
            {"value": found.label, "kind": found.kind, "unit": found.unit} for found in survey.mechanism.quantities
        ],
        "stops": list(expected.stops),
        "intervals": [asdict(row) for row in intervals],
        "stopping": [asdict(row) for row in stopping],
        "alerts": [asdict(row) for row in alerts],
        "year": asdict(year),
    }
    plan.shown += [
        partial(tables.print_rungs, survey=survey, rows=rungs, users=users, attackers=attackers, band=band),
        partial(tables.print_intervals, survey=survey, rows=intervals, users=users),
        partial(tables.print_stops, survey=survey, rows=stopping, stops=expected.stops),
        partial(tables.print_alerts, survey=survey, rows=alerts),
        partial(tables.print_year, year=year),
    ]
    if plan.drawn:
        plan.charts += charts.interval_charts(expected, users)
        plan.charts += [charts.alert_chart(survey, alerts, expected.stops)] if alerts else []
        found = charts.year_chart(survey, year)
        plan.charts += [found] if found is not None else []


def _rules(survey: Survey, expected: Expectation, assumed: Assumed) -> list[tuple[AlertRule, float]]:
    """Return the rules of the survey, or the one that the flags describe, each with the change to be noticed."""
    labels = survey.mechanism.labels
    if assumed.value is not None and assumed.value not in labels:
        raise ValueError(f"value: must be one of {', '.join(labels[:5])}; got {assumed.value!r}")
    rules = [rule for rule in survey.alerts if assumed.value in (None, rule.value)]
    if assumed.below:
        rules = [rule for rule in rules if rule.side == "below"]
    if assumed.threshold is not None or (assumed.notice is not None and not rules):
        rules = [_own_rule(survey, expected, assumed)]
    if not rules and (assumed.value is not None or assumed.below):
        flag = "below" if assumed.value is None else "value"
        raise ValueError(f"{flag}: the survey has no such alert; add one, such as --notice 0.03, or leave it out")
    return [(rule, assumed.notice or _default_notice(survey, rule)) for rule in rules]


def _own_rule(survey: Survey, expected: Expectation, assumed: Assumed) -> AlertRule:
    truth = expected.fleet.truth
    value = assumed.value or noisiest(survey, truth)
    at = float(truth[survey.mechanism.labels.index(value)])
    threshold = float(f"{at:.4g}") if assumed.threshold is None else assumed.threshold
    return AlertRule(value, assumed.side, threshold, assumed.alpha)


def _default_notice(survey: Survey, rule: AlertRule) -> float:
    quantity = survey.mechanism.quantities[survey.mechanism.labels.index(rule.value)]
    room = quantity.high - rule.threshold if rule.side == "above" else rule.threshold - quantity.low
    return min(NOTICED_PART * (quantity.high - quantity.low), room / 2)


def add_comparison(plan: Plan, values: Sequence[str], sensitive: Sequence[str], epsilon: float) -> None:
    """Add which mechanism has the smallest error for these values at this level."""
    users, size = plan.assumed.users, len(values)
    if size < 2:
        raise ValueError(f"compare: mechanisms are compared for two values or more; got {size}")
    shares = [1 / size] * size
    if plan.assumed.shares is not None:
        shares = list(checked_parts(plan.assumed.shares, size, "shares", "value"))
    first = sorted(range(size), key=lambda place: values[place] not in sensitive)
    domain = Domain(tuple(shares[place] for place in first), len(sensitive), users)
    found = compare(domain, epsilon)
    cards = card_crossings(users, epsilon, MIDDLE) if size == 2 and users > 1 else None
    told = asdict(found) | {"values": size, "sensitive": len(sensitive), "users": users}
    plan.data["comparison"] = told | {"cards": None if cards is None else asdict(cards)}
    plan.shown.append(partial(tables.print_comparison, domain=domain, found=found, cards=cards))
    if plan.drawn:
        plan.charts += charts.comparison_charts(domain, found, cards)


@dataclass(frozen=True)
class Sought:
    """What a ladder is sought for: values, mechanisms that may be used, and how they are asked."""

    values: tuple[str, ...]
    mechanisms: tuple[tuple[str, Mapping[str, Any]], ...]
    window_ms: int
    assume: RungAssumption

    @classmethod
    def like(cls, survey: Survey) -> Sought:
        """Return what a survey asks, with its own mechanism."""
        mechanism = survey.mechanism
        parameters: dict[str, Any] = {}
        if isinstance(mechanism, UtilityOptimized):
            parameters["sensitive"] = sensitive_parameter(mechanism.name, mechanism.sensitive)
        if isinstance(mechanism, URAP) and mechanism.theta is not None:
            parameters["theta"] = mechanism.theta
        if isinstance(mechanism, Mean):
            parameters |= {"low": mechanism.low, "high": mechanism.high}
        chosen = ((mechanism.name, parameters),)
        return cls(mechanism.labels, chosen, survey.windows.size_ms, survey.rungs)


def add_ladders(plan: Plan, sought: Sought, within_ms: int) -> None:
    """Add the cheapest ladders that notice a change in time."""
    assumed = plan.assumed
    if assumed.notice is None:
        raise ValueError("within: needs --notice, the change that is to be noticed; such as --notice 0.03")
    name, parameters = sought.mechanisms[0]
    outline = Draft(sought.values, name, (1.0,), parameters=parameters).survey()
    rule = _own_rule(outline, Expectation(outline, shares=assumed.shares), assumed)
    goal = Goal(
        value=rule.value,
        side=rule.side,
        threshold=rule.threshold,
        notice=assumed.notice,
        within_ms=within_ms,
        alpha=assumed.alpha,
        power=assumed.power,
        users=assumed.users,
        window_ms=sought.window_ms,
        assume=sought.assume,
        stop_early=assumed.stops is not None,
    )
    found = cheapest_ladders(goal, sought.values, sought.mechanisms)
    plan.data["ladders"] = {"goal": asdict(goal), "found": [_ladder(row) for row in found]}
    scale = next(iter(scales_of(outline, [rule.value])))
    plan.shown.append(partial(tables.print_ladders, goal=goal, scale=scale, rows=found))
    if plan.drawn and found:
        plan.charts.append(charts.ladder_chart(found))


def _ladder(row: LadderPlan) -> dict[str, Any]:
    told = asdict(row)
    del told["draft"]
    return told | {"survey": row.draft.text()}
