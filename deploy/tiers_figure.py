"""Draw the picture of tiers in docs/budgets.md from the simulated fleet of `thaw demo --scenario tiers`."""

from __future__ import annotations

from functools import cache

import numpy as np

from deploy.svg import framed, style, text
from estimators.estimation.registry import estimator_of
from estimators.tally import Tally
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey, parse_survey

_SURVEY = """
name = "colour"
question = "Which?"
values = ["a", "b", "c"]
tiers = {public = 0, partners = 1, owner = 2}
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
[estimate]
rungs = "independent"
"""
_DAY_MS = 86_400_000
_DEVICES = 20_000
_DAYS = 13
_STEPS = 3
"""Points of the picture in a day."""
_FIRST_DAY = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 830.0, 76.0, 320.0
_LOW, _HIGH = 0.46, 0.62

_STYLE = style(
    """
.public { fill: #bcd9ee }
.partners { fill: #5fa8d8 }
.owner { fill: #0a5c97 }
.truth { stroke: #c1440e; stroke-width: 2; fill: none }
""",
    """
.public { fill: #1d3b55 }
.partners { fill: #2b74ad }
.owner { fill: #7cc4f5 }
.truth { stroke: #ff9d6b }
""",
)

Bands = dict[str, list[tuple[float, float, float]]]
"""By audience: day, lower and upper end of the band of the first value."""


def survey() -> Survey:
    """Return the survey of the picture."""
    return parse_survey(_SURVEY)


@cache
def found() -> tuple[Bands, float]:
    """Return what each audience is told over time, and the true share."""
    asked = survey()
    plan = Plan(asked, _DEVICES, scenario_named("tiers"), 3, falling_shares(3), 0)
    block, estimator = BlockWindow(plan, 0, 0), estimator_of(asked.mechanism)
    bands: Bands = {tier.name: [] for tier in asked.tiers}
    rungs = asked.mechanism.rungs
    for step in range(_DAYS * _STEPS + 1):
        block.acknowledge(block.take(step * _DAY_MS // _STEPS))
        for tier in asked.tiers:
            acked = block.acked_of_tiers.get(tier, block.acked).astype(np.int64)
            rows = np.flatnonzero(acked >= 0)
            tally = Tally.empty(rungs, 1, asked.mechanism.answer.size)
            cells = tally.counts.shape[2] * acked[rows] + block.answers[acked[rows], rows].astype(np.int64)
            tally.counts[:, 0] += np.bincount(cells, minlength=tally.counts.size).reshape(rungs, -1)
            tally.users[:, 0] = tally.counts[:, 0].sum(axis=1)
            if step >= _FIRST_DAY * _STEPS:
                told = estimator.estimate(tally, method=asked.method, population="fleet", alpha=asked.alpha)
                bands[tier.name].append((step / _STEPS, float(told.lower[0]), float(told.upper[0])))
    numerators, denominators = block.truth()
    return bands, float(numerators[0] / denominators[0])


def tiers_figure() -> str:
    """Return the picture."""
    bands, truth = found()

    def x(day: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (day - _FIRST_DAY) / (_DAYS - _FIRST_DAY)

    def y(share: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (min(max(share, _LOW), _HIGH) - _LOW) / (_HIGH - _LOW)

    made = [
        text(_LEFT, 30, "One window, as three audiences see it", "title", "start"),
        text(_LEFT, 52, "bands of one share, 20,000 devices; a third stops at a lower level", "small", "start"),
    ]
    for share in (0.46, 0.50, 0.54, 0.58, 0.62):
        made.append(f'<path class="grid" d="M{_LEFT:g} {y(share):.1f} H{_RIGHT:g}"/>')
        made.append(text(_LEFT - 8, y(share) + 4, f"{100 * share:.0f} %", "small", "end"))
    for name, band in bands.items():
        up = " ".join(f"{x(day):.1f},{y(upper):.1f}" for day, _, upper in band)
        down = " ".join(f"{x(day):.1f},{y(lower):.1f}" for day, lower, _ in reversed(band))
        made.append(f'<polygon class="{name}" points="{up} {down}"/>')
    made.append(f'<path class="truth" d="M{_LEFT:g} {y(truth):.1f} H{_RIGHT:g}"/>')
    for place, tier in enumerate(survey().tiers):
        top = 120 + 62 * place
        _, lower, upper = bands[tier.name][-1]
        level = survey().mechanism.ladder[tier.rung]
        made.append(f'<rect class="{tier.name}" x="{_RIGHT + 14:g}" y="{top - 12:g}" width="14" height="14"/>')
        made.append(text(_RIGHT + 36, top, f"{tier.name}: epsilon {level:g}", "small", "start"))
        made.append(text(_RIGHT + 36, top + 18, f"band of {100 * (upper - lower):.1f} points", "small", "start"))
    made.append(f'<path class="truth" d="M{_RIGHT + 14:g} 304 h14"/>')
    made.append(text(_RIGHT + 36, 308, "the truth", "small", "start"))
    for day, name in ((7, "window ends"), (8, "epsilon 1 opens"), (10, "epsilon 2 opens")):
        made.append(f'<path class="axis" d="M{x(day):.1f} {_BOTTOM:g} v6"/>')
        anchor = "end" if day == 7 else "start"
        made.append(text(x(day) + (-2 if day == 7 else 2), _BOTTOM + (20 if day != 8 else 36), name, "small", anchor))
    made.append(text(_LEFT, _BOTTOM + 20, f"day {_FIRST_DAY}", "small", "start"))
    made.append(text(_RIGHT, _BOTTOM + 20, f"day {_DAYS}", "small", "end"))
    return framed("The band of one share over time, as three audiences see it", 372, _STYLE, made)
