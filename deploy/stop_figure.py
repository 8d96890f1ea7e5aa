"""Draw the picture of bulletins in docs/budgets.md: levels open until the band is narrow enough.

Populations of several sizes answer with shares that fall; the bands and the rule are those of `thaw bulletin`.
"""

from __future__ import annotations

import numpy as np

from deploy.svg import framed, style, text
from estimators.tally import Tally
from producers.survey.survey import Survey, parse_survey
from streams.windows.stopping import opening_of

_SURVEY = """
name = "colour"
question = "Which?"
values = ["a", "b", "c"]
[mechanism]
name = "grr"
[release]
kind = "while_wide"
ladder = [0.5, 1.0, 1.5, 2.0]
opens = ["0s", "1d", "2d", "3d"]
width = 0.06
key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
[window]
size = "7d"
retention = "30d"
[budget]
lifetime = 100
"""
SIZES = (5_000, 30_000, 150_000, 1_000_000)
_DAY_MS = 86_400_000
_SHARES = np.array([0.6, 0.3, 0.1])

_STYLE = style(
    """
.open { fill: #0072b2 }
.closed { fill: #e3e9ef }
.bound { stroke: #965900; stroke-dasharray: 5 5; fill: none }
text.bound { stroke: none; fill: #965900 }
""",
    """
.open { fill: #58b5f0 }
.closed { fill: #223040 }
.bound { stroke: #f0b232 }
text.bound { fill: #f0b232 }
""",
)


def survey() -> Survey:
    """Return the survey of the picture."""
    return parse_survey(_SURVEY)


def widths(users: int) -> list[float]:
    """Return the band of each level that opens, as wide as the rule sees it; the last one is narrow, or of the top."""
    asked = survey()
    mechanism, found, rung = asked.mechanism, [], 0
    window_ms, late_ms = 0, 30 * _DAY_MS
    while True:
        level = mechanism.epsilons[rung]
        lie = 1 / (np.exp(level) + mechanism.answer.size - 1)
        said = lie + _SHARES * (1 - mechanism.answer.size * lie)
        tally = Tally.empty(mechanism.rungs, 1, mechanism.answer.size)
        tally.counts[rung, 0] = np.round(users * said)
        tally.users[rung, 0] = tally.counts[rung, 0].sum()
        opened = opening_of(asked, window_ms, tally, rung, late_ms)
        found.append(opened.width)
        if opened.rung == rung:
            return found
        rung = opened.rung


def stop_figure() -> str:
    """Return the picture."""
    asked, top, bottom, left, across = survey(), 92.0, 280.0, 70.0, 225.0
    assert asked.stop is not None
    highest = 0.27

    def y(width: float) -> float:
        return bottom - (bottom - top) * min(width, highest) / highest

    made = [
        text(30, 36, "Levels open while the band is wider than 6 points", "title", "start"),
        text(
            30,
            58,
            "widest always-valid band of a window after each level; a level that stays closed costs nobody anything",
            "small",
            "start",
        ),
    ]
    for line in (0.0, 0.06, 0.12, 0.18, 0.24):
        made.append(text(left - 10, y(line) + 4, f"{100 * line:.0f}", "small", "end"))
        if line != asked.stop.width:
            made.append(f'<path class="grid" d="M{left:g} {y(line):.1f} H{left + 4 * across:g}"/>')
    made.append(f'<path class="bound" d="M{left:g} {y(asked.stop.width):.1f} H{left + 4 * across:g}"/>')
    for place, users in enumerate(SIZES):
        begin, found = left + place * across, widths(users)
        for rung, level in enumerate(asked.mechanism.ladder):
            x = begin + 14 + rung * 46
            if rung < len(found):
                height = bottom - y(found[rung])
                made.append(f'<rect class="open" x="{x:g}" y="{y(found[rung]):.1f}" width="36" height="{height:.1f}"/>')
                made.append(text(x + 18, y(found[rung]) - 6, f"{100 * found[rung]:.1f}", "small"))
            else:
                made.append(f'<rect class="closed" x="{x:g}" y="{bottom - 6:g}" width="36" height="6"/>')
            made.append(text(x + 18, bottom + 18, f"ε {level:g}", "small"))
        cost = asked.mechanism.ladder[len(found) - 1]
        made.append(text(begin + 102, bottom + 44, f"{users:,} people", "title"))
        made.append(text(begin + 102, bottom + 64, f"each pays {cost:g}", "small"))
    return framed("Bands of populations of four sizes after each level that opens", 362, _STYLE, made)
