"""`thaw survey`: check a survey file and explain it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from producers.survey.check import USERS, Explanation, explain
from producers.survey.durations import format_duration
from producers.survey.survey import SurveyError, load_survey
from streams.cli.terminal.numbers import Scale

_WIDTH_WITHOUT_TERMINAL = 120


@click.group("survey")
def command() -> None:
    """Check survey files and explain them."""


@command.command("check")
@click.argument(
    "places", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE_OR_FOLDER..."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file on stdout, one a line.")
def check_command(places: tuple[Path, ...], as_json: bool) -> None:
    """Explain survey files: what is released when, its cost and the width of the band; or print why one is refused.

    Of a folder all files *.toml are checked. Exit status 1 if a file is refused.
    """
    files = [file for place in places for file in _files(place)]
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)
    refused = warnings = 0
    for file in files:
        try:
            explanation = explain(load_survey(file))
        except SurveyError as error:
            refused += 1
            if as_json:
                told = {"error": error.remedy, "field": error.field, "value": repr(error.value), "file": str(file)}
                click.echo(json.dumps(told))
            click.echo(f"refused: {error}", err=True)
            continue
        warnings += len(explanation.warnings)
        if as_json:
            click.echo(json.dumps(as_data(explanation) | {"file": str(file)}, allow_nan=False))
        else:
            show(explanation, console)
    if len(files) > 1:
        click.echo(
            f"{len(files)} files: {len(files) - refused} valid, {refused} refused, {warnings} warnings", err=True
        )
    if refused:
        sys.exit(1)


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    found = sorted(place.glob("*.toml"))
    if not found:
        raise click.UsageError(f"no survey file (*.toml) in the folder {place}; name another")
    return found


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation under stable keys; what has no finite number is null."""
    survey = explanation.survey
    return {
        "id": survey.id,
        "edition": survey.edition,
        "mechanism": survey.mechanism.name,
        "epsilon": _finite(explanation.epsilon_per_window),
        "warnings": list(explanation.warnings),
        "name": survey.name,
        "question": survey.question,
        "local": survey.mechanism.guarantee.local,
        "protects": survey.mechanism.guarantee.protects,
        "guarantee": survey.mechanism.guarantee.sentence,
        "threat_model": survey.mechanism.guarantee.threat_model,
        "window_ms": survey.windows.size_ms,
        "step_ms": survey.windows.step_ms,
        "retention_ms": survey.retention_ms,
        "jitter_ms": survey.jitter_ms,
        "rungs_assumed": survey.rungs,
        "end_ms": survey.end_ms,
        "owner": survey.registry.owner,
        "purpose": survey.registry.purpose,
        "expires_ms": survey.registry.expires_ms,
        "review": survey.registry.review,
        "method": survey.method,
        "least_devices": survey.publication.least_devices,
        "totals_only": survey.publication.totals_only,
        "stratified_width_ratio": explanation.stratified_ratio,
        "epsilon_per_day": _finite(explanation.epsilon_per_day),
        "lifetime_epsilon": _finite(survey.lifetime_epsilon),
        "unlock": None if survey.unlock is None else str(survey.unlock),
        "reserve_epsilon": survey.reserve_epsilon,
        "on_demand": survey.on_demand,
        "lifetime_windows": explanation.lifetime_windows,
        "rungs": [
            {
                "epsilon_asked": rung.epsilon_asked,
                "epsilon": _finite(rung.epsilon),
                "opens_ms": rung.opens_ms,
                "truth_probability": rung.truths.get("every value"),
                "truths": dict(rung.truths),
                "half_widths": None
                if rung.half_widths is None
                else dict(zip(map(str, USERS), rung.half_widths, strict=True)),
            }
            for rung in explanation.rungs
        ],
        "choices": list(survey.mechanism.choices()),
        "attackers": [
            {
                "sees": attacker.sees,
                "learns": attacker.learns,
                "epsilon": None if attacker.epsilon is None else _finite(attacker.epsilon),
                "delta": attacker.delta,
            }
            for attacker in explanation.attackers
        ],
    }


def show(explanation: Explanation, console: Console) -> None:
    """Print the explanation for a person."""
    survey = explanation.survey
    console.print(f"[bold]{survey.edition}[/bold]  {survey.mechanism.name}", highlight=False)
    console.print(survey.question, style="italic", highlight=False, markup=False)
    console.print()
    for sentence in explanation.sentences:
        console.print(sentence, highlight=False, markup=False)
    scale = Scale.of_survey(survey)
    table = Table(title="If all users are on one rung", title_justify="left")
    for heading in ("rung", "epsilon asked", "delivered", "opens"):
        table.add_column(heading, justify="right")
    # Kinds differ from mechanism to mechanism, and on a rung where every value is sensitive there are no others.
    kinds = list(dict.fromkeys(kind for rung in explanation.rungs for kind in rung.truths))
    for kind in kinds:
        table.add_column("tells the truth" if kinds == ["every value"] else f"tells {kind}", justify="right")
    for users in USERS:
        table.add_column(f"± {1 - survey.alpha:.0%}, {users:,}", justify="right")
    for rung in explanation.rungs:
        opens = "on demand" if survey.on_demand else f"end + {format_duration(rung.opens_ms)}"
        opens = "at once" if rung.rung == 0 else opens
        truths = [f"{rung.truths[kind]:.1%}" if kind in rung.truths else "" for kind in kinds]
        delivered = "unbounded" if math.isinf(rung.epsilon) else f"{rung.epsilon:.6g}"
        widths = [scale.short(width) for width in rung.half_widths or ()] or [""] * len(USERS)
        table.add_row(str(rung.rung), f"{rung.epsilon_asked:.6g}", delivered, opens, *truths, *widths)
    console.print()
    console.print(table)
    if not survey.mechanism.leading.all():
        about = f"± is about the {survey.mechanism.quantities[0].meaning}; thaw plan has the other quantities."
        console.print(about, highlight=False, markup=False)
    if explanation.attackers:
        known = Table(title="What an attacker learns about one person", title_justify="left")
        known.add_column("who sees")
        known.add_column("learns")
        for attacker in explanation.attackers:
            known.add_row(attacker.sees, attacker.learns)
        console.print()
        console.print(known)
    for warning in explanation.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)


def _finite(number: float) -> float | None:
    return None if math.isinf(number) else number
