"""`thaw estimates`: print stored estimates, once or as they change."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.terminal.estimates import ASCII, UNICODE, Signs, survey_view
from streams.cli.terminal.surveys import surveys_named
from streams.exporter.reader import Reader
from streams.settings import REDIS, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import StoreUnavailableError
from streams.windows.record import EstimateRecord, ValueEstimate
from streams.windows.settled import unsettled_windows

Found = list[tuple[Survey, list[EstimateRecord]]]

_WINDOWS_OF_DATA = 3
_WINDOWS_SHOWN = 30
_WIDTH_WITHOUT_TERMINAL = 160


@click.command("estimates")
@click.argument("survey", required=False)
@click.option(
    "--windows",
    type=click.IntRange(1, 10_000),
    help="Number of windows, newest first; without --json or --csv, of settled ones. [default: 30; with them: 3]",
)
@click.option("--watch", is_flag=True, help="Run until interrupted: redraw, or print data as it changes.")
@click.option(
    "--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3_600), help="Seconds between two reads."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON array of estimate records; with --watch one object a line."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print one line per value.")
@settings_options(*REDIS, "surveys", "prefix")
def command(
    survey: str | None, windows: int | None, watch: bool, every: float, as_json: bool, as_csv: bool, **flags: Any
) -> int:
    """Print stored estimates of SURVEY (a name or an id), or of all surveys.

    On a terminal: the newest settled window of each survey with its bands, a sparkline of earlier windows, and a list
    of the windows that are not settled yet.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined; give one")
    settings = load_settings(flags)
    folder = settings.surveys_folder
    reader = Reader(open_store(settings), SurveyFolder(folder, system_clock()))
    count = windows or (_WINDOWS_OF_DATA if as_json or as_csv else _WINDOWS_SHOWN)

    def read() -> Found:
        wanted = surveys_named(reader.surveys(), survey, folder)
        more = 0 if as_json or as_csv else 1
        return [(item, reader.windows(item.id, count + more * unsettled_windows(item))) for item in wanted]

    found = read()
    if watch:
        looks = _looks(found, read, every)
        with contextlib.suppress(KeyboardInterrupt):
            if as_json or as_csv:
                _watch_data(looks, as_csv=as_csv)
            else:
                _watch_view(looks)
    elif as_json or as_csv:
        records = [record for _, some in found for record in some]
        click.echo(csv_text(records) if as_csv else msgspec.json.encode(records), nl=not as_csv)
    else:
        console = _console()
        console.print(*_views(found, console), sep="\n")
    return 0


def _looks(first: Found, read: Callable[[], Found], every_seconds: float) -> Iterator[tuple[Found, str]]:
    """Yield what is stored at every read, and the current error; Redis may be down in between."""
    found, trouble = first, ""
    while True:
        yield found, trouble
        time.sleep(every_seconds)
        try:
            found, trouble = read(), ""
        except StoreUnavailableError as error:
            trouble = f"Redis does not answer: {error}"


def _watch_data(looks: Iterable[tuple[Found, str]], *, as_csv: bool) -> None:
    """Print every estimate once, and again when it has changed."""
    seen: dict[tuple[str, int], int] = {}
    told, head = "", True
    for found, trouble in looks:
        if trouble and trouble != told:
            click.echo(trouble, err=True)
        told = trouble
        for record in (record for _, some in found for record in reversed(some)):
            place = record.survey, record.window_start_ms
            if seen.get(place) != record.computed_ms:
                seen[place] = record.computed_ms
                click.echo(csv_text([record], head=head) if as_csv else msgspec.json.encode(record), nl=not as_csv)
                head = False


def _watch_view(looks: Iterable[tuple[Found, str]]) -> None:
    console = _console()
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        for found, trouble in looks:
            status = Text(trouble, style="bold red") if trouble else Text("Ctrl-C to stop", style="dim")
            live.update(Group(*_views(found, console), status), refresh=True)


def _views(found: Found, console: Console) -> list[RenderableType]:
    counted_ms = max((record.computed_ms for _, some in found for record in some), default=None)
    return [survey_view(item, some, system_clock(), counted_ms, _signs(console)) for item, some in found]


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)


def _signs(console: Console) -> Signs:
    return UNICODE if console.encoding.lower().startswith("utf") else ASCII


def csv_text(records: Sequence[EstimateRecord], *, head: bool = True) -> str:
    """Return one line per value, after a head line."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    fields = ValueEstimate.__struct_fields__
    if head:
        writer.writerow(["survey", "window_start_ms", "window_end_ms", "users", "method", *fields])
    for record in records:
        for row in record.values:
            numbers = ["" if number is None else number for number in msgspec.structs.astuple(row)]
            writer.writerow(
                [record.survey, record.window_start_ms, record.window_end_ms, record.users, record.method, *numbers]
            )
    return output.getvalue()
