"""`thaw plan` for people: one table or a few sentences per section."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from rich.console import Console
from rich.table import Table

from estimators.papers.yes_no import Crossings
from estimators.planning.comparison import LEVELS, MIDDLE, Comparison, Domain, Protects
from producers.planning.intervals import ExpectedInterval, StopOutlook
from producers.planning.ladders import Goal, LadderPlan
from producers.planning.noticing import AlertOutlook
from producers.planning.outlook import RungOutlook, cell
from producers.planning.year import YearOutlook
from producers.survey.check import DAY_MS
from producers.survey.durations import format_duration
from producers.survey.survey import Survey
from streams.cli.terminal.numbers import Scale, scales_of

WIDTH_WITHOUT_TERMINAL = 120
MOST_VALUES = 12
"""Values in a table; `--json` has all."""
MOST_CROSSINGS = 8


def console_for_plans() -> Console:
    """Return a console that is wide enough for the tables where there is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)


def _table(columns: Sequence[str]) -> Table:
    table = Table()
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left")
    return table


def _show(console: Console, title: str, table: Table) -> None:
    """Print a table below its title; rich would break a title that is longer than its table."""
    console.print()
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(table)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)


def print_rungs(
    console: Console, survey: Survey, rows: Sequence[RungOutlook], *, users: int, attackers: int, band: float | None
) -> None:
    """Print widths, devices for a band and lying devices, rung by rung."""
    scale = Scale.of_survey(survey)
    console.print(f"[bold]{survey.id}[/bold]: {users:,} devices, the honest ones all on one rung", highlight=False)
    columns = ["rung", "epsilon", f"{1 - survey.alpha:.0%} band"]
    columns += [f"devices for ±{scale.short(band)}"] if band is not None else []
    columns += ["one lying device counts as", "... on the top rung", "lying devices to leave the band"]
    columns += [f"{attackers:,} lying devices move it by up to"] if attackers else []
    table = _table(columns)
    for row in rows:
        cells = [
            str(row.rung),
            cell(row.epsilon, "{:.4g}"),
            "-" if row.half_width is None else f"±{scale.short(row.half_width)}",
        ]
        cells += [cell(row.users_for_band, "{:,}")] if band is not None else []
        scores = (row.loudest_score, row.loudest_ahead)
        cells += [cell(score, "{:.2f}") if scale.is_share else scale.short(score) for score in scores]
        cells += [cell(row.attackers_for_half_width, "{:,}")]
        cells += [scale.short(row.shift)] if attackers else []
        table.add_row(*cells)
    console.print(table)
    about = "" if survey.mechanism.leading.all() else f" All are about the {survey.mechanism.quantities[0].meaning}."
    unit = "honest devices" if scale.is_share else "the unit of the mean"
    _say(
        console,
        "A lying device chooses its rung and sends the answer with the largest score s. It moves an estimate "
        f"by (s - estimate) / devices. Scores are in {unit}. "
        f"Widths are for a typical value, shifts for the worst one.{about}",
    )


def print_intervals(console: Console, survey: Survey, rows: Sequence[ExpectedInterval], users: int) -> None:
    """Print the interval of every value on every rung, and of a typical value for other numbers of users."""
    rungs = range(survey.mechanism.rungs)
    halves = {(row.users, row.rung, row.value): row.half_width for row in rows}
    assumed = {row.value: row.assumed for row in rows}
    heads = [f"rung {rung}" for rung in rungs]
    for scale, labels in scales_of(survey, survey.mechanism.labels).items():
        table = _table(["value", "assumed", *heads])
        for label in labels[:MOST_VALUES]:
            cells = [_half(scale, halves[users, rung, label]) for rung in rungs]
            table.add_row(label, scale.short(assumed[label]), *cells)
        _show(console, f"Expected {1 - survey.alpha:.0%} intervals, {users:,} devices on one rung", table)
        if len(labels) > MOST_VALUES:
            _say(console, f"... and {len(labels) - MOST_VALUES} values more: --json has all.")
    numbers = sorted({row.users for row in rows})
    first = survey.mechanism.labels[0]
    scale = next(iter(scales_of(survey, [first])))
    table = _table(["devices", *heads])
    for number in numbers:
        table.add_row(f"{number:,}", *[_half(scale, halves[number, rung, first]) for rung in rungs])
    _show(console, f"Interval of {first} by the number of devices", table)


