"""Draw the picture of withdrawals in docs/budgets.md from the simulated fleet of `thaw demo --scenario withdrawals`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from deploy.svg import framed, style, text
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import parse_survey

_SURVEY = """
name = "colour"
question = "Which?"
values = ["a", "b", "c"]
withdrawable = true
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0]
opens = ["0s", "1d", "3d"]
jitter = "2h"
[window]
size = "7d"
retention = "14d"
[budget]
lifetime = 100
"""
_DAY_MS = 86_400_000
_DEVICES = 20_000
_DAYS = 15
_STEPS = 6
"""Points of the picture in a day."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 830.0, 60.0, 330.0

_STYLE = style(
    """
.rung0 { fill: #bcd9ee }
.rung1 { fill: #5fa8d8 }
.rung2 { fill: #0a5c97 }
.gone { fill: #d9d4cc }
""",
    """
.rung0 { fill: #1d3b55 }
.rung1 { fill: #2b74ad }
.rung2 { fill: #7cc4f5 }
.gone { fill: #4a4640 }
""",
)


def moments() -> Iterator[tuple[float, NDArray[np.int64]]]:
    """Yield, several times a day, the users of every rung and those that have withdrawn."""
    survey = parse_survey(_SURVEY)
    rungs = survey.mechanism.rungs
    plan = Plan(survey, _DEVICES, scenario_named("withdrawals"), 1, falling_shares(3), 0)
    block = BlockWindow(plan, 0, 0)
    for step in range(_DAYS * _STEPS + 1):
        block.acknowledge(block.take(step * _DAY_MS // _STEPS))
        yield step / _STEPS, np.bincount(block.acked[block.acked >= 0], minlength=rungs + 1)


def withdrawals_figure() -> str:
    """Return the picture."""
    found = list(moments())
    days = [day for day, _ in found]
    # From the bottom: the sharpest answers, then the others, then what was taken back.
    order, names = [2, 1, 0, 3], ["epsilon 2", "epsilon 1", "epsilon 0.5", "taken back"]
    kinds = ["rung2", "rung1", "rung0", "gone"]
    users = np.array([counts[order] for _, counts in found])
    tops = users.cumsum(axis=1)

    def x(day: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * day / _DAYS

    def y(devices: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * devices / _DEVICES

    made = [
        text(_LEFT, 26, "Devices of one window, by their sharpest answer", "title", "start"),
        text(_LEFT, 46, "a fifth takes its answers back, at any time", "small", "start"),
    ]
    for devices in (0, 5_000, 10_000, 15_000, 20_000):
        made.append(f'<path class="grid" d="M{_LEFT:g} {y(devices):.1f} H{_RIGHT:g}"/>')
        made.append(text(_LEFT - 8, y(devices) + 4, f"{devices:,}", "small", "end"))
    for band, kind in enumerate(kinds):
        below = tops[:, band - 1] if band else np.zeros(len(days))
        up = " ".join(f"{x(day):.1f},{y(top):.1f}" for day, top in zip(days, tops[:, band], strict=True))
        down = " ".join(f"{x(day):.1f},{y(low):.1f}" for day, low in zip(days[::-1], below[::-1], strict=True))
        made.append(f'<polygon class="{kind}" points="{up} {down}"/>')
        middle = (tops[-1, band] + (below[-1] if band else 0)) / 2
        if users[-1, band]:
            made.append(text(_RIGHT + 8, y(middle) + 4, f"{names[band]}: {users[-1, band]:,}", "small", "start"))
    for day, name in ((7, "window ends"), (8, "epsilon 1 opens"), (10, "epsilon 2 opens")):
        made.append(f'<path class="axis" d="M{x(day):.1f} {_BOTTOM:g} v6"/>')
        anchor = "end" if day == 7 else "start"
        made.append(text(x(day) + (-2 if day == 7 else 2), _BOTTOM + (20 if day != 8 else 36), name, "small", anchor))
    made.append(text(_LEFT, _BOTTOM + 20, "day 0", "small", "start"))
    made.append(text(_RIGHT, _BOTTOM + 20, f"day {_DAYS}", "small", "end"))
    return framed("Answers of one window over time, and those that were taken back", 384, _STYLE, made)
