"""Draw the picture of levels added later in docs/budgets.md: what one window costs, by ledgers of real devices."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from deploy.svg import framed, style, text
from producers.device.agent import Device
from producers.survey.survey import Survey, parse_survey
from producers.wire.transport import Message

_DAY_MS = 86_400_000
_DAYS, _ADDED_DAY = 14, 7
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 700.0, 86.0, 300.0
_HIGHEST = 3.0

_SURVEY = """
name = "{name}"
question = "Which?"
values = ["a", "b", "c"]
{more}
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = {ladder}
opens = {opens}
jitter = "0s"
[window]
size = "1d"
retention = "30d"
[budget]
lifetime = 100
"""

_STYLE = style(
    """
.one { fill: #0072b2; stroke: #0072b2 }
.two { fill: #b85c00; stroke: #b85c00 }
text.one, text.two { stroke: none; font-weight: 600 }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
.added { stroke: #52616f; stroke-dasharray: 4 4; fill: none }
""",
    """
.one { fill: #58b5f0; stroke: #58b5f0 }
.two { fill: #ffa657; stroke: #ffa657 }
.added { stroke: #9fb0c0 }
""",
)


class _Nowhere:
    """A transport whose messages nobody needs."""

    partitions = 1

    def send(self, messages: Sequence[Message]) -> None:
        """Take them."""


def _survey(name: str, levels: dict[float, int], *, continues: str = "") -> Survey:
    """Return a survey with these levels, each open so many days after the window's end."""
    return parse_survey(
        _SURVEY.format(
            name=name,
            more=f'continues = "{continues}"' if continues else "",
            ladder=list(levels),
            opens="[" + ", ".join(f'"{days}d"' for days in levels.values()) + "]",
        )
    )


@cache
def spent() -> tuple[list[float], list[float]]:
    """Return per day what a device has spent that goes on, and one that is asked again by another survey."""
    short = _survey("browser", {0.5: 0, 1.0: 2})
    longer = _survey("browser", {0.5: 0, 1.0: 2, 2.0: _ADDED_DAY - 1}, continues=short.id)
    again = _survey("again", {2.0: 0})
    found: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        for number, days in enumerate(found):
            for day in range(_DAYS):
                added = day >= _ADDED_DAY
                surveys = [longer if added else short] if number == 0 else [short, again]
                ledger = Path(folder) / f"{number}"
                with Device(ledger, surveys, _Nowhere(), value_key=bytes(32), lifetime_epsilon=100.0) as device:
                    if day == 0:
                        device.observe(surveys[0], "a", 0)
                    if number and day == _ADDED_DAY:
                        device.observe(again, "a", day * _DAY_MS)
                    device.tick(day * _DAY_MS)
                    days.append(device.odometer.epsilon)
    return found


def continued_figure() -> str:
    """Return the picture."""

    def x(day: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * day / _DAYS

    def y(epsilon: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * epsilon / _HIGHEST

    made = [
        text(_LEFT - 20, 36, "What one answer has cost its person", "title", "start"),
        text(_LEFT - 20, 58, "levels 0.5 and 1; after a week the survey wants level 2", "small", "start"),
    ]
    for level in (0.5, 1, 2, 3):
        made.append(f'<path class="grid" d="M{_LEFT:g} {y(level):.1f} H{_RIGHT:g}"/>')
        made.append(text(_LEFT - 8, y(level) + 4, f"{level:g}", "small", "end"))
    made.append(f'<path class="added" d="M{x(_ADDED_DAY):.1f} {_TOP - 6:g} V{_BOTTOM:g}"/>')
    # The line that costs more is drawn first: where both are equal the other one is seen.
    for kind, days, name in (("two", spent()[1], "a second survey asks"), ("one", spent()[0], "the chain goes on")):
        path = f"M{x(0):.1f} {y(0):.1f}"
        for day, epsilon in enumerate(days):
            path += f" V{y(epsilon):.1f} H{x(day + 1):.1f}"
        made.append(f'<path class="{kind} line" style="fill:none" d="{path}"/>')
        made.append(text(_RIGHT + 14, y(days[-1]) + 5, f"{name}: {days[-1]:g} in all", kind, "start"))
    made.append(text(_LEFT, _BOTTOM + 20, "day 0", "small", "start"))
    made.append(text(x(_ADDED_DAY), _BOTTOM + 20, "level 2 is added", "small"))
    made.append(text(_RIGHT, _BOTTOM + 20, f"day {_DAYS}", "small", "end"))
    return framed("What one answer has cost: a chain that goes on, and a second survey", 340, _STYLE, made)
