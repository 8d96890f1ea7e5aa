"""Estimates on a terminal: per value the estimate, its band as a bar, and a sparkline of earlier windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from estimators.estimates import ViewName
from estimators.mechanism import Quantity
from producers.survey.survey import Survey
from streams.cli.terminal.numbers import Scale, axis, scales_of
from streams.windows.record import AlertBound, DerivedEstimate, EstimateRecord, UnexplainedShare, ValueEstimate
from streams.windows.settled import WindowState, settles_ms, window_state
from streams.windows.shown_views import BIASED, WORDING, distance_text

BAR_CELLS: Final = 28
VALUES_SHOWN: Final = 40
"""Values of one table, those with the highest estimates; JSON and CSV have all of them."""
UNSETTLED_SHOWN: Final = 3
_ESTIMATED: Final = {
    ("key", "share"): "share with the key",
    ("key", "mean"): "mean of its value",
    ("value", "mean"): "mean",
}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Signs:
    """What is drawn with; terminals that cannot show Unicode get letters and digits."""

    line: str = _BLOCKS
    gap: str = "·"
    band: str = "━"
    point: str = "●"
    empty: str = " "


UNICODE, ASCII = Signs(), Signs("01234567", ".", "-", "o", " ")


def clean(text: str) -> str:
    """Return text without control characters: question and values come from survey files."""
    return "".join(character if character.isprintable() else "�" for character in text)


def sparkline(numbers: Sequence[float | None], low: float, high: float, signs: Signs = UNICODE) -> str:
    """Draw one character per number, oldest first; numbers beyond the ends are drawn at the ends.

    >>> sparkline([0.0, 0.5, 1.0, None, 2.0], 0.0, 1.0)
    '▁▅█·█'
    """
    steps, width = len(signs.line), high - low
    drawn = []
    for number in numbers:
        if number is None or width <= 0:
            drawn.append(signs.gap)
        else:
            drawn.append(signs.line[min(steps - 1, max(0, int((number - low) / width * steps)))])
    return "".join(drawn)


def band_bar(row: ValueEstimate, low: float, high: float, signs: Signs = UNICODE, cells: int = BAR_CELLS) -> str:
    """Draw the band of a value between two ends, its estimate as a point; cut off where it leaves them.

    >>> band_bar(ValueEstimate("red", 0.5, 0.01, 0.25, 0.75), 0.0, 1.0, cells=8)
    '  ━━●━━ '
    """
    if row.estimate is None or row.lower is None or row.upper is None or high <= low:
        return signs.empty * cells

    def cell(number: float) -> int:
        return min(cells - 1, max(0, int((number - low) / (high - low) * cells)))

    first, last = cell(row.lower), cell(row.upper)
    drawn = [signs.band if first <= place <= last else signs.empty for place in range(cells)]
    drawn[cell(row.estimate)] = signs.point
    return "".join(drawn)


def survey_view(
    survey: Survey,
    records: Sequence[EstimateRecord],
    now_ms: int,
    counted_ms: int | None = None,
    signs: Signs = UNICODE,
    view: ViewName | None = None,
) -> RenderableType:
    """Lay out a survey: the newest settled window in full, the settled windows before as lines, open ones by name.

    Args:
        survey: the survey.
        records: its estimates, newest window first.
        now_ms: the time.
        counted_ms: the time before which all reports are counted.
        signs: what is drawn with.
        view: which of the views of the newest settled window stands beside its estimates.
    """
    head = Text.assemble((survey.id, "bold"), "  ", (clean(survey.question), "italic"))
    if not records:
        return Group(head, Text("  no estimates yet", style="dim"))
    states = [(record, window_state(survey, record, now_ms, counted_ms)) for record in records]
    waiting = _unsettled(survey, [(record, state) for record, state in states if state != "settled"], now_ms)
    records = [record for record, state in states if state == "settled"]
    if not records:
        return Group(head, Text(f"  no settled window yet{_first(survey, states, now_ms)}", style="yellow"), *waiting)
    newest = records[0]
    parts: list[RenderableType] = [head, Text(f"  {_title(survey, newest)}", style="dim")]
    if newest.withheld is not None:
        return Group(*parts, Text(f"  {newest.withheld.sentence}", style="yellow"), *waiting)
    for scale, labels in scales_of(survey, [row.value for row in newest.values]).items():
        chosen = [row for row in newest.values if row.value in set(labels)]
        rows = sorted(chosen, key=lambda row: -(row.estimate if row.estimate is not None else float("-inf")))
        shown = rows[:VALUES_SHOWN]
        past: dict[str, list[float | None]] = {row.value: [] for row in shown}
        for record in reversed(records):
            found = {row.value: row.estimate for row in record.values}
            for value, line in past.items():
                line.append(found.get(value))
        parts.append(_table(survey, newest, shown, past, scale, signs, view))
        if len(rows) > len(shown):
            together = _together(survey, rows[len(shown) :], scale)
            more = f"  {len(rows) - len(shown)} more values{together}; --json and --csv have all"
            parts.append(Text(more, style="dim"))
    parts += [Text(f"  {_derived(one)}") for one in newest.derived]
    parts += [Text(f"  {line}") for line in _view_lines(newest, view)]
    if newest.unexplained is not None:
        parts.append(Text(f"  {_unexplained(newest.unexplained)}"))
    parts += [Text(f"  {clean(note)}", style="dim") for note in newest.notes]
    if newest.contradicted:
        parts.append(Text(f"  {_contradiction(newest)}", style="bold yellow"))
    return Group(*parts, *waiting)


def _table(
    survey: Survey,
    newest: EstimateRecord,
    shown: Sequence[ValueEstimate],
    past: Mapping[str, Sequence[float | None]],
    scale: Scale,
    signs: Signs,
    view: ViewName | None,
) -> Table:
    """Lay out the values of the newest settled window that have one scale, each with its band and its past."""
    numbers = [number for line in past.values() for number in line]
    low, high = scale.ends([*numbers, *(end for row in shown for end in (row.lower, row.upper))])
    alerts = {alert.value: alert for alert in sorted(newest.alerts, key=lambda alert: alert.firing)}
    table = Table(box=None, padding=(0, 1))
    quantities = {quantity.label: quantity for quantity in survey.mechanism.quantities}
    named = [quantities.get(row.value, Quantity(row.value)) for row in shown]
    first = named[0] if named else Quantity("")
    table.add_column(first.subject, overflow="ellipsis", max_width=30)
    table.add_column(_ESTIMATED.get((first.subject, first.kind), "estimate"), justify="right")
    if first.subject == "string":
        table.add_column("standard error", justify="right", no_wrap=True)
    table.add_column(f"{1 - newest.alpha:.0%} band", justify="right", no_wrap=True)
    seen = _viewed(newest, view)
    if seen:
        table.add_column(f"view: {view}", justify="right", no_wrap=True)
    table.add_column(axis(scale, low, high, BAR_CELLS), no_wrap=True)
    table.add_column(f"last {len(next(iter(past.values()), ()))} settled", no_wrap=True)
    if newest.alerts:
        table.add_column("rule")
    for row, quantity in zip(shown, named, strict=True):
        cells: list[Text] = [_name(survey, quantity), Text(_estimate(row, scale))]
        if first.subject == "string":
            cells.append(Text("-" if row.variance is None else scale.text(math.sqrt(row.variance))))
        cells.append(Text(scale.band(row.lower, row.upper)))
        if seen:
            cells.append(Text(scale.text(seen[row.value])))
        cells += [
            Text(band_bar(row, low, high, signs), style="cyan"),
            Text(sparkline(past[row.value], low, high, signs)),
        ]
        if newest.alerts:
            cells.append(_rule(alerts.get(row.value), scale))
        table.add_row(*cells)
    return table


def _together(survey: Survey, rest: Sequence[ValueEstimate], scale: Scale) -> str:
    """Return the sum of the estimates of all values that are not listed; empty if unknown.

    It has no band: which values these are was chosen by their estimates, and no band of a sum holds after that.
    """
    numbers = [row.estimate for row in rest if row.estimate is not None]
    if not survey.mechanism.adds_up or len(numbers) < len(rest):
        return ""
    return f", together {scale.text(math.fsum(numbers))} (no band)"


def _viewed(record: EstimateRecord, view: ViewName | None) -> dict[str, float]:
    """Return the shares of a view by value; empty if the window does not have it."""
    found = next((one for one in record.views if one.name == view), None)
    if found is None:
        return {}
    return {row.value: share for row, share in zip(record.values, found.shares, strict=True)}


def _view_lines(record: EstimateRecord, view: ViewName | None) -> list[str]:
    """Say what the view is; nothing where none is asked for."""
    if view is None:
        return []
    found = next((one for one in record.views if one.name == view), None)
    if found is None:
        return [f"this window has no view {view}"]
    title, about = WORDING[view]
    return [f"view {view}, {title}: {about} {BIASED}", *filter(None, [distance_text(found)])]


def _name(survey: Survey, quantity: Quantity) -> Text:
    """Return what people read for a label, marked where the mechanism hides only some values."""
    name = Text(clean(quantity.name or quantity.label))
    if survey.mechanism.guarantee.protects == "sensitive values":
        mark, style = ("sensitive", "bold") if quantity.sensitive else ("not hidden", "dim")
        name.append(f" ({mark})", style=style)
    return name


def _estimate(row: ValueEstimate, scale: Scale) -> str:
    """Return the estimate; a mean that could be anything is not estimable, and that is said."""
    return "not estimable" if row.estimate is None and not scale.is_share else scale.text(row.estimate)


def _derived(one: DerivedEstimate) -> str:
    """Return a number that follows from all values together, with its band."""
    if one.estimate is None:
        return f"{one.meaning}: not estimable"
    scale = Scale.of(Quantity("", kind="share" if one.kind == "share" else "mean"))
    if not scale.is_share and one.lower is not None and one.upper is not None:
        scale = scale.of_width((one.upper - one.lower) / 2)
    return f"{one.meaning}: {scale.text(one.estimate)} ({scale.band(one.lower, one.upper)})"


def _unexplained(found: UnexplainedShare) -> str:
    scale = Scale.of(Quantity(""))
    error = scale.text(math.sqrt(found.variance))
    band = scale.band(found.lower, found.upper)
    return f"explained by no candidate: {scale.text(found.estimate)}, standard error {error}, {band}"


def _unsettled(survey: Survey, windows: Sequence[tuple[EstimateRecord, WindowState]], now_ms: int) -> list[Text]:
    """Name the windows that are not settled, without their numbers: the estimates of open windows are mostly noise."""
    lines = []
    for record, state in windows[:UNSETTLED_SHOWN]:
        left_ms = settles_ms(survey, record.window_start_ms) - now_ms
        why = {
            "open": f"open for another {max(record.window_end_ms - now_ms, 0) / 1_000:.0f} s",
            "releasing": f"not all rungs released yet, settles in {max(left_ms, 0) / 1_000:.0f} s",
            "waiting": "all rungs released, but not counted yet",
        }[state]
        lines.append(Text(f"  window from {_when(record)}: {_devices(survey, record)} so far, {why}", style="dim"))
    if len(windows) > UNSETTLED_SHOWN:
        lines.append(Text(f"  {len(windows) - UNSETTLED_SHOWN} more windows are not settled", style="dim"))
    return lines


def _first(survey: Survey, states: Sequence[tuple[EstimateRecord, WindowState]], now_ms: int) -> str:
    left = [settles_ms(survey, record.window_start_ms) - now_ms for record, _ in states]
    soonest = min((left_ms for left_ms in left if left_ms > 0), default=None)
    return "" if soonest is None else f": the first settles in {soonest / 1_000:.0f} s"


def _devices(survey: Survey, record: EstimateRecord) -> str:
    """Return how many devices answered: one may send several copies, which are counted each."""
    copies = survey.mechanism.copies
    if copies == 1:
        return f"{record.users:,} users"
    return f"{round(record.users / copies):,} devices, {record.users:,} copies"


def _title(survey: Survey, record: EstimateRecord) -> str:
    rungs = " / ".join(f"{users:,}" for users in record.users_per_rung)
    made = f"{record.method}, rungs = {record.assumption}"
    return f"newest settled window, from {_when(record)}: {_devices(survey, record)} ({rungs} by rung), {made}"


def _contradiction(record: EstimateRecord) -> str:
    return (
        f'the rungs contradict rungs = "independent" (p = {record.homogeneity_p:.2g}): '
        "the rung of a device depends on its value, or reports are forged"
    )


def _when(record: EstimateRecord) -> str:
    return datetime.fromtimestamp(record.window_start_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rule(alert: AlertBound | None, scale: Scale) -> Text:
    if alert is None:
        return Text("")
    if alert.bound is None:
        return Text("no bound", style="dim")
    end, sign = ("lower", ">") if alert.side == "above" else ("upper", "<")
    bound, threshold = scale.text(alert.bound), scale.short(alert.threshold)
    if alert.firing:
        return Text(f"FIRING: {end} bound {bound} {sign} {threshold}", style="bold red")
    return Text(f"quiet: {end} bound {bound}, fires {sign} {threshold}", style="dim")
