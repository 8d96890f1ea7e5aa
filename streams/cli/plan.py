"""`thaw plan`: predict the precision of a survey."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.outlook import RungOutlook, cell, outlook
from producers.survey.survey import Survey, load_survey
from streams.cli.terminal.numbers import Scale
from streams.cli.terminal.surveys import surveys_named
from streams.settings import load_settings, settings_options

_WIDTH_WITHOUT_TERMINAL = 120


@click.command("plan")
@click.argument("survey")
@click.option("--users", default=10_000, show_default=True, type=click.IntRange(1), help="Devices that answer.")
@click.option("--attackers", default=0, show_default=True, type=click.IntRange(0), help="How many of them lie.")
@click.option(
    "--band",
    type=click.FloatRange(0, min_open=True),
    help="Wanted half-width: a share, such as 0.02, or a number in the unit of a mean; prints the devices it takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options("surveys")
def command(survey: str, users: int, attackers: int, band: float | None, as_json: bool, **flags: Any) -> None:
    """Plan SURVEY (a file, or a name or id in the survey folder): widths, devices needed, effect of lying devices.

    A lying device is one token. An attacker who can invent tokens is any number of lying devices: docs/threats.md.
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
    if Path(survey).is_file():
        return load_survey(survey)
    folder = load_settings(flags).surveys_folder
    known = SurveyFolder(folder, system_clock()).surveys(system_clock())
    return surveys_named(known, survey, folder, missing="file and no survey")[0]


def _print(survey: Survey, rows: list[RungOutlook], *, users: int, attackers: int, band: float | None) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    scale = Scale.of_survey(survey)
    console.print(f"[bold]{survey.id}[/bold]: {users:,} devices, the honest ones all on one rung", highlight=False)
    columns = ["rung", "epsilon", f"{1 - survey.alpha:.0%} band"]
    columns += [f"devices for ±{scale.short(band)}"] if band is not None else []
    columns += ["one lying device counts as", "... on the top rung", "lying devices to leave the band"]
    columns += [f"{attackers:,} lying devices move it by up to"] if attackers else []
    table = Table(*[columns[0]])
    for name in columns[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        cells = [
            str(row.rung),
            cell(row.epsilon, "{:.4g}"),
            "-" if row.half_width is None else f"±{scale.short(row.half_width)}",
        ]
        cells += [cell(row.users_for_band, "{:,}")] if band is not None else []
        scores = (row.loudest_score, row.loudest_ahead)
        cells += [cell(score, "{:.2f}") if scale.is_share else scale.short(score) for score in scores]
        cells += [cell(row.attackers_for_half_width, "{:,}")]
        cells += [scale.short(row.shift)] if attackers else []
        table.add_row(*cells)
    console.print(table)
    console.print(
        "A lying device chooses its rung and sends the answer with the largest score s. It moves an estimate "
        f"by (s - estimate) / devices. Scores are in {'honest devices' if scale.is_share else 'the unit of the mean'}. "
        "Widths are for a typical value, shifts for the worst one.",
        highlight=False,
    )