def _half(scale: Scale, half_width: float | None) -> str:
    return "-" if half_width is None else f"±{scale.short(half_width)}"


def print_stops(console: Console, survey: Survey, rows: Sequence[StopOutlook], stops: Sequence[float]) -> None:
    """Print what people who stop early do to the interval of a typical value."""
    if not rows:
        return
    scale = Scale.of_survey(survey)
    parts = ", ".join(f"{part:.0%} at rung {rung}" for rung, part in enumerate(stops))
    table = _table(["reading", "method", "devices", "band", "this survey"])
    for row in rows:
        band = _half(scale, row.half_width)
        table.add_row(row.reading, row.method, f"{row.users:,}", band, "yes" if row.used else "")
    _show(console, f"If people stop early: {parts}", table)


def print_alerts(console: Console, survey: Survey, rows: Sequence[AlertOutlook]) -> None:
    """Print when each alert notices a change beyond its threshold, and how many devices that takes."""
    if not rows:
        return
    first = rows[0]
    stages = [f"rung {stage.rung}, {_after(stage.after_ms)}" for stage in first.stages]
    names = ["alert", "true", "alpha", *stages, f"noticed ({first.power:.0%})", "devices needed"]
    table = _table(names)
    for row in rows:
        scale = next(iter(scales_of(survey, [row.value])))
        true = row.threshold + (row.notice if row.side == "above" else -row.notice)
        table.add_row(
            f"{row.value} {row.side} {scale.short(row.threshold)}",
            scale.short(true),
            f"{row.alpha:.2g}",
            *[f"{stage.chance:.0%}" for stage in row.stages],
            "never" if row.notices_after_ms is None else _after(row.notices_after_ms),
            cell(row.users_needed, "{:,}"),
        )
    _show(console, f"Alerts, {first.users:,} devices: chance that a change is noticed", table)
    bound = "likelihood e-process" if first.bound == "e-process" else "checkpoints"
    _say(
        console,
        f"Times count from the window's end. The rules read always-valid bounds ({bound}); alpha is the chance of a "
        "false alarm over all looks at a window. A change inside a window shows in full in the next one.",
    )


def _after(after_ms: int) -> str:
    return f"{format_duration(-after_ms)} before" if after_ms < 0 else f"+{format_duration(after_ms)}"


def print_year(console: Console, year: YearOutlook) -> None:
    """Print what a year of windows costs a person."""
    table = _table(["", "chains", "epsilon"])
    table.add_row("fresh: a chain per window, added up", f"{year.windows:,}", _cost(year.fresh))
    table.add_row("... mean over people who stop early", f"{year.windows:,}", _cost(year.fresh_mean))
    table.add_row("with standing values: a chain per value", f"{year.changes + 1:,}", _cost(year.standing))
    _show(console, "A year of windows", table)
    if year.windows_paid is not None and year.budget is not None and year.days_paid is not None:
        one = year.windows_paid == 1
        windows = "one window" if one else f"{year.windows_paid:,} windows in a row"
        values = "one value" if one else f"{year.windows_paid:,} different values"
        paid = values if year.repeated else f"{windows}, {format_duration(round(year.days_paid * DAY_MS))}"
        _say(console, f"The budget of {year.budget:g} pays for {paid}; then the device answers no more.")
    asked = "This survey has them" if year.repeated else "This survey starts a fresh chain in every window"
    _say(
        console,
        f"With window.standing = true a chain belongs to the value: one for the first, and at most one for each of the "
        f"{year.changes} changes a year (--changes). {asked}.",
    )


