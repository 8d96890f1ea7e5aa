"""Draw the pictures of docs/budgets.md.

The numbers come from the device itself: its budget rules, and a real ledger in a temporary folder.

    python -m deploy.budget_figures
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.continued_figure import continued_figure
from deploy.market_figure import market_figure
from deploy.standing_figure import standing_figure
from deploy.stop_figure import stop_figure
from deploy.svg import framed, style, text
from deploy.tiers_figure import tiers_figure
from deploy.withdrawals_figure import withdrawals_figure
from producers.device.accounts import Account, Budget
from producers.device.agent import Device
from producers.device.budget import UNITS_PER_EPSILON
from producers.survey.survey import Survey, parse_survey
from producers.survey.unlocking import Unlock
from producers.wire.transport import Message

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DAY_MS = 86_400_000
BUDGET, DAYS = 8.0, 24

_SURVEY = """
name = "{name}"
question = "Which?"
values = ["a", "b", "c"]
[mechanism]
name = "grr"
[release]
{release}
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
.bound { stroke: #965900; stroke-dasharray: 5 5; fill: none }
""",
    """
.one { fill: #58b5f0; stroke: #58b5f0 }
.two { fill: #ffa657; stroke: #ffa657 }
.bound { stroke: #f0b232 }
""",
)


class _Nowhere:
    """A transport whose messages nobody needs."""

    partitions = 1

    def send(self, messages: Sequence[Message]) -> None:
        """Take them."""


def _survey(name: str, release: str = 'kind = "listed"\nladder = [0.5]') -> Survey:
    return parse_survey(_SURVEY.format(name=name, release=release))


def spending(fair: bool, unlock: Unlock | None = None) -> Iterator[tuple[float, float]]:
    """Yield per day what an hourly and a daily survey have spent, 0.5 an answer, the daily one from day 4 on."""
    names = ("hourly", "daily") if fair else ("together",)
    budget = Budget(map(_survey, names), BUDGET, unlock, {})
    spent = [0.0, 0.0]
    for day in range(DAYS):
        for hour in range(24):
            for survey in (0, 1):
                if survey == 1 and (hour != 12 or day < 4):
                    continue
                name = names[survey % len(names)]
                units = [round(own * UNITS_PER_EPSILON) for own in spent]
                own = units if fair else [sum(units)]
                accounts = {known: Account(one, 0) for known, one in zip(names, own, strict=True)}
                asked = next(known for known in budget.surveys if known.name == name)
                moment_ms = day * DAY_MS + hour * DAY_MS // 24
                if budget.allowance(asked, sum(units), accounts, moment_ms).covers(UNITS_PER_EPSILON // 2):
                    spent[survey] += 0.5
        yield spent[0], spent[1]


def _panel(left: float, title: str, note: str, days: list[tuple[float, float]]) -> list[str]:
    width, top, bottom = 270.0, 92.0, 300.0

    def x(day: int) -> float:
        return left + width * day / DAYS

    def y(epsilon: float) -> float:
        return bottom - (bottom - top) * epsilon / BUDGET

    made = [text(left, 36, title, "title", "start"), text(left, 58, note, "small", "start")]
    for line in (0, 4, 8):
        made.append(f'<path class="grid" d="M{left:g} {y(line):.1f} H{left + width:g}"/>')
        made.append(text(left - 8, y(line) + 4, f"{line}", "small", "end"))
    for number, kind in enumerate(("one", "two")):
        path = f"M{x(0):.1f} {y(0):.1f}"
        for day, spent in enumerate(days):
            path += f" V{y(spent[number]):.1f} H{x(day + 1):.1f}"
        made.append(f'<path class="{kind} line" style="fill:none" d="{path}"/>')
        # Where both end at one height, the second name stands below its curve.
        height = y(0 if number and abs(days[-1][0] - days[-1][1]) < 1 else days[-1][number]) - 8
        name = ("asks every hour", "asks once a day")[number]
        made.append(text(left + width, height, f"{name}: {days[-1][number]:g}", kind, "end"))
    made.append(text(left, bottom + 20, "day 0", "small", "start"))
    made.append(text(left + width, bottom + 20, f"day {DAYS}", "small", "end"))
    return made


def shares_figure() -> str:
    """Return the picture of two surveys that share a budget of 8."""
    body = [
        *_panel(50, "First come, first served", "the second survey gets nothing", list(spending(fair=False))),
        *_panel(378, "Fair shares", "half each, no matter who asks more", list(spending(fair=True))),
        *_panel(706, "Unlocking", "0.5 per day, shared fairly", list(spending(True, Unlock(0.5, DAY_MS)))),
    ]
    return framed(
        "Two surveys share a budget of 8: first come, fair shares, and unlocking over time", 340, _STYLE, body
    )


def demands() -> list[tuple[str, float]]:
    """Return what a device has spent in all after each wish of its person, by its own odometer."""
    asked = _survey("demand", 'kind = "on_demand"\nladder = [0.5, 1.0, 2.0]')
    found = []
    with tempfile.TemporaryDirectory() as folder, Device(Path(folder) / "ledger", [asked], _Nowhere()) as device:
        for day, wish in enumerate(("answer", "one more", "", "one more", "off", "one more", "")):
            now_ms = day * DAY_MS
            if wish == "answer":
                device.observe(asked, "a", now_ms)
            elif wish == "one more":
                device.release_next(asked, now_ms=now_ms)
            elif wish == "off":
                device.consent(False)
            device.tick(now_ms)
            found.append((wish, device.odometer.epsilon))
    return found


def demand_figure() -> str:
    """Return the picture of a window whose levels are released on demand, until the person switches off."""
    steps = demands()
    left, right, top, bottom = 60.0, 960.0, 86.0, 250.0
    width = (right - left) / len(steps)
    made = [
        text(left - 20, 36, "What one window has cost, as its person decides", "title", "start"),
        text(left - 20, 58, "each level replaces the one before; the sum is the highest level", "small", "start"),
    ]
    for line in (0.5, 1.0, 2.0):
        height = bottom - (bottom - top) * line / 2
        made.append(f'<path class="grid" d="M{left:g} {height:.1f} H{right:g}"/>')
        made.append(text(left - 8, height + 4, f"{line:g}", "small", "end"))
    path = f"M{left:g} {bottom:g}"
    off = False
    for day, (wish, spent) in enumerate(steps):
        x, y = left + day * width, bottom - (bottom - top) * spent / 2
        path += f" V{y:.1f} H{x + width:.1f}"
        off = off or wish == "off"
        label = f"{wish}: nothing" if off and wish == "one more" else wish
        made.append(text(x + 4, bottom + 22, label, "two" if off else "one", "start"))
        made.append(text(x + 4, bottom + 40, f"day {day}", "small", "start"))
    made.append(f'<path class="one line" style="fill:none" d="{path}"/>')
    return framed("Levels of one window released on demand, until consent is withdrawn", 310, _STYLE, made)


FIGURES = {
    "budget-shares.svg": shares_figure,
    "budget-demand.svg": demand_figure,
    "withdrawals.svg": withdrawals_figure,
    "standing.svg": standing_figure,
    "bulletins.svg": stop_figure,
    "tiers.svg": tiers_figure,
    "market.svg": market_figure,
    "continued.svg": continued_figure,
}

if __name__ == "__main__":
    for name, figure in FIGURES.items():
        (IMAGES / name).write_text(figure(), encoding="utf-8")
