"""`thaw estimates`: print stored estimates, once or as they change."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from estimators.estimates import ViewName
from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.terminal.estimates import ASCII, UNICODE, Signs, survey_view
from streams.cli.terminal.parameters import FiniteRange
from streams.cli.terminal.surveys import surveys_named
from streams.cli.terminal.views import with_view
from streams.exporter.reader import Reader
from streams.settings import REDIS, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import StoreUnavailableError
from streams.windows.likelihood import Likelihoods
from streams.windows.record import EstimateRecord
from streams.windows.rows import EstimateRow, csv_text, parquet_available, parquet_bytes, rows_of
from streams.windows.settled import unsettled_windows
from streams.windows.shown_views import WORDING

Found = list[tuple[Survey, list[EstimateRecord]]]
Counted = Callable[[Found], int | None]
"""Says before which time all reports are counted, if these are the newest estimates."""
Form = Literal["records", "csv", "json", "parquet"]
"""Data that is printed: stored records as JSON (--json), or a table with one row per value."""

_WINDOWS_OF_DATA = 3
_WINDOWS_SHOWN = 30
_WIDTH_WITHOUT_TERMINAL = 160


@click.command("estimates")
@click.argument("survey", required=False)
@click.option(
    "--windows",
    type=click.IntRange(1, 10_000),
    help="Number of windows, newest first; of settled ones where no data is asked for. [default: 30; of data: 3]",
)
@click.option("--watch", is_flag=True, help="Run until interrupted: redraw, or print data as it changes.")
@click.option(
    "--every", default=1.0, show_default=True, type=FiniteRange(0.1, 3_600), help="Seconds between two reads."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON array of estimate records; with --watch one object a line."
)
@click.option("--csv", "as_csv", is_flag=True, help="The same as --format csv.")
@click.option(
    "--format",
    "table",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Print one table with a row for each survey, window and value; JSON with --watch: one row a line.",
)
@click.option(
    "--view",
    type=click.Choice(list(WORDING)),
    help="Beside the estimates, the shares as a distribution: significant values only, nearest, or most likely.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write data to this file.")
@settings_options(*REDIS, "surveys", "prefix")
def command(survey: str | None, windows: int | None, watch: bool, every: float, **flags: Any) -> int:
    """Print stored estimates of SURVEY (a name or an id), or of all surveys.

    On a terminal: the newest settled window of each survey with its bands, a sparkline of earlier windows, and a list
    of the windows that are not settled yet. As data: --json, or --format for spreadsheets and data frames.
    """
    output: Path | None = flags.pop("output")
    view: ViewName | None = flags.pop("view")
    form = _form(as_json=flags.pop("as_json"), as_csv=flags.pop("as_csv"), table=flags.pop("table"))
    _refuse_unfit(form, output, watch=watch)
    if view == "likelihood" and watch:
        raise click.UsageError("--view likelihood is computed on request and cannot be watched; leave --watch out")
    settings = load_settings(flags)
    folder = settings.surveys_folder
    store = open_store(settings)
    reader = Reader(store, SurveyFolder(folder, system_clock()), heartbeats=store.heartbeats)
    count = windows or (_WINDOWS_OF_DATA if form else _WINDOWS_SHOWN)

    def read() -> Found:
        wanted = surveys_named(reader.surveys(), survey, folder)
        more = 0 if form else 1
        return [(item, reader.windows(item.id, count + more * unsettled_windows(item))) for item in wanted]

    def counted(found: Found) -> int | None:
        return reader.counted_ms(record for _, some in found for record in some)

    found = read()
    if view is not None:
        likelihoods, whole = Likelihoods(store.states), form is not None
        found = with_view(found, view, likelihoods, named=survey is not None, whole=whole, counted_ms=counted(found))
    if watch:
        looks = _looks(found, read, every)
        with contextlib.suppress(KeyboardInterrupt):
            if form:
                _watch_data(looks, form, view, counted)
            else:
                _watch_view(looks, view, counted)
    elif form:
        data = _data(found, form, view, counted)
        if output is None:
            click.echo(data, nl=False)
        else:
            _write(output, data)
    else:
        console = _console()
        console.print(*_views(found, console, view, counted), sep="\n")
    return 0


def _form(*, as_json: bool, as_csv: bool, table: str | None) -> Form | None:
    if as_json + as_csv + (table is not None) > 1:
        raise click.UsageError("--json, --csv and --format cannot be combined; give one")
    if as_json:
        return "records"
    return "csv" if as_csv else cast(Form | None, table)


def _refuse_unfit(form: Form | None, output: Path | None, *, watch: bool) -> None:
    """Refuse what cannot be written, before anything is read."""
    if output is not None:
        if form is None or watch:
            raise click.UsageError("--output writes data once; give it with --format, --csv or --json, without --watch")
        if not output.parent.is_dir():
            raise click.UsageError(f"--output: {output.parent} is not a folder; got {output}")
    if form == "parquet":
        if watch:
            raise click.UsageError("--format parquet cannot be watched; choose csv or json, or leave --watch out")
        if output is None and sys.stdout.isatty():
            raise click.UsageError("--format parquet is not text; write it to a file with --output FILE, or a pipe")
        if not parquet_available():
            raise click.ClickException(
                "--format parquet needs the package pyarrow, which is not installed; run: pip install 'thaw[parquet]'"
            )


def _write(output: Path, data: bytes) -> None:
    try:
        output.write_bytes(data)
    except OSError as error:
        # Opening a file that cannot be written names it; writing to a full disk does not.
        error.filename = str(output)
        raise


def _data(found: Found, form: Form, view: ViewName | None, counted: Counted) -> bytes:
    """Return all that was found, to be written at once."""
    if form == "records":
        return msgspec.json.encode([record for _, some in found for record in some]) + b"\n"
    rows = _rows(found, counted(found), view)
    if form == "parquet":
        return parquet_bytes(rows)
    return csv_text(rows).encode() if form == "csv" else msgspec.json.encode(rows) + b"\n"


def _rows(found: Found, counted_ms: int | None, view: ViewName | None) -> list[EstimateRow]:
    now_ms = system_clock()
    return [row for item, some in found for row in rows_of(item, some, now_ms, counted_ms, view)]


def _newest(found: Found) -> int | None:
    """Return when the newest estimate was computed."""
    return max((record.computed_ms for _, some in found for record in some), default=None)


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


def _watch_data(
    looks: Iterable[tuple[Found, str]], form: Form, view: ViewName | None = None, counted: Counted = _newest
) -> None:
    """Print every estimate once, and again when it has changed."""
    seen: dict[tuple[str, int], int] = {}
    told, head = "", True
    for found, trouble in looks:
        if trouble and trouble != told:
            click.echo(trouble, err=True)
        told = trouble
        for item, record in ((item, record) for item, some in found for record in reversed(some)):
            place = record.survey, record.window_start_ms
            if seen.get(place) != record.computed_ms:
                seen[place] = record.computed_ms
                rows = _rows([(item, [record])], counted(found), view)
                if form == "csv":
                    click.echo(csv_text(rows, head=head), nl=False)
                else:
                    for entry in rows if form == "json" else [record]:
                        click.echo(msgspec.json.encode(entry))
                head = False


def _watch_view(looks: Iterable[tuple[Found, str]], view: ViewName | None, counted: Counted) -> None:
    console = _console()
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        for found, trouble in looks:
            status = Text(trouble, style="bold red") if trouble else Text("Ctrl-C to stop", style="dim")
            live.update(Group(*_views(found, console, view, counted), status), refresh=True)


def _views(found: Found, console: Console, view: ViewName | None, counted: Counted) -> list[RenderableType]:
    counted_ms = counted(found)
    return [survey_view(item, some, system_clock(), counted_ms, _signs(console), view) for item, some in found]


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)


def _signs(console: Console) -> Signs:
    return UNICODE if console.encoding.lower().startswith("utf") else ASCII
