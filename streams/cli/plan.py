"""`thaw plan`: before a survey starts, how sharp its estimates will be, and how far lying devices can move them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from streams.settings import load_settings, settings_options

if TYPE_CHECKING:
    from producers.survey.survey import Survey

_WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True)
class RungOutlook:
    """One rung, if all honest devices are on it. Widths and shifts are shares; None where nothing can be said.

    half_width: of the survey's interval for a typical value. users_for_band: devices that bring it down to the band
    asked for. loudest_score: the most that one report on this rung counts, in honest devices. loudest_ahead: the same
    for a report on the highest rung. shift: a bound on how far the attackers can move the estimate of any value, on
    whichever of the two rungs they choose. attackers_for_half_width: how many move it out of its interval.
    """

    rung: int
    epsilon: float | None
    half_width: float | None
    users_for_band: int | None
    loudest_score: float | None
    loudest_ahead: float | None
    shift: float | None
    attackers_for_half_width: int | None


def outlook(survey: Survey, *, users: int, attackers: int, band: float | None) -> list[RungOutlook]:
    """Work out every rung, at even shares."""
    import numpy as np

    from estimators.estimates import Method
    from estimators.planning.poisoning import honest_tally, influence
    from producers.survey.check import USERS, explain

    method = cast(Method, "pooled" if survey.method == "auto" else survey.method)
    rows = []
    for plan in explain(survey).rungs:
        shares = survey.mechanism.estimate(honest_tally(survey.mechanism, plan.rung), method=method).value
        beside = influence(survey.mechanism, plan.rung, method=method)
        ahead = influence(survey.mechanism, plan.rung, liars_rung=survey.mechanism.rungs - 1, method=method)
        reach = np.abs([*beside.shift(shares, 1, 1), *ahead.shift(shares, 1, 1)])
        furthest = float(np.nanmax(reach)) if np.isfinite(reach).any() else math.nan
        for_one = None if plan.half_widths is None else plan.half_widths[0] * math.sqrt(USERS[0])
        half_width = None if for_one is None else for_one / math.sqrt(users)
        rows.append(
            RungOutlook(
                rung=plan.rung,
                epsilon=_finite(plan.epsilon),
                half_width=half_width,
                users_for_band=None if for_one is None or band is None else math.ceil((for_one / band) ** 2),
                loudest_score=_finite(beside.loudest),
                loudest_ahead=_finite(ahead.loudest),
                shift=_finite(furthest * attackers / users),
                attackers_for_half_width=(
                    None if half_width is None or not furthest > 0 else math.ceil(half_width * users / furthest)
                ),
            )
        )
    return rows


def documentation(survey: Survey, *, users: int, attackers: int) -> str:
    """Return the outlook as Markdown, for docs/threats.md."""
    lines = [
        f"| honest devices on | band | one liar counts as | on the top rung | {attackers} liars move it by at most |",
        "|---|---|---|---|---|",
    ]
    for row in outlook(survey, users=users, attackers=attackers, band=None):
        cells = [f"rung {row.rung}, epsilon {_cell(row.epsilon, '{:.3g}')}", _cell(row.half_width, "±{:.1%}")]
        cells += [_cell(row.loudest_score, "{:.1f}"), _cell(row.loudest_ahead, "{:.1f}"), _cell(row.shift, "{:.1%}")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


@click.command("plan")
@click.argument("survey")
@click.option("--users", default=10_000, show_default=True, type=click.IntRange(1), help="Devices that answer.")
@click.option("--attackers", default=0, show_default=True, type=click.IntRange(0), help="How many of them lie.")
@click.option(
    "--band",
    type=click.FloatRange(0, min_open=True),
    help="Half-width you want, as a share: how many devices it takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options("surveys")
def plan_command(survey: str, users: int, attackers: int, band: float | None, as_json: bool, **flags: Any) -> None:
    """Plan SURVEY (a file, or a name or id in the survey folder): widths, devices needed, and what liars can do.

    A lying device is one token. Whoever can make up tokens is as many attackers as they like: docs/threats.md.
    """
    if attackers > users:
        raise click.UsageError(f"--attackers must be at most --users ({users}); got {attackers}")
    found = _find(survey, flags)
    rows = outlook(found, users=users, attackers=attackers, band=band)
    if as_json:
        data = {"survey": found.id, "mechanism": found.mechanism.name, "users": users, "attackers": attackers}
        click.echo(json.dumps({**data, "band": band, "rungs": [asdict(row) for row in rows]}, allow_nan=False))
    else:
        _print(found, rows, users=users, attackers=attackers, band=band)


def _find(survey: str, flags: dict[str, Any]) -> Survey:
    from producers.clock import system_clock
    from producers.survey.folder import SurveyFolder
    from producers.survey.survey import SurveyError, load_survey

    if Path(survey).is_file():
        try:
            return load_survey(survey)
        except SurveyError as error:
            raise click.ClickException(f"refused: {error}") from error
    folder = load_settings(flags).surveys_folder
    known = SurveyFolder(folder, system_clock()).surveys(system_clock())
    for found in known:
        if survey in (found.name, found.id):
            return found
    names = ", ".join(found.id for found in known) or "none"
    raise click.ClickException(f"no file and no survey {survey!r} in {folder}; it has: {names}")


def _print(survey: Survey, rows: list[RungOutlook], *, users: int, attackers: int, band: float | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    console.print(f"[bold]{survey.id}[/bold]: {users:,} devices, the honest ones all on one rung", highlight=False)
    columns = ["rung", "epsilon", f"{1 - survey.alpha:.0%} band"]
    columns += [f"devices for ±{band:.3g}"] if band is not None else []
    columns += ["one liar counts as", "... on the top rung", "liars to leave the band"]
    columns += [f"{attackers:,} liars move it by at most"] if attackers else []
    table = Table(*[columns[0]])
    for name in columns[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [str(row.rung), _cell(row.epsilon, "{:.4g}"), _cell(row.half_width, "±{:.2%}")]
        cells += [_cell(row.users_for_band, "{:,}")] if band is not None else []
        cells += [_cell(row.loudest_score, "{:.2f}"), _cell(row.loudest_ahead, "{:.2f}")]
        cells += [_cell(row.attackers_for_half_width, "{:,}")]
        cells += [_cell(row.shift, "{:.2%}")] if attackers else []
        table.add_row(*cells)
    console.print(table)
    console.print(
        "A liar answers as loudly as it can, with a score s, and moves a share by (s - share) / devices. Scores are in "
        "honest devices. Liars choose their rung. Widths are for a typical value, shifts for the worst one.",
        highlight=False,
    )


def _cell(number: float | None, form: str) -> str:
    return "-" if number is None else form.format(number)
