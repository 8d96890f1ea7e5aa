"""`thaw rebuild`: count a survey again from Kafka."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.terminal.surveys import surveys_named
from streams.kafka.reader import TopicReader
from streams.repair.rebuild import Progress, Rebuilder, WindowCount
from streams.settings import KAFKA, REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import StoreRepairedError


def moment_ms(text: str) -> int:
    """Read a time: milliseconds since the epoch, or ISO 8601 (UTC unless it says otherwise).

    >>> moment_ms("60000"), moment_ms("1970-01-01T00:01:00Z")
    (60000, 60000)
    """
    if text.isascii() and text.isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def _window(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else moment_ms(text)
    except ValueError:
        raise click.BadParameter(
            f"expected the start of a window, as ms since the epoch or like 2026-01-31T12:00; got {text!r}"
        ) from None


@click.command("rebuild")
@click.argument("survey")
@click.option("--window", callback=_window, help="Only the window that starts then: ms since the epoch, or ISO 8601.")
@click.option("--replace", is_flag=True, help="Replace a stored count that differs.")
@click.option("--dry-run", is_flag=True, help="With --replace: print what would be replaced; replace nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, *REDIS, "surveys", "prefix", "partitions")
def command(survey: str, window: int | None, replace: bool, dry_run: bool, as_json: bool, **flags: Any) -> int:
    """Count SURVEY (a name or an id) again from Kafka alone, and compare with what is stored.

    For a Redis whose data was lost or is in doubt. Workers may keep running; what they count is kept. Exit status 1 if
    a window differs and was not replaced, 75 if Kafka or Redis is down.
    """
    settings = load_settings(flags)
    known = SurveyFolder(settings.surveys_folder, system_clock()).surveys(system_clock())
    wanted = surveys_named(known, survey, settings.surveys_folder)
    if window is not None and not any(found.windows.is_start(window) for found in wanted):
        step_ms = wanted[0].windows.step_ms
        raise click.ClickException(f"windows of {survey} start at multiples of {step_ms} ms; got {window}")
    results = [_rebuild(settings, found, window, replace=replace and not dry_run) for found in wanted]
    if as_json:
        click.echo(msgspec.json.encode([as_data(*result) for result in results]))
    else:
        for found, counts, lag in results:
            _print(found, counts, lag, would_replace=replace and dry_run)
        click.echo(_sum([count for _, counts, _ in results for count in counts]))
    fine = {"equal", "replaced"}
    return 0 if all(count.status in fine for _, counts, _ in results for count in counts) else 1


def _rebuild(
    settings: Settings, survey: Survey, window_ms: int | None, *, replace: bool
) -> tuple[Survey, list[WindowCount], int]:
    while True:
        try:
            return _count(settings, survey, window_ms, replace=replace)
        except StoreRepairedError as error:
            click.echo(f"{error}; counting again", err=True)


def _count(
    settings: Settings, survey: Survey, window_ms: int | None, *, replace: bool
) -> tuple[Survey, list[WindowCount], int]:
    store = open_store(settings)
    with TopicReader(settings, settings.reports_topic) as reader:
        if reader.partitions != settings.partitions:
            raise click.ClickException(
                f"{settings.reports_topic} has {reader.partitions} partitions, THAW_PARTITIONS says "
                f"{settings.partitions}; set it to what the topic has"
            )
        rebuilder = Rebuilder(
            store,
            reader,
            survey,
            partitions=settings.partitions,
            window_ms=window_ms,
            tell=_ProgressLines(survey.id),
        )
        counts = rebuilder.run(replace=replace)
        told = f"{survey.id}: {rebuilder.recount.records:,} records read, {len(counts)} windows compared"
        click.echo(f"\r{told}" if sys.stderr.isatty() else told, err=True)
        return survey, counts, rebuilder.lag(settings.reports_topic)


class _ProgressLines:
    """Progress on stderr: a line that changes on a terminal, a new line every ten seconds elsewhere."""

    def __init__(self, title: str) -> None:
        self._title, self._terminal = title, sys.stderr.isatty()
        self._every, self._told = (0.2 if self._terminal else 10.0), time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._told < self._every:
            return
        self._told = time.monotonic()
        text = f"{self._title}: {progress.records:,} records read"
        if progress.windows_in_all is not None:
            text += f", {progress.windows} of {progress.windows_in_all} windows compared"
        click.echo(f"\r{text}" if self._terminal else text, err=True, nl=not self._terminal)


def _sum(counts: Sequence[WindowCount]) -> str:
    """Return the closing line: how many windows of each status, and how many reports differed."""
    statuses = Counter(count.status for count in counts)
    windows = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "none"
    users, missing, extra = (
        sum(count.right.total_users for count in counts),
        sum(count.missing for count in counts),
        sum(count.extra for count in counts),
    )
    return f"{len(counts)} windows: {windows}; {users:,} users, {missing:,} reports missing, {extra:,} too many"


def as_data(survey: Survey, counts: Sequence[WindowCount], lag: int) -> dict[str, Any]:
    """Return the outcome under stable keys."""
    return {
        "survey": survey.id,
        "lag_records": lag,
        "windows": [
            {
                "start_ms": count.window_ms,
                "status": count.status,
                "users": count.right.total_users,
                "users_stored": count.store.total_users,
                "missing": count.missing,
                "extra": count.extra,
                "complete": count.complete,
            }
            for count in counts
        ],
    }


def _print(survey: Survey, counts: Sequence[WindowCount], lag: int, *, would_replace: bool) -> None:
    click.echo(f"{survey.id}: {len(counts)} windows counted from Kafka")
    for count in counts:
        start = datetime.fromtimestamp(count.window_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        told = f"  {start}  {count.status}: {count.right.total_users} users"
        if count.status != "equal":
            told += f", stored were {count.store.total_users}; {count.missing} missing, {count.extra} too many"
        if not count.complete:
            told += "; Kafka no longer has all of its reports, so no stored report is removed"
        if would_replace and count.status in ("differs", "unreadable"):
            told += "; would be replaced"
        click.echo(told)
    if lag and any(count.status == "differs" for count in counts):
        click.echo(
            f"Consumer lag is {lag} records: reports that workers have not read yet count as missing. Run this again "
            "when the lag is 0.",
            err=True,
        )
