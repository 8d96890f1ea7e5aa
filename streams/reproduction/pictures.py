"""Draw the charts of an experiment with matplotlib as one SVG file that follows the reader's light or dark theme."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from estimators.reproduction.charts import Band, Bars, Chart, Curve

# Colours for white paper, after those of the page (dashboard/palette.js), and partners of the same hue for dark paper.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b0578d", "#b97d00", "#3f9fd0", "#4b2fa8", "#5b6b7a")
DARK = ("#56b4e9", "#f08c4a", "#21c08f", "#e3a0c8", "#f0c242", "#8fd0f5", "#9c8cff", "#a9b7c4")
INK, QUIET, GRID, CARD = "#1c2733", "#52616f", "#e3e9ef", "#ffffff"
DARK_INK, DARK_QUIET, DARK_GRID, DARK_CARD = "#e6edf3", "#a9b7c4", "#2b3743", "#0f151b"

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "thaw",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": CARD,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": CARD,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}
"""Settings of matplotlib."""


_DASHES = ((2, 3), (6, 2, 1, 2))
"""Of the first and the second horizontal line."""


_LONG = 1e3
"""From here on a number on an axis has separators."""


_ASIDE = 0.2
"""Marks of one whole number stand so far apart at most."""


def draw(charts: Sequence[Chart]) -> str:
    """Return the charts, two in a row, as SVG text; the same charts give the same text."""
    with mpl.rc_context(STYLE):
        columns = min(len(charts), 2)
        rows = -(-len(charts) // columns)
        figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
        for number, chart in enumerate(charts, 1):
            _panel(figure.add_subplot(rows, columns, number), chart)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return themed(text.getvalue())


def _panel(axes: Axes, chart: Chart) -> None:
    colours, levels = count(), count()
    axes.set_title(chart.title)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    if chart.x_log:
        axes.set_xscale("log")
    if chart.y_log:
        axes.set_yscale("log")
    for mark in chart.marks:
        if isinstance(mark, Curve):
            _curve(axes, mark, LIGHT[(next(colours) if mark.colour is None else mark.colour) % len(LIGHT)])
        elif isinstance(mark, Band):
            colour = LIGHT[mark.colour]
            axes.fill_between(
                np.asarray(mark.x),
                np.asarray(mark.low),
                np.asarray(mark.high),
                color=colour,
                alpha=0.18,
                lw=0,
                label=mark.label,
            )
        elif isinstance(mark, Bars):
            _bars(axes, mark)
        else:
            axes.axhline(mark.y, color=QUIET, lw=1.2, ls=(0, _DASHES[next(levels) % len(_DASHES)]), label=mark.label)
    places = [np.asarray(mark.x, dtype=np.float64) for mark in chart.marks if isinstance(mark, Curve)]
    if places and not chart.x_log and all(np.all(np.abs(x - np.round(x)) < _ASIDE) for x in places):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.x_log:
        _plain_ticks(axes.xaxis, *axes.get_xlim())
    if chart.y_log:
        _plain_ticks(axes.yaxis, *axes.get_ylim())
    _legend(axes)


def _curve(axes: Axes, curve: Curve, colour: str) -> None:
    x, y, label = np.asarray(curve.x), np.asarray(curve.y), curve.label or "_nolegend_"
    if curve.error is not None:
        axes.errorbar(x, y, yerr=np.asarray(curve.error), color=colour, fmt="o", lw=1.2, capsize=2.5, label=label)
    elif curve.style == "points":
        axes.plot(x, y, "o", color=colour, label=label)
    elif curve.style == "published":
        axes.plot(x, y, "s", markerfacecolor="none", markeredgecolor=INK, markersize=6.5, ls="none", label=label)
    else:
        axes.plot(x, y, "--" if curve.style == "dashed" else "-", color=colour, label=label)


def _bars(axes: Axes, bars: Bars) -> None:
    places, width = np.arange(len(bars.categories)), 0.8 / len(bars.heights)
    for number, (label, heights) in enumerate(bars.heights.items()):
        shift = (number - (len(bars.heights) - 1) / 2) * width
        axes.bar(
            places + shift,
            heights,
            width * 0.92,
            color=LIGHT[number],
            label=label,
            yerr=bars.errors.get(label),
            ecolor=QUIET,
        )
    axes.set_xticks(places, list(bars.categories))
    axes.grid(visible=False, axis="x")


def _legend(axes: Axes) -> None:
    """Put the legend below: inside it would lie on curves."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)


def _plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis with plain numbers, and between the decades where there are few."""
    few = math.log10(high / low) < 2.3
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= _LONG else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def themed(svg: str) -> str:
    """Return a picture with a style sheet that exchanges every colour for its dark partner on dark pages."""
    pairs = dict(
        zip((*LIGHT, INK, QUIET, GRID, CARD), (*DARK, DARK_INK, DARK_QUIET, DARK_GRID, DARK_CARD), strict=True)
    )
    rules = "\n".join(
        f'[style*="{part}: {light}"] {{ {part}: {dark} !important }}'
        for light, dark in pairs.items()
        for part in ("fill", "stroke")
    )
    # Text without a colour of its own is black.
    sheet = f"<style>\n@media (prefers-color-scheme: dark) {{\ntext {{ fill: {DARK_INK} }}\n{rules}\n}}\n</style>\n"
    head, mark, rest = svg.partition(" <defs>")
    return head + sheet + mark + rest
