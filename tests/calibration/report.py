"""The findings as a table and a picture for docs/calibration.md."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median

from deploy.svg import style, text
from tests.calibration.alarms import together
from tests.calibration.homogeneity import SIZES
from tests.calibration.judge import LEAST, MOST, NO_TRIALS, Hits, Stage, least_reported, power
from tests.calibration.run import Outcome
from tests.calibration.suite import FORMS, Findings

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "calibration.md", DOCS / "images" / "calibration.svg"
MANY = 1_000
"""Windows of which the lowest coverage is told by itself: of few, chance makes it low."""
_BEGIN, _END = "<!-- generated: calibration -->\n", "<!-- end: calibration -->"


def as_json(findings: Findings) -> str:
    """Return everything that was counted."""
    # Counts made with numpy are numpy's numbers.
    return json.dumps(asdict(findings), indent=1, sort_keys=True, default=lambda number: number.item()) + "\n"


def closing_line(findings: Findings) -> str:
    """Return the line that a run ends with."""
    below, above = len(list(findings.failures())), len(list(findings.above()))
    return f"cells {findings.cells}, below {below}, above {above}"


def statement(findings: Findings) -> str:
    """Say how often the suite itself is wrong."""
    return (
        f"{findings.form} form, seed {findings.seed}: {findings.checks} checks at level {findings.level:.1e} each; "
        f"the suite reports something although every promise is kept in at most {FORMS[findings.form].false_alarm:g} "
        "of runs"
    )


def table(findings: Findings) -> str:
    """Return the generated block of the page."""
    lines = [f"`{closing_line(findings)}` ({statement(findings)}).", ""]
    heads = (
        "mechanism",
        "method",
        "cells",
        "all cells together",
        "lowest coverage",
        f"lowest of {MANY:,} windows or more",
        "all at once",
        "above",
        "undefined",
    )
    lines += [f"| {' | '.join((*heads, 'half-width / plain', 'plain'))} |", "|---" * (len(heads) + 2) + "|"]
    ordered = sorted(findings.outcomes, key=lambda outcome: (outcome.mechanism, outcome.method))
    for (mechanism, method), group in itertools.groupby(ordered, key=lambda o: (o.mechanism, o.method)):
        lines.append(_row(mechanism, method, list(group), findings.groups[f"{mechanism}, {method}"]))
    lines += _power(findings)
    lines += _above(ordered)
    lines += ["", "| alert bound | side | alpha | windows | false alarms | reported from |", "|---" * 6 + "|"]
    for found in (*findings.alarms, *together(findings.alarms)):
        trials = found.hits.trials
        lines.append(
            f"| {found.construction}: {found.scenario} | {found.side} | {found.alpha:g} | {trials:,} | "
            f"{found.hits.rate:.4f} | {least_reported(trials, found.alpha, findings.level):.4f} |"
        )
    levels = " | ".join(f"rejected at {size:g}" for size in SIZES)
    lines += ["", f"| homogeneity test | rungs | {levels} | undefined |", "|---|---|---|---|---|"]
    for test in findings.rejections:
        rates = " | ".join(test.rejected[size].text for size in SIZES)
        agree = "agree" if test.agree else "differ"
        lines.append(f"| {test.name} | {agree} | {rates} | {test.undefined / test.windows:.2f} |")
    failures = list(findings.failures())
    if failures:
        lines += ["", "Below:", "", *(f"* {line}" for line in failures)]
    return "\n".join(lines)


def _above(ordered: list[Outcome]) -> Iterator[str]:
    """Yield where bands are wider than they need to be, by mechanism and population model."""
    grouped: dict[tuple[str, str], list[tuple[str, int, Outcome]]] = {}
    for outcome in ordered:
        if outcome.above:
            layout, number, population = outcome.setting.split(", ")[-3:]
            grouped.setdefault((outcome.mechanism, population), []).append((layout, int(number[2:]), outcome))
    if not grouped:
        return
    yield from ("", "| above | population | cells | rungs | users | highest coverage |", "|---|---|---|---|---|---|")
    for (mechanism, population), found in grouped.items():
        layouts = ", ".join(sorted({layout for layout, _, _ in found}))
        users = sorted({number for _, number, _ in found})
        highest = max(
            part.hits.rate for _, _, outcome in found for part in outcome.classes.values() if part.rarest >= 1.0
        )
        between = f"{users[0]:,}" if len(users) == 1 else f"{users[0]:,} to {users[-1]:,}"
        yield f"| {mechanism} | {population} | {len(found)} | {layouts} | {between} | {highest:.4f} |"


def _power(findings: Findings) -> Iterator[str]:
    """Yield how likely a class that is covered too seldom is reported, in one cell and over all cells of a method."""
    stages, level = FORMS[findings.form].stages, findings.level
    trials = sorted(hits.trials for name, hits in findings.groups.items() if name.count(",") == 1)[len(stages) :]
    typical = trials[len(trials) // 2] if trials else stages[0].windows
    yield from ("", f"| true coverage | reported in one cell | in {typical:,} windows of all cells of a method |")
    yield "|---|---|---|"
    for coverage in (0.80, 0.85, 0.88, 0.90, 0.91, 0.92, 0.93):
        together = power(coverage, (Stage(typical),), level)
        yield f"| {coverage:.2f} | {power(coverage, stages, level):.3f} | {together:.3f} |"


def _row(mechanism: str, method: str, group: list[Outcome], summed: Hits) -> str:
    lowest = min(group, key=lambda outcome: outcome.worst[1].hits.rate)
    name, worst = lowest.worst
    many = [part.hits for outcome in group for part in outcome.classes.values() if part.defined >= MANY]
    sure = min(many, key=lambda hits: hits.rate, default=NO_TRIALS)
    together = min(outcome.all_hits.rate for outcome in group)
    parts = [part for outcome in group for part in outcome.classes.values()]
    undefined = sum(part.windows - part.defined for part in parts) / max(sum(part.windows for part in parts), 1)
    ratios = [
        part.half_width / (part.wald_width / part.wald_windows)
        for part in parts
        if part.defined and part.wald_windows and part.wald_width > 0
    ]
    plain = [part.wald_held / part.wald_windows for part in parts if part.wald_windows]
    return (
        f"| {mechanism} | {method} | {len(group)} | {summed.text} | "
        f"{worst.hits.rate:.3f} ({name}, {lowest.windows} windows) | {sure.text} | "
        f"{together:.3f} | {sum(outcome.above for outcome in group)} | {undefined:.3f} | "
        f"{f'{median(ratios):.2f}' if ratios else '-'} | "
        f"{f'{min(plain):.3f}' if plain else '-'} |"
    )


def write(findings: Findings, page: Path = PAGE, image: Path = PICTURE) -> None:
    """Write the table into the page, and the picture."""
    before, rest = page.read_text(encoding="utf-8").split(_BEGIN, 1)
    page.write_text(before + _BEGIN + table(findings) + "\n" + _END + rest.split(_END, 1)[1], encoding="utf-8")
    image.write_text(picture(findings), encoding="utf-8")


_STYLE = style(
    """
