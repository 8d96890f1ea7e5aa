"""The charts of `thaw plan --plot`, as data; `streams/reproduction/pictures.py` draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from estimators.papers.yes_no import Crossings, best_warner_variance, dealt_card_variance, three_card_variance
from estimators.planning.comparison import (
    LEVELS,
    MIDDLE,
    Comparison,
    Contender,
    Domain,
    best_theta,
    contenders,
    name_of,
    theta_error,
)
from estimators.reproduction.charts import Bars, Chart, Curve, Level, Mark
from producers.planning.intervals import Expectation
from producers.planning.ladders import LadderPlan
from producers.planning.noticing import AlertOutlook, chances, looks_at, watch_of
from producers.planning.year import YearOutlook
from producers.survey.alerts import AlertRule
from producers.survey.check import DAY_MS
from producers.survey.survey import Survey
from streams.cli.terminal.numbers import Scale

_POINTS = 60
_MOST_ALERTS = 4
_UNITS = ((DAY_MS, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


def interval_charts(expected: Expectation, users: int) -> list[Chart]:
    """Return the half-width of a typical value over a window's life, and by the number of devices."""
    survey = expected.survey
    scale = Scale.of_survey(survey)
    half = f"half-width of the {1 - survey.alpha:.0%} interval{', ' + scale.unit.strip() if scale.unit else ''}"
    numbers = np.unique(np.geomspace(max(users / 100, 10), users * 100, 25).astype(np.int64))
    by_users: list[Mark] = []
    for rung, epsilon in enumerate(survey.mechanism.epsilons):
        widths = [scale.factor * expected.planned(int(n), expected.all_on(rung)).typical for n in numbers]
        by_users.append(Curve(f"rung {rung}, epsilon {epsilon:.3g}", numbers, widths))
    unit_ms, unit = _unit(survey)
    looks = [look for look in looks_at(survey, users, expected.stops) if look.users.sum() >= max(users / 50, 1)]
    looks = looks[:: max(len(looks) // _POINTS, 1)]
    times = [look.after_ms / unit_ms for look in looks]
    everybody = _everybody(expected)

    def over_time(stops: Sequence[float]) -> list[float]:
        found = []
        for look in looks_at(survey, users, stops):
            if look.after_ms / unit_ms in times:
                total = float(look.users.sum())
                found.append(scale.factor * expected.planned(round(total), look.users / total).typical)
        return found

    over: list[Mark] = [Curve("some people stop early", times, over_time(expected.stops))]
    if survey.mechanism.rungs > 1:
        over.append(Curve("everybody goes to the top", times, over_time(everybody), style="dashed"))
    return [
        Chart(f"{users:,} devices, as they answer", f"{unit} after the window's end", half, over, y_log=True),
        Chart("By the number of devices", "devices on one rung", half, by_users, x_log=True, y_log=True),
    ]


def alert_chart(survey: Survey, rows: Sequence[AlertOutlook], stops: Sequence[float]) -> Chart:
    """Return the chance that each alert has noticed its change, over a window's life."""
    unit_ms, unit = _unit(survey)
    marks: list[Mark] = []
    for row in rows[:_MOST_ALERTS]:
        rule = AlertRule(row.value, row.side, row.threshold, row.alpha)
        found = chances(survey, watch_of(survey, rule, row.notice), row.users, stops)
        label = f"{row.value} {row.side} {row.threshold:g} by {row.notice:g}"
        marks.append(Curve(label, [after / unit_ms for after, _ in found], [100 * chance for _, chance in found]))
    marks.append(Level("wanted", 100 * rows[0].power))
    return Chart(
        f"Alerts, {rows[0].users:,} devices", f"{unit} after the window's end", "chance that it is noticed, %", marks
    )


def year_chart(survey: Survey, year: YearOutlook) -> Chart | None:
    """Return the cost of a person over a year, fresh and with standing values; None without finite costs."""
    if year.fresh is None or year.standing is None or year.epsilon_per_window is None or year.budget is None:
        return None
    days = np.linspace(0, 365, 366)
    begun = np.minimum(np.floor(days * DAY_MS / survey.windows.step_ms) + 1, year.windows)
    values = np.minimum(np.floor(days / 365 * (year.changes + 1)) + 1, year.changes + 1)
    marks: list[Mark] = [
        Curve("fresh: a chain per window", days, begun * year.epsilon_per_window),
        Curve(f"standing values: {year.changes} changes", days, values * year.epsilon_per_window, style="dashed"),
        Level("budget of a person", year.budget),
    ]
    return Chart("Cost of a year", "days", "epsilon spent", marks, y_log=True)


def comparison_charts(domain: Domain, found: Comparison, cards: Crossings | None) -> list[Chart]:
    """Return errors by level, the theta of uRAP, k-randomization by copies, and cards or the number of values."""
    last = _sizes(domain, found) if cards is None else _cards(domain, found, cards)
    return [_levels(domain, found), last, _theta(domain, found), _copies(found)]


def _label(contender: Contender) -> str:
    """Return the name of a mechanism, and what it protects unless that is all values."""
    protects = "" if contender.protects == "all values" else f" ({contender.protects})"
    return f"{contender.mechanism}{protects}"


def _drawn(domain: Domain) -> list[Contender]:
    """Return the mechanisms whose level is that of an answer, uRAP once: both thetas lie on one line."""
    chosen = [c for c in contenders(domain) if c.protects != "totals"]
    return [c for c in chosen if (c.mechanism, c.parameters) != ("urap", "")]


def _levels(domain: Domain, found: Comparison) -> Chart:
    levels = np.geomspace(*LEVELS, _POINTS)
    marks: list[Mark] = []
    for contender in _drawn(domain):
        known = [(level, error) for level in levels if (error := contender.error(float(level))) is not None]
        style = "dashed" if contender.protects == "sensitive values" else "line"
        errors = [100 * error for _, error in known]
        marks.append(Curve(_label(contender), [level for level, _ in known], errors, style=style))
    by_name = {name_of(contender): contender.error for contender in contenders(domain)}
    places = [(crossing.epsilon, by_name[crossing.above](crossing.epsilon)) for crossing in found.crossings]
    if places:
        where = [level for level, _ in places], [100 * error for _, error in places if error is not None]
        marks.append(Curve("crossings", *where, style="published"))
    marks.append(Level("counting without privacy", 100 * domain.counting))
    title = f"{domain.size} values, {domain.sensitive} sensitive, {domain.users:,} devices"
    return Chart(title, "epsilon", "mean error of a share, %", marks, x_log=True, y_log=True)


def _sizes(domain: Domain, found: Comparison) -> Chart:
    """Return errors by the number of values, at even shares, with the same part of them sensitive."""
    sizes = np.unique(np.geomspace(3, max(4 * domain.size, 40), 30).astype(int))
    curves: dict[str, tuple[str, list[int], list[float]]] = {}
    for size in sizes.tolist():
        sensitive = min(max(round(size * domain.sensitive / domain.size), 1), size)
        for contender in _drawn(Domain((1 / size,) * size, sensitive, domain.users)):
            error = contender.error(found.epsilon)
            if error is not None:
                style = "dashed" if contender.protects == "sensitive values" else "line"
                _, x, y = curves.setdefault(_label(contender), (style, [], []))
                x.append(size)
                y.append(100 * error)
    # A mechanism for one number of values only is no curve.
    marks = [Curve(label, x, y, style=style) for label, (style, x, y) in curves.items() if len(x) > 1]
    title = f"By the number of values, epsilon {found.epsilon:g}"
    return Chart(
        title, "values, the same part of them sensitive", "mean error of a share, %", marks, x_log=True, y_log=True
    )


def _theta(domain: Domain, found: Comparison) -> Chart:
    thetas = np.linspace(0.1, 0.95, _POINTS)
    errors = [100 * theta_error(domain, found.epsilon, float(theta)) for theta in thetas]
    best = best_theta(domain, found.epsilon)
    default = 1 / (1 + np.exp(-found.epsilon / 2))
    marks = [
        Curve("uRAP", thetas, errors),
        Curve("best", [best], [100 * theta_error(domain, found.epsilon, best)], style="points"),
        Curve("the paper's", [default], [100 * theta_error(domain, found.epsilon, float(default))], style="published"),
    ]
    return Chart(f"uRAP at epsilon {found.epsilon:g}", "theta", "mean error of a share, %", marks)


def _copies(found: Comparison) -> Chart:
    numbers = [row.copies for row in found.copies]
    marks: list[Mark] = [
        Curve("k-randomization", numbers, [100 * row.error for row in found.copies]),
        Level("counting without privacy", 100 * found.counting),
    ]
    title = f"k-randomization, totals at epsilon {found.epsilon:g}"
    return Chart(title, "copies k of every record", "mean error of a share, %", marks, x_log=True)


def _cards(domain: Domain, found: Comparison, cards: Crossings) -> Chart:
    shares, epsilon, users = np.linspace(0.01, 0.99, 99), found.epsilon, domain.users
    warner = 100 * np.sqrt(best_warner_variance(users, epsilon))
    drawn = 100 * np.sqrt(three_card_variance(users, epsilon, MIDDLE))
    dealt = [100 * np.sqrt(dealt_card_variance(float(share), users, epsilon, MIDDLE)) for share in shares]
    marks = [
        Curve("warner, grr", shares, np.full(len(shares), warner)),
        Curve("christofides, drawn cards", shares, np.full(len(shares), drawn), style="dashed"),
        Curve("improved_christofides, dealt cards", shares, dealt),
        Curve("crossings", [cards.warner_low, cards.warner_high], [warner, warner], style="published"),
    ]
    return Chart(f"Cards at epsilon {epsilon:g}", "true share", "standard deviation of this fleet, %", marks)


def ladder_chart(rows: Sequence[LadderPlan]) -> Chart:
    """Return what each ladder that reaches the goal costs per window."""
    names = [f"{row.mechanism}\n{len(row.ladder)} rung{'s' if len(row.ladder) > 1 else ''}" for row in rows]
    bars = Bars(names, {"epsilon per window": [row.epsilon for row in rows]})
    return Chart("Cheapest ladders for the goal", "", "epsilon", [bars])


def _unit(survey: Survey) -> tuple[int, str]:
    """Return the unit of the time axis: the longest that fits a window's life twice."""
    life_ms = survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    return next((found for found in _UNITS if life_ms >= 2 * found[0]), _UNITS[-1])


def _everybody(expected: Expectation) -> Sequence[float]:
    return tuple(expected.all_on(expected.survey.mechanism.rungs - 1).tolist())
