"""`thaw alerts`: write alert rules for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from producers.survey.survey import SurveyError, load_survey
from streams.exporter.alert_rules import RUNBOOKS, AlertRenderError, Group, pipeline_group, render, survey_group


@click.group("alerts")
def command() -> None:
    """Write alert rules."""


@command.command("render")
@click.argument("surveys", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="SURVEY...")
@click.option("--pipeline", is_flag=True, help="Also write the rules that need no survey.")
@click.option("--runbooks", default=RUNBOOKS, show_default=True, help="Where the runbook pages are, for annotations.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def render_command(surveys: tuple[Path, ...], pipeline: bool, runbooks: str, output: Path | None) -> None:
    """Write the alert rules of SURVEY files for Prometheus: thresholds come from their [[alert]] and [limits] tables.

    Write them again when a survey file changes: rules name the survey by its id.
    """
    if not surveys and not pipeline:
        raise click.UsageError("give survey files, or --pipeline, or both")
    groups: list[Group] = [pipeline_group()] if pipeline else []
    try:
        groups += [survey_group(load_survey(path)) for path in surveys]
    except (SurveyError, AlertRenderError) as error:
        raise click.ClickException(str(error)) from None
    names = [group.name for group in groups]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise click.ClickException(f"two of these files are the same survey, {twice}; give one of them")
    text = render(groups, runbooks=runbooks)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
