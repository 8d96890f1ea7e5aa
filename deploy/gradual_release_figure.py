"""Draw `docs/images/gradual-release.svg`: three looks at one population, the budget split or released gradually.

Split: every look asks for a new, independent answer at a third of the budget, and the answers of a device are combined
by the unbiased linear estimate with the smallest variance. Gradual: every look replaces the answer by a sharper one of
the same chain, and only the last one counts. All numbers are closed forms of `estimators`; nothing is drawn at random.

    python -m deploy.gradual_release_figure
"""

from __future__ import annotations

import math
from pathlib import Path

from deploy.svg import style, text
from estimators.intervals.one_look import two_sided_z
from estimators.papers import splitting

TARGET = Path(__file__).parents[1] / "docs" / "images" / "gradual-release.svg"

BUDGET = 2.0
LOOKS = 3
VALUES = 6
DEVICES = 10_000
SIZES = (2, 4, 6, 8, 12, 16)


def half_width(one_device: float) -> float:
    """Return the half-width of the 95 % band in percentage points."""
    return 100.0 * two_sided_z(0.05) * math.sqrt(one_device / DEVICES)


def widths(size: int = VALUES) -> list[tuple[float, float]]:
    """Return per look the half-widths of the split and of the gradual release."""
    return [
        (
            half_width(splitting.split_variance(BUDGET, LOOKS, look, size)),
            half_width(splitting.gradual_variance(BUDGET, LOOKS, look, size)),
        )
        for look in range(1, LOOKS + 1)
    ]


def final_ratio(size: int) -> float:
    """Return how many times as large the variance of the split is after the last look."""
    return splitting.final_ratio(BUDGET, LOOKS, size)


_STYLE = style(
    """
.truth { stroke: #1c2733; stroke-dasharray: 2 4; stroke-width: 1.5 }
.split { fill: #b85c00; stroke: #b85c00 }
.gradual { fill: #0072b2; stroke: #0072b2 }
text.split, text.gradual { stroke: none; font-weight: 600 }
.band { fill-opacity: .22; stroke-width: 1.5 }
.bar { stroke: none }
""",
    """
.truth { stroke: #e6edf3 }
.split { fill: #ffa657; stroke: #ffa657 }
.gradual { fill: #58b5f0; stroke: #58b5f0 }
""",
)


def _bands() -> list[str]:
    """Left half: the bands of both ways at each look, around the same true share."""
    left, right, top, bottom = 70.0, 590.0, 96.0, 330.0
    share, high = 100.0 / VALUES, 24.0
    lowest = 2 * share - high

    def y(points: float) -> float:
        return bottom - (points - lowest) / (high - lowest) * (bottom - top)

    made = [text(left - 44, 36, "Width of the 95 % band after each look", "title", "start")]
    made.append(text(left - 44, 58, f"{DEVICES:,} devices, {VALUES} equally common values", "small", "start"))
    for line in (12, 16, 20, 24):
        made.append(f'<path class="grid" d="M{left:g} {y(line):.1f} H{right:g}"/>')
        made.append(text(left - 10, y(line) + 4, f"{line} %", "small", "end"))
    made.append(f'<path class="truth" d="M{left:g} {y(share):.1f} H{right:g}"/>')
    step = (right - left) / LOOKS
    for look, pair in enumerate(widths(), start=1):
        middle = left + step * (look - 0.5)
        for kind, width, x in (("split", pair[0], middle - 62), ("gradual", pair[1], middle + 10)):
            made.append(
                f'<rect class="{kind} band" x="{x:g}" y="{y(share + width):.1f}" width="52" '
                f'height="{y(share - width) - y(share + width):.1f}" rx="3"/>'
            )
            made.append(text(x + 26, y(share - width) + 17, f"±{width:.1f}", kind))
        made.append(text(middle, 366, f"look {look}"))
        made.append(text(middle - 36, 385, f"{look} × ε {BUDGET / LOOKS:.2f}", "small"))
        made.append(text(middle + 40, 385, f"ε {BUDGET * look / LOOKS:.2f}", "small"))
    made.append(text(left + step * 1.62, 112, "budget split", "split", "start"))
    made.append(text(left + step * 1.62, 132, "released gradually", "gradual", "start"))
    return made


def _ratios() -> list[str]:
    """Right half: the final variance of the split in units of the gradual release, by number of values."""
    left, right, top, bottom, high = 668.0, 960.0, 96.0, 345.0, 10.0
    made = [text(left - 28, 36, "Final variance, split ÷ gradual", "title", "start")]
    made.append(text(left - 28, 58, "after look 3, total ε 2 both ways", "small", "start"))
    for line in (1, 5, 10):
        height = bottom - line / high * (bottom - top)
        made.append(f'<path class="grid" d="M{left:g} {height:.1f} H{right:g}"/>')
        made.append(text(left - 8, height + 4, f"{line}", "small", "end"))
    step = (right - left) / len(SIZES)
    for index, size in enumerate(SIZES):
        ratio = final_ratio(size)
        x, height = left + step * (index + 0.5), ratio / high * (bottom - top)
        made.append(
            f'<rect class="split bar" x="{x - 15:g}" y="{bottom - height:.1f}" width="30" '
            f'height="{height:.1f}" rx="2"/>'
        )
        made.append(text(x, bottom - height - 7, f"{ratio:.1f}"))
        made.append(text(x, 366, f"{size}"))
    made.append(text((left + right) / 2, 385, "number of values", "small"))
    return made


def figure() -> str:
    """Return the picture as SVG."""
    label = "Three looks at one population with total epsilon 2: splitting the budget against releasing it gradually"
    body = "\n".join([*_bands(), *_ratios()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 410" role="img" aria-label="{label}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="card" x="1" y="1" width="998" height="408" rx="12"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(figure(), encoding="utf-8")
