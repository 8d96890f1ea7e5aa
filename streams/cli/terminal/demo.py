"""The demo on a terminal: estimate, band and truth of the newest settled window, and how bands narrow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from producers.clock import system_clock
from producers.survey.survey import Survey
from streams.cli.terminal.numbers import Scale, axis, scales_of
from streams.local.demo import Demo
from streams.windows.record import EstimateRecord, decode_estimate
from streams.windows.settled import WindowState, counted_until_ms, settles_ms, unsettled_windows, window_state

BAR_CELLS = 44
VALUES_SHOWN = 8
WINDOWS_SHOWN = 4
"""Settled windows, beside those that are not settled."""
ROWS_SHOWN = 12


@dataclass(frozen=True)
class ValueRow:
    """One value of a window as it is shown; truth is known only because the fleet is simulated."""

    label: str
    estimate: float | None
    lower: float | None
    upper: float | None
    truth: float | None


@dataclass(frozen=True)
class WindowView:
    """One window of a survey, open or closed."""

    title: str
    users_per_rung: Sequence[int]
    rows: Mapping[Scale, Sequence[ValueRow]]
    """By scale: shares and means are not compared with each other."""
    settled: bool

    @property
    def mean_band(self) -> tuple[Scale, float] | None:
        """Mean width of the bands of the first scale that has some."""
        for scale, rows in self.rows.items():
            widths = [row.upper - row.lower for row in rows if row.upper is not None and row.lower is not None]
            if widths:
                return scale, sum(widths) / len(widths)
        return None


@dataclass(frozen=True)
class SurveyView:
    """A survey and its newest windows, newest first."""

    title: str
    question: str
    levels: Sequence[float]
    windows: Sequence[WindowView]
    settles_seconds: float | None
    """Time until the oldest window that is shown settles; None if that time is over."""


def survey_view(demo: Demo, survey: Survey) -> SurveyView:
    """Read the newest windows of a survey, with the truth of the simulated devices."""
    now_ms = system_clock()
    starts = demo.store.estimates.window_starts(survey.id)[-WINDOWS_SHOWN - unsettled_windows(survey) :]
    payloads = [demo.store.estimates.read(survey.id, start_ms) for start_ms in reversed(starts)]
    records = [decode_estimate(payload) for payload in payloads if payload is not None]
    newest_ms = max((record.computed_ms for record in records), default=None)
    counted_ms = counted_until_ms(
        [one.survey for one in demo.surveys],
        demo.store.heartbeats.read(),
        demo.store.queue.entries(),
        newest_ms,
        now_ms,
    )
    windows = []
    for record in records:
        truth = demo.truths.read(survey.id, record.window_start_ms)
        shares = truth.shares if truth is not None else [None] * len(record.values)
        state = window_state(survey, record, now_ms, counted_ms)
        windows.append(window_view(survey, record, shares, state, now_ms))
    left = [settles_ms(survey, record.window_start_ms) - now_ms for record in records]
    soonest = min((left_ms / 1_000 for left_ms in left if left_ms > 0), default=None)
    return SurveyView(survey.id, survey.question, survey.mechanism.ladder, windows, soonest)


def window_view(
    survey: Survey, record: EstimateRecord, truth: Sequence[float | None], state: WindowState, now_ms: int
) -> WindowView:
    """Return one window as it is shown, its state in words."""
    title = {
        "open": f"open for {(record.window_end_ms - now_ms) / 1_000:.1f} s",
        "releasing": f"settles in {(settles_ms(survey, record.window_start_ms) - now_ms) / 1_000:.1f} s",
        "waiting": "not counted yet",
        "settled": f"settled, closed {(now_ms - record.window_end_ms) / 1_000:.0f} s ago",
    }[state]
    shown = {
        row.value: ValueRow(row.value, row.estimate, row.lower, row.upper, true)
        for row, true in zip(record.values, truth, strict=True)
    }
    scales = scales_of(survey, list(shown), percent_digits=1)
    rows = {scale: [shown[label] for label in labels] for scale, labels in scales.items()}
    devices = [round(users / survey.mechanism.copies) for users in record.users_per_rung]
    return WindowView(title, devices, rows, state == "settled")


def render(surveys: Sequence[SurveyView], status: str) -> RenderableType:
    """Lay out the whole screen."""
    parts: list[RenderableType] = []
    for survey in surveys:
        parts.append(Text.assemble((survey.title, "bold"), "  ", (survey.question, "italic")))
        if not survey.windows:
            parts.append(Text("  waiting for the first reports ...", style="dim"))
            continue
        settled = next((window for window in survey.windows if window.settled), None)
        if settled is not None:
            parts += [_values_table(settled.title, scale, rows) for scale, rows in settled.rows.items()]
        else:
            when = "" if survey.settles_seconds is None else f": the first settles in {survey.settles_seconds:.0f} s"
            parts.append(Text(f"  no settled window yet{when}", style="yellow"))
        parts.append(_windows_table(survey))
    parts.append(Text(status, style="dim"))
    return Group(*parts)


def _values_table(title: str, scale: Scale, shown: Sequence[ValueRow]) -> Table:
    rows = sorted(shown, key=lambda row: row.estimate if row.estimate is not None else -math.inf, reverse=True)
    rows = rows[:VALUES_SHOWN]
    low, high = scale.ends(value for row in rows for value in (row.lower, row.upper, row.truth))
    table = Table(box=None, padding=(0, 1), title=title, title_justify="left", title_style="dim")
    table.add_column("value")
    table.add_column("estimate", justify="right")
    table.add_column("95 % band", justify="right")
    table.add_column(axis(scale, low, high, BAR_CELLS), no_wrap=True)
    table.add_column("truth", justify="right")
    for row in rows:
        band = scale.band(row.lower, row.upper)
        table.add_row(row.label, scale.text(row.estimate), band, bar(row, low, high), scale.text(row.truth))
    return table


def _windows_table(survey: SurveyView) -> Table:
    """Show how bands narrow: one line per window, newest first, with users per rung."""
    table = Table(box=None, padding=(0, 1))
    table.add_column("window", style="dim")
    for level in survey.levels:
        table.add_column(f"ε {level:.3g}", justify="right", style="dim")
    table.add_column("mean band", justify="right")
    table.add_column("")
    widest = max((window.mean_band[1] for window in survey.windows if window.mean_band is not None), default=1.0)
    for window in survey.windows[:ROWS_SHOWN]:
        counts = [f"{count:,}" for count in window.users_per_rung]
        if window.mean_band is None:
            table.add_row(window.title, *counts, "", "")
            continue
        scale, band = window.mean_band
        shown = "█" * max(1, round(24 * band / widest))
        table.add_row(window.title, *counts, f"±{scale.short(band / 2)}", Text(shown, style="cyan"))
    return table


def bar(row: ValueRow, low: float, high: float) -> Text:
    """Draw band, estimate and truth on an axis from `low` to `high`.

    >>> bar(ValueRow("a", 0.5, 0.25, 0.75, 0.6), 0.0, 1.0).plain.count("━") > 10
    True
    """
    cells = [" "] * BAR_CELLS
    if row.estimate is None or row.lower is None or row.upper is None:
        return Text("".join(cells))
    for i in range(_cell(row.lower, low, high), _cell(row.upper, low, high) + 1):
        cells[i] = "━"
    cells[_cell(row.estimate, low, high)] = "●"
    text = Text("".join(cells), style="cyan")
    if row.truth is not None:
        at = _cell(row.truth, low, high)
        inside = row.lower <= row.truth <= row.upper
        text.plain = text.plain[:at] + ("◆" if text.plain[at] == "●" else "│") + text.plain[at + 1 :]
        text.stylize("bold green" if inside else "bold red", at, at + 1)
    return text


def _cell(value: float, low: float, high: float) -> int:
    return min(max(round((value - low) / (high - low) * (BAR_CELLS - 1)), 0), BAR_CELLS - 1)
