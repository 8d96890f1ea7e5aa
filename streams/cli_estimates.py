"""`thaw estimates`: print what is stored."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from producers.survey import Survey
from streams.estimate_record import EstimateRecord, ValueEstimate
from streams.exporter import Reader
from streams.settings import load_settings, settings_options
from streams.store import StoreUnavailableError


@click.command("estimates")
@click.argument("survey", required=False)
@click.option("--windows", default=3, show_default=True, type=click.IntRange(1, 10_000), help="How many, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array of estimate records.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one line per value.")
@settings_options("redis", "redis_ca", "surveys", "prefix")
def estimates_command(survey: str | None, windows: int, as_json: bool, as_csv: bool, **flags: Any) -> int:
    """Print stored estimates of SURVEY (a name or an id), or of all surveys."""
    from producers.survey_folder import SurveyFolder
    from streams.clock import system_clock
    from streams.connections import open_store

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other; choose one")
    settings = load_settings(flags)
    reader = Reader(open_store(settings), SurveyFolder(settings.surveys_folder, system_clock()))
    known = reader.surveys()
    wanted = [found for found in known if survey in (None, found.name, found.id)]
    if survey is not None and not wanted:
        names = ", ".join(found.id for found in known) or "none"
        raise click.ClickException(f"no survey {survey!r} in {settings.surveys_folder}; it has: {names}")
    try:
        found = [(item, reader.windows(item.id, windows)) for item in wanted]
    except StoreUnavailableError as error:
        click.echo(f"Error: Redis does not answer: {error}; is THAW_REDIS right?", err=True)
        return 75
    records = [record for _, some in found for record in some]
    if as_json:
        click.echo(msgspec.json.encode(records))
    elif as_csv:
        click.echo(csv_text(records), nl=False)
    else:
        for item, some in found:
            _print_tables(item, some)
    return 0


def csv_text(records: Sequence[EstimateRecord]) -> str:
    """Return one line per value, with a head line."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    fields = ValueEstimate.__struct_fields__
    writer.writerow(["survey", "window_start_ms", "window_end_ms", "users", "method", *fields])
    for record in records:
        for row in record.values:
            numbers = ["" if number is None else number for number in msgspec.structs.astuple(row)]
            writer.writerow(
                [record.survey, record.window_start_ms, record.window_end_ms, record.users, record.method, *numbers]
            )
    return output.getvalue()


def _print_tables(survey: Survey, records: Sequence[EstimateRecord]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{survey.id}[/bold] {survey.question}", highlight=False)
    if not records:
        console.print("  no estimates yet")
    for record in records:
        start = datetime.fromtimestamp(record.window_start_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        table = Table(
            "value", title=f"window from {start}: {record.users} users, {record.method}", title_justify="left"
        )
        for name in ("estimate", "from", "to", "std. error"):
            table.add_column(name, justify="right")
        for row in record.values:
            table.add_row(row.value, *_cells(row))
        console.print(table)


def _cells(row: ValueEstimate) -> Iterator[str]:
    error = None if row.variance is None else max(row.variance, 0.0) ** 0.5
    for number in (row.estimate, row.lower, row.upper, error):
        yield "-" if number is None else f"{number:.4f}"
