"""`thaw alerts`: print alert rules for Prometheus."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import get_args

import click

from producers.survey.survey import load_survey
from streams.exporter.alert_rules import RUNBOOKS, AlertRenderError, Form, check_rules, rules_text
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
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    default="prometheus",
    show_default=True,
    help="A rule file, or a resource of the Prometheus operator.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
@click.option(
    "--check",
    "checked",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare this file with what would be written; exit status 1 if it differs.",
)
def render_command(
    surveys: tuple[Path, ...],
    pipeline: bool,  # noqa: ARG001
    runbooks: str | None,
    form: Form,
    output: Path | None,
    checked: Path | None,
) -> None:
    """Print the alert rules for Prometheus.

    The rules are the same for all surveys: thresholds and limits are metrics of the exporter, read from survey files.
    SURVEY files are only checked: an alert that could never fire is refused.
    """
    if checked is not None and output is not None:
        raise click.UsageError("--check compares and --output writes; give one of them")
    try:
        for path in surveys:
            check_rules(load_survey(path))
        text = rules_text(runbooks=runbooks or load_settings().runbooks or RUNBOOKS, form=form)
    except AlertRenderError as error:
        raise click.ClickException(str(error)) from None
    if checked is not None:
        _compare(checked, text)
    elif output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _compare(file: Path, text: str) -> None:
    """Refuse a file that differs from `text`, and say where."""
    try:
        held = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"--check {file}: it cannot be read as text ({error})") from None
    if held == text:
        click.echo(f"{file}: as this version renders it")
        return
    lines = zip_longest(held.splitlines(), text.splitlines())
    [number, *_] = [at for at, (ours, theirs) in enumerate(lines, 1) if ours != theirs] or [len(text.splitlines())]
    raise click.ClickException(
        f"{file} differs from what this version renders, from line {number} on; write it again with the same flags and "
        f"--output in place of --check"
    )
