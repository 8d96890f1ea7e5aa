"""Estimates on a terminal: per value the estimate, its band as a bar, and a sparkline of earlier windows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producers.survey.survey import Survey
from streams.cli.terminal.numbers import band_text
from streams.windows.record import AlertBound, EstimateRecord, ValueEstimate
from streams.windows.settled import WindowState, settles_ms, window_state

BAR_CELLS: Final = 28
VALUES_SHOWN: Final = 40
"""Values of one table, those with the highest estimates; JSON and CSV have all of them."""
UNSETTLED_SHOWN: Final = 3
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
) -> RenderableType:
    """Lay out a survey: the newest settled window in full, the settled windows before as lines, open ones by name.

    Args:
        survey: the survey.
        records: its estimates, newest window first.
        now_ms: the time.
        counted_ms: when the newest estimate of any survey was computed.
        signs: what is drawn with.
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
    rows = sorted(newest.values, key=lambda row: -(row.estimate if row.estimate is not None else float("-inf")))
    shown = rows[:VALUES_SHOWN]
    past: dict[str, list[float | None]] = {row.value: [] for row in shown}
    for record in reversed(records):
        found = {row.value: row.estimate for row in record.values}
        for value, line in past.items():
            line.append(found.get(value))
    table = _table(newest, shown, past, _ends(records, past), signs)
    parts: list[RenderableType] = [head, Text(f"  {_title(newest)}", style="dim"), table]
    if len(rows) > len(shown):
        parts.append(Text(f"  {len(rows) - len(shown)} more values; --json and --csv have all", style="dim"))
    parts += [Text(f"  {clean(note)}", style="dim") for note in newest.notes]
    if newest.contradicted:
        parts.append(Text(f"  {_contradiction(newest)}", style="bold yellow"))
    return Group(*parts, *waiting)


def _table(
    newest: EstimateRecord,
    shown: Sequence[ValueEstimate],
    past: Mapping[str, Sequence[float | None]],
    ends: tuple[float, float],
    signs: Signs,
) -> Table:
    """Lay out the values of the newest settled window, each with its band and its past."""
    low, high = ends
    alerts = {alert.value: alert for alert in sorted(newest.alerts, key=lambda alert: alert.firing)}
    table = Table(box=None, padding=(0, 1))
    table.add_column("value", overflow="ellipsis", max_width=30)
    table.add_column("estimate", justify="right")
    table.add_column(f"{1 - newest.alpha:.0%} band", justify="right", no_wrap=True)
    table.add_column(
        f"{_short(low)}{'':{BAR_CELLS - len(_short(low)) - len(_short(high))}}{_short(high)}", no_wrap=True
    )
    table.add_column(f"last {len(next(iter(past.values()), ()))} settled", no_wrap=True)
    if newest.alerts:
        table.add_column("rule")
    for row in shown:
        cells: list[Text] = [
            Text(clean(row.value)),
            Text(_number(row.estimate)),
            Text(band_text(row.lower, row.upper, digits=4)),
            Text(band_bar(row, low, high, signs), style="cyan"),
            Text(sparkline(past[row.value], low, high, signs)),
        ]
        if newest.alerts:
            cells.append(_rule(alerts.get(row.value)))
        table.add_row(*cells)
    return table


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
        lines.append(Text(f"  window from {_when(record)}: {record.users:,} users so far, {why}", style="dim"))
    if len(windows) > UNSETTLED_SHOWN:
        lines.append(Text(f"  {len(windows) - UNSETTLED_SHOWN} more windows are not settled", style="dim"))
    return lines


def _first(survey: Survey, states: Sequence[tuple[EstimateRecord, WindowState]], now_ms: int) -> str:
    left = [settles_ms(survey, record.window_start_ms) - now_ms for record, _ in states]
    soonest = min((left_ms for left_ms in left if left_ms > 0), default=None)
    return "" if soonest is None else f": the first settles in {soonest / 1_000:.0f} s"


def _ends(records: Sequence[EstimateRecord], values: Container[str]) -> tuple[float, float]:
    """Return the ends of the scale: 0 is on it, and so is the newest band; shares begin at 0."""
    numbers = [row.estimate for record in records for row in record.values if row.value in values]
    numbers += [end for row in records[0].values if row.value in values for end in (row.lower, row.upper)]
    known = [number for number in numbers if number is not None]
    return min([0.0, *known]) if min(known, default=0.0) < -0.2 else 0.0, max([0.05, *known])


def _title(record: EstimateRecord) -> str:
    rungs = " / ".join(f"{users:,}" for users in record.users_per_rung)
    made = f"{record.method}, rungs = {record.assumption}"
    return f"newest settled window, from {_when(record)}: {record.users:,} users ({rungs} by rung), {made}"


def _contradiction(record: EstimateRecord) -> str:
    return (
        f'the rungs contradict rungs = "independent" (p = {record.homogeneity_p:.2g}): '
        "the rung of a device depends on its value, or reports are forged"
    )


def _when(record: EstimateRecord) -> str:
    return datetime.fromtimestamp(record.window_start_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rule(alert: AlertBound | None) -> Text:
    if alert is None:
        return Text("")
    if alert.bound is None:
        return Text("no bound", style="dim")
    end, sign = ("lower", ">") if alert.side == "above" else ("upper", "<")
    if alert.firing:
        return Text(f"FIRING: {end} bound {alert.bound:.4f} {sign} {alert.threshold:g}", style="bold red")
    return Text(f"quiet: {end} bound {alert.bound:.4f}, fires {sign} {alert.threshold:g}", style="dim")


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.4f}"


def _short(number: float) -> str:
    return f"{number:.3g}"
