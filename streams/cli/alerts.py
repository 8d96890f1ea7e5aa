"""`thaw alerts`: print alert rules for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from producers.survey.survey import load_survey
from streams.exporter.alert_rules import RUNBOOKS, AlertRenderError, check_rules, rules_text
from streams.settings import load_settings


@click.group("alerts")
def command() -> None:
    """Print alert rules."""


@command.command("render")
@click.argument(
    "surveys", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[SURVEY]..."
)
@click.option(
    "--pipeline", is_flag=True, hidden=True, help="Accepted for older scripts: these rules are always written."
)
@click.option(
    "--runbooks", help=f"Path or URL of the runbooks, for annotations. [env: THAW_RUNBOOKS; default: {RUNBOOKS}]"
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def render_command(surveys: tuple[Path, ...], pipeline: bool, runbooks: str | None, output: Path | None) -> None:  # noqa: ARG001
    """Print the alert rules for Prometheus.

    The rules are the same for all surveys: thresholds and limits are metrics of the exporter, read from survey files.
    SURVEY files are only checked: an alert that could never fire is refused.
    """
    try:
        for path in surveys:
            check_rules(load_survey(path))
        text = rules_text(runbooks=runbooks or load_settings().runbooks or RUNBOOKS)
    except AlertRenderError as error:
        raise click.ClickException(str(error)) from None
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
