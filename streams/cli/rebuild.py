"""`thaw rebuild`: count a survey again from Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.main import NOT_READY
from streams.cli.terminal.surveys import surveys_named
from streams.kafka.reader import ReadError, TopicReader
from streams.repair.rebuild import Rebuilder, WindowCount
from streams.settings import Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import StoreRepairedError, StoreUnavailableError


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
@settings_options(
    "kafka",
    "kafka_security",
    "kafka_ca",
    "kafka_cert",
    "kafka_key",
    "kafka_sasl",
    "kafka_user",
    "redis",
    "redis_ca",
    "surveys",
    "prefix",
    "partitions",
)
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
    try:
        results = [_rebuild(settings, found, window, replace=replace and not dry_run) for found in wanted]
    except ReadError as error:
        click.echo(f"Error: {error}", err=True)
        return NOT_READY
    except StoreUnavailableError as error:
        click.echo(f"Error: Redis does not answer: {error}; check THAW_REDIS", err=True)
        return NOT_READY
    if as_json:
        click.echo(msgspec.json.encode([as_data(*result) for result in results]))
    else:
        for found, counts, lag in results:
            _print(found, counts, lag, would_replace=replace and dry_run)
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
    with TopicReader(settings, settings.reports_topic) as reader:
        if reader.partitions != settings.partitions:
            raise click.ClickException(
                f"{settings.reports_topic} has {reader.partitions} partitions, THAW_PARTITIONS says "
                f"{settings.partitions}; set it to what the topic has"
            )
        rebuilder = Rebuilder(open_store(settings), reader, survey, partitions=settings.partitions, window_ms=window_ms)
        counts = rebuilder.run(replace=replace)
        return survey, counts, rebuilder.lag(settings.reports_topic)


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
