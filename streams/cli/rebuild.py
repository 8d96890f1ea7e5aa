"""`thaw rebuild`: count a survey again from Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.terminal.partitions import check_partitions
from streams.cli.terminal.surveys import surveys_named
from streams.cli.terminal.times import shown_start
from streams.cli.terminal.windows import ProgressLines, check_start, window_option
from streams.kafka.reader import TopicReader
from streams.kafka.topic_state import TopicWatch
from streams.repair.rebuild import Progress, Rebuilder, WindowCount
from streams.settings import KAFKA, REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import StoreRepairedError
from streams.worker.topic_source import OtherClusterError, counted_since


@click.command("rebuild")
@click.argument("survey")
@window_option
@click.option("--replace", is_flag=True, help="Replace a stored count that differs.")
@click.option("--dry-run", is_flag=True, help="With --replace: print what would be replaced; replace nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, *REDIS, "surveys", "prefix", "reports", "partitions")
def command(survey: str, window: int | None, replace: bool, dry_run: bool, as_json: bool, **flags: Any) -> int:
    """Count SURVEY (a name or an id) again from Kafka alone, and compare with what is stored.

    For a Redis whose data was lost or is in doubt. Workers may keep running; what they count is kept. Exit status 1 if
    a window differs and was not replaced, 75 if Kafka or Redis is down.
    """
    settings = load_settings(flags)
    known = SurveyFolder(settings.surveys_folder, system_clock()).surveys(system_clock())
    wanted = surveys_named(known, survey, settings.surveys_folder)
    check_start(window, wanted)
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
        check_partitions(settings, reader)
        try:
            since_ms = counted_since(store, settings, TopicWatch(settings, settings.reports_topic).look())
        except OtherClusterError as error:
            raise click.ClickException(str(error)) from error
        tell = ProgressLines(survey.id)
        rebuilder = Rebuilder(
            store,
            reader,
            survey,
            partitions=settings.partitions,
            window_ms=window_ms,
            since_ms=since_ms,
            tell=tell,
        )
        counts = rebuilder.run(replace=replace)
        tell.done(Progress(rebuilder.recount.records, len(counts), len(counts)))
        return survey, counts, rebuilder.lag(settings.reports_topic)


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
        told = f"  {shown_start(count.window_ms)}  {count.status}: {count.right.total_users} users"
        if count.status != "equal":
            told += f", stored were {count.store.total_users}; {count.missing} missing, {count.extra} too many"
        if not count.complete:
            told += "; Kafka does not hold all of its reports, so no stored report is removed"
        if would_replace and count.status in ("differs", "unreadable"):
            told += "; would be replaced"
        click.echo(told)
    if lag and any(count.status == "differs" for count in counts):
        click.echo(
            f"Consumer lag is {lag} records: reports that workers have not read yet count as missing. Run this again "
            "when the lag is 0.",
            err=True,
        )