def _cost(epsilon: float | None) -> str:
    return "no bound" if epsilon is None else f"{epsilon:,.4g}" if epsilon < 1e5 else f"{epsilon:,.0f}"


def print_comparison(console: Console, domain: Domain, found: Comparison, cards: Crossings | None) -> None:
    """Print which mechanism has the smallest error, and where that changes."""
    asked = f"{domain.size} values, {domain.sensitive} of them sensitive, {domain.users:,} devices"
    table = _table(["mechanism", "parameters", "protects", "mean error of a share", "times counting"])
    groups = get_args(Protects)
    for row in sorted(found.rows, key=lambda row: (groups.index(row.protects), row.error or math.inf)):
        name = f"{row.mechanism}, {row.parameters}" if row.parameters else row.mechanism
        mark = " *" if name in (found.best, found.best_sensitive) else ""
        error = "-" if row.error is None else f"{100 * row.error:.3g}%"
        ratio = "-" if row.error is None else f"{row.error / found.counting:.2f}"
        table.add_row(row.mechanism + mark, row.parameters, row.protects, error, ratio)
    _show(console, f"Mechanisms at epsilon {found.epsilon:g}: {asked}", table)
    _say(console, f"* Smallest error with all values protected: {found.best}.")
    if found.best_sensitive != found.best:
        _say(console, f"* With the sensitive values protected and others revealed: {found.best_sensitive}.")
    _say(
        console,
        f"uRAP: the best theta is {found.theta:.4g}, {found.theta_gain:.1%} better than the paper's. Plain counting "
        f"would have the error {100 * found.counting:.3g}%.",
    )
    if cards is not None:
        _say(
            console,
            f"Cards: a dealt deck (middle = {MIDDLE:g}) beats Warner for shares below {cards.warner_low:.4f} or above "
            f"{cards.warner_high:.4f}. It protects single answers only.",
        )
    table = _table(["copies", "mean error", "one record's local epsilon", "chance of more than the level, at most"])
    for copies in found.copies:
        table.add_row(
            str(copies.copies), f"{100 * copies.error:.3g}%", f"{copies.local_epsilon:.3g}", f"{copies.delta:.2g}"
        )
    _show(console, "k-randomization by copies: the level is that of the totals, not of an answer", table)
    for crossing in found.crossings[:MOST_CROSSINGS]:
        _say(console, f"From epsilon {crossing.epsilon:.3g} on {crossing.above} beats {crossing.below}.")
    if len(found.crossings) > MOST_CROSSINGS:
        _say(console, f"... and {len(found.crossings) - MOST_CROSSINGS} crossings more: --json has all.")
    if not found.crossings:
        low, high = LEVELS
        _say(console, f"No two locally private mechanisms change places between epsilon {low:g} and {high:g}.")


def print_ladders(console: Console, goal: Goal, scale: Scale, rows: Sequence[LadderPlan]) -> None:
    """Print the ladders that reach a goal, and the cheapest one as tables of a survey file."""
    title = (
        f"Ladders that notice {goal.value} {goal.side} {scale.short(goal.threshold)} by {scale.short(goal.notice)} "
        f"within {format_duration(goal.within_ms)}: {goal.users:,} devices, alpha {goal.alpha:g}, "
        f"power {goal.power:.0%}"
    )
    if not rows:
        _say(console, f"\n{title}: no level up to 20 is enough; ask more devices, or for a larger change.")
        return
    table = _table(["mechanism", "ladder", "opens", "epsilon", "a year", "chance", "noticed"])
    for row in rows:
        table.add_row(
            row.mechanism,
            ", ".join(f"{level:g}" for level in row.ladder),
            ", ".join(format_duration(opens_ms) for opens_ms in row.opens_ms),
            f"{row.epsilon:.4g}",
            _cost(row.epsilon_per_year),
            f"{row.chance:.1%}",
            "-" if row.notices_after_ms is None else _after(row.notices_after_ms),
        )
    _show(console, title, table)
    _say(console, "The cheapest one as a survey file:")
    _say(console, "\n" + rows[0].draft.text())
