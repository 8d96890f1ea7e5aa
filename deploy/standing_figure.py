"""Draw the picture of standing values in docs/budgets.md: a hundred windows of one person, answered in both ways.

The person is one of the simulated fleet of `thaw demo --scenario standing`, and so are the numbers beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from deploy.svg import framed, style, text
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey, parse_survey
from streams.local.standing_demo import WINDOWS, Way, compared

_SURVEY = """
name = "colour"
question = "Which?"
values = ["a", "b", "c"]
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [1.5]
[window]
size = "1d"
retention = "3d"
standing = true
[budget]
lifetime = 100
"""
_PERSON, _SEED = 5, 11
_LEFT, _CELL, _HIGH = 130.0, 5.0, 34.0

_STYLE = style(
    """
.value0 { fill: #0072b2 }
.value1 { fill: #e69f00 }
.value2 { fill: #8fa3b3 }
""",
    """
.value0 { fill: #58b5f0 }
.value1 { fill: #f0b232 }
.value2 { fill: #5a6b7a }
""",
)


def survey() -> Survey:
    """Return the survey of the picture."""
    return parse_survey(_SURVEY)


def lives() -> tuple[list[int], list[int], list[int]]:
    """Return value, fresh answer and standing answer of one person in every window, as places in the list of values."""
    asked = survey()
    plan = Plan(asked, 20, scenario_named("standing"), _SEED, falling_shares(3), 0)
    randomizer, labels = randomizer_of(asked.mechanism), asked.mechanism.labels
    values, fresh, standing = [], [], []
    for number in range(WINDOWS):
        block = BlockWindow(plan, number * asked.windows.step_ms, 0)
        bits = SeededBits(_SEED, "fresh", number)
        drawn = randomizer.draw(randomizer.encode(list(block.values), bits), bits)
        values.append(labels.index(block.values[_PERSON]))
        fresh.append(int(drawn.answers[-1, _PERSON]))
        standing.append(int(block.answers[-1, _PERSON]))
    return values, fresh, standing


@cache
def ways() -> tuple[Way, ...]:
    """Return the comparison of both ways."""
    return tuple(compared(survey(), _SEED) or ())


def _strip(top: float, name: str, cells: Sequence[int]) -> list[str]:
    made = [text(_LEFT - 12, top + _HIGH / 2 + 5, name, "", "end")]
    runs = np.flatnonzero(np.diff([-1, *cells, -1]))
    for begin, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        x, width = _LEFT + begin * _CELL, (end - begin) * _CELL
        made.append(
            f'<rect class="value{cells[begin]}" x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="{_HIGH:g}"/>'
        )
    return made


def standing_figure() -> str:
    """Return the picture."""
    right = _LEFT + WINDOWS * _CELL + 30
    made = [
        text(30, 36, "A hundred windows of one person", "title", "start"),
        text(30, 58, "a colour is a value, or an answer at epsilon 1.5", "small", "start"),
    ]
    for place, (name, cells) in enumerate(zip(("the value", "fresh", "standing"), lives(), strict=True)):
        made += _strip(84 + place * 62, name, cells)
    for place, way in enumerate(ways()):
        top = 84 + (place + 1) * 62
        made.append(text(right, top + 8, f"epsilon {way.epsilon:.0f} a person", "title", "start"))
        told = f"a follower guesses {100 * way.guessed:.0f} % of the values"
        made.append(text(right, top + 25, told, "small", "start"))
        error = f"error of a window ± {100 * way.window_error:.1f}, of the mean ± {100 * way.mean_error:.1f} points"
        made.append(text(right, top + 41, error, "small", "start"))
    made.append(text(_LEFT, 84 + 3 * 62 - 10, "window 1", "small", "start"))
    made.append(text(_LEFT + WINDOWS * _CELL, 84 + 3 * 62 - 10, f"window {WINDOWS}", "small", "end"))
    return framed("A hundred windows of one person, with fresh and with standing answers", 280, _STYLE, made)
