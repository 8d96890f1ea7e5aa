"""Draw the picture of the market in docs/budgets.md: what several buyers of one level hold together, exactly."""

from __future__ import annotations

import math
from functools import cache

from deploy.svg import framed, style, text
from estimators.channels.chain import Chain
from estimators.channels.downgrade import SymbolDowngrade

LEVEL, RELEASED, BUYERS = 1.0, 3.0, 10
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 690.0, 76.0, 320.0

_STYLE = style(
    """
.anew { stroke: #c1440e; fill: #c1440e }
.once { stroke: #0a5c97; fill: #0a5c97 }
path.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
text.anew, text.once { stroke: none; font-weight: 600 }
.bound { stroke: #965900; stroke-dasharray: 5 5; fill: none }
""",
    """
.anew { stroke: #ff9d6b; fill: #ff9d6b }
.once { stroke: #7cc4f5; fill: #7cc4f5 }
.bound { stroke: #f0b232 }
""",
)


@cache
def together(buyers: int) -> float:
    """Return the loss of a yes or no when each buyer has an answer at LEVEL drawn anew from one answer at RELEASED."""
    chain = Chain.retention((LEVEL, RELEASED), 2)
    kernel = SymbolDowngrade(chain.kernels, 2).kernel(0, 1)
    own, other = (kernel.entry(0, 0) / kernel.denominator, kernel.entry(1, 0) / kernel.denominator)
    truth, lie = (chain.top.entry(x, 0) / chain.top.denominator for x in (0, 1))
    # The worst that can be seen: all of them have the same answer.
    value, rival = (up * own**buyers + down * other**buyers for up, down in ((truth, lie), (lie, truth)))
    return math.log(value / rival)


def market_figure() -> str:
    """Return the picture."""

    def x(buyers: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (buyers - 1) / (BUYERS - 1)

    def y(epsilon: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * epsilon / 3.2

    made = [
        text(_LEFT, 30, "What all buyers of one level hold together", "title", "start"),
        text(_LEFT, 52, f"epsilon {LEVEL:g}, made from answers released at epsilon {RELEASED:g}", "small", "start"),
    ]
    for epsilon in (0, 1, 2, 3):
        made.append(f'<path class="grid" d="M{_LEFT:g} {y(epsilon):.1f} H{_RIGHT:g}"/>')
        made.append(text(_LEFT - 8, y(epsilon) + 4, f"{epsilon}", "small", "end"))
    made.append(f'<path class="bound" d="M{_LEFT:g} {y(RELEASED):.1f} H{_RIGHT:g}"/>')
    anew = [(x(buyers), y(together(buyers))) for buyers in range(1, BUYERS + 1)]
    once = [(x(buyers), y(LEVEL)) for buyers in range(1, BUYERS + 1)]
    for name, points in (("anew", anew), ("once", once)):
        made.append(f'<path class="line {name}" d="M{" L".join(f"{a:.1f} {b:.1f}" for a, b in points)}"/>')
        made += [f'<circle class="{name}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>' for a, b in points]
    made.append(text(_RIGHT + 14, y(together(BUYERS)) + 22, "drawn anew for each", "anew", "start"))
    made.append(text(_RIGHT + 14, y(LEVEL) + 4, "drawn once and kept", "once", "start"))
    made.append(text(_RIGHT + 14, y(RELEASED) - 6, "what was released", "small", "start"))
    for buyers in range(1, BUYERS + 1):
        made.append(text(x(buyers), _BOTTOM + 20, f"{buyers}", "small", "middle"))
    made.append(text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "buyers", "small", "middle"))
    made.append(text(20, 200, "epsilon", "small", "start"))
    return framed(
        "Epsilon of all buyers of one level together, by their number: drawn anew, and drawn once", 380, _STYLE, made
    )