.goal { fill: #0072b2; fill-opacity: .14 }
.plain { fill: #b85c00; fill-opacity: .55 }
.kept { fill: #0072b2; fill-opacity: .65 }
text.plain, text.kept { fill-opacity: 1; font-weight: 600 }
""",
    """
.goal { fill: #58b5f0; fill-opacity: .2 }
.plain { fill: #ffa657 }
.kept { fill: #58b5f0 }
""",
)
_LEFT, _RIGHT, _TOP, _ROW = 190.0, 960.0, 110.0, 30.0


def _x(rate: float) -> float:
    return _LEFT + rate * (_RIGHT - _LEFT)


def _dots(outcomes: list[Outcome], middle: float) -> Iterator[str]:
    """Per cell the class that is covered least: plain bands above the line, calibrated ones below it."""
    for outcome in outcomes:
        plain = [part.wald_held / part.wald_windows for part in outcome.classes.values() if part.wald_windows]
        if plain:
            yield f'<circle class="plain" cx="{_x(min(plain)):.1f}" cy="{middle - 6:.1f}" r="3"/>'
        yield f'<circle class="kept" cx="{_x(outcome.worst[1].hits.rate):.1f}" cy="{middle + 6:.1f}" r="3"/>'


def picture(findings: Findings) -> str:
    """Return the picture as SVG: one line per mechanism, one dot per cell."""
    grouped: dict[str, list[Outcome]] = {}
    for outcome in findings.outcomes:
        grouped.setdefault(outcome.mechanism, []).append(outcome)
    bottom = _TOP + _ROW * len(grouped)
    made = [text(24, 36, "How often bands of 95 % hold the truth", "title", "start")]
    made.append(text(24, 58, "one dot per cell: the class of values that is covered least", "small", "start"))
    made.append(text(24, 82, "plain bands, observed counts as chances", "plain", "start"))
    made.append(text(400, 82, "Thaw's bands", "kept", "start"))
    made.append(
        f'<rect class="goal" x="{_x(LEAST):.1f}" y="{_TOP - 10:g}" width="{_x(MOST) - _x(LEAST):.1f}" '
        f'height="{bottom - _TOP + 10:g}"/>'
    )
    for rate in (0.0, 0.25, 0.5, 0.75, 1.0):
        made.append(f'<path class="grid" d="M{_x(rate):.1f} {_TOP - 10:g} V{bottom:g}"/>')
        made.append(text(_x(rate), bottom + 20, f"{rate:g}", "small"))
    for row, (name, outcomes) in enumerate(grouped.items()):
        middle = _TOP + _ROW * (row + 0.5)
        made.append(text(_LEFT - 14, middle + 5, name, "", "end"))
        made += _dots(outcomes, middle)
    made.append(text((_LEFT + _RIGHT) / 2, bottom + 42, f"coverage; shaded: {LEAST:g} to {MOST:g}", "small"))
    body, height = "\n".join(made), bottom + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height:g}" role="img" '
        f'aria-label="Coverage of 95 % bands by mechanism, plain and calibrated">\n<style>{_STYLE}</style>\n'
        f'<rect class="card" x="1" y="1" width="998" height="{height - 2:g}" rx="12"/>\n{body}\n</svg>\n'
    )
