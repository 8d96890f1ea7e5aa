"""`thaw topics`: compare topics with the surveys and create missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from producers.survey.durations import parse_duration
from producers.survey.survey import Survey, load_folder
from streams.cli.terminal.migration import as_data, obstacles, sentences, steps
from streams.connections import check_connection
from streams.failures import NOT_READY
from streams.kafka.migration import Migration, name_for
from streams.kafka.topic_state import TopicWatch
from streams.kafka.topics import Topics, wanted
from streams.settings import KAFKA, REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.worker.topic_source import source_of


@click.group("topics")
def command() -> None:
    """Compare topics with what the surveys need, create missing ones, and move to more partitions."""


@command.command("create")
@click.option("--dry-run", is_flag=True, help="Print what would be created; create nothing.")
@settings_options(*KAFKA, "surveys", "prefix", "reports", "partitions", "replication")
def create_command(dry_run: bool, **flags: Any) -> None:
    """Create the topics for reports, estimates and dead letters; list differences of existing ones.

    Existing topics are never changed: more partitions would move reports of one device to another partition, and a
    shorter retention would delete reports that are not counted yet. One survey file that is refused stops the command:
    the retention would be too short for it.
    """
    settings = load_settings(flags)
    topics = Topics(settings)
    findings = topics.compare(wanted(settings, _surveys(settings)))
    if not dry_run:
        topics.create([finding.spec for finding in findings if finding.step == "create"])
    for finding in findings:
        created = finding.step == "create" and not dry_run
        click.echo(f"{finding.spec.name}: created" if created else finding.sentence())
    if any(finding.step == "differs" for finding in findings):
        raise click.ClickException("some topics differ; change them with your broker's tools, or choose another prefix")


def _surveys(settings: Settings) -> list[Survey]:
    surveys = list(load_folder(settings.surveys_folder).values())
    if not surveys:
        raise click.ClickException(
            f"no survey file (*.toml) in {settings.surveys_folder}; the retention of topics follows from the surveys: "
            "put their files there, or set THAW_SURVEYS"
        )
    return surveys


class _Duration(click.ParamType):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@command.command("migrate")
@click.option("--to", type=click.IntRange(1, 4096), metavar="N", help="Create the topic with N partitions.")
@click.option("--finish", is_flag=True, help="Delete the old topic, if nothing is left of it.")
@click.option("--dry-run", is_flag=True, help="With --to and --finish: print what would be done; do nothing.")
@click.option(
    "--quiet",
    type=_Duration(),
    default="1h",
    show_default=True,
    help="Nothing may have come to the old topic for this long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, *REDIS, "surveys", "prefix", "group", "reports", "draining", "replication")
def migrate_command(to: int | None, finish: bool, dry_run: bool, quiet: int, as_json: bool, **flags: Any) -> int:
    """Move a running pipeline to a topic of reports with more partitions, without a loss or a stop.

    With --to: create it and print the steps. Without: say what is left of the old topic, THAW_DRAINING; exit status 0
    if nothing is, 75 if something is. With --finish: delete it.
    """
    settings = load_settings(flags)
    if to is not None and finish:
        raise click.UsageError("--to begins a migration and --finish ends it; give one of them")
    if dry_run and to is None and not finish:
        raise click.UsageError("--dry-run is for --to and --finish")
    check_connection(settings)
    surveys = _surveys(settings)
    if to is not None:
        return _begin(settings, surveys, to, dry_run=dry_run, as_json=as_json)
    old = settings.draining_topic
    if old is None:
        raise click.UsageError("nothing is being drained: set THAW_DRAINING to the old topic, or begin with --to N")
    found = Migration(settings).look(old)
    if found is None:
        raise click.ClickException(f"there is no topic {old}; unset THAW_DRAINING")
    if as_json:
        click.echo(msgspec.json.encode(as_data(found, quiet)))
    reasons = obstacles(found, quiet, finishing=finish)
    if not finish or reasons:
        if not as_json:
            click.echo("\n".join(sentences(found, quiet)))
        if finish:
            raise click.ClickException(f"{old} is not deleted: {'; '.join(reasons)}")
        return NOT_READY if reasons else 0
    if dry_run:
        click.echo(f"{old}: to be deleted", err=as_json)
        return 0
    _finish(settings, old)
    click.echo(f"{old}: deleted", err=as_json)
    return 0


def _begin(settings: Settings, surveys: Sequence[Survey], partitions: int, *, dry_run: bool, as_json: bool) -> int:
    new = dataclasses.replace(settings, reports=name_for(partitions), partitions=partitions, draining=settings.reports)
    topics = Topics(settings)
    held = topics.partitions(settings.reports_topic, new.reports_topic)
    if settings.reports_topic not in held:
        raise click.ClickException(f"there is no topic {settings.reports_topic}; create it with `thaw topics create`")
    if held[settings.reports_topic] >= partitions:
        raise click.ClickException(
            f"{settings.reports_topic} has {held[settings.reports_topic]} partitions; --to must be more than that"
        )
    spec = wanted(new, surveys)[0]
    created = new.reports_topic not in held
    if created and not dry_run:
        topics.create([spec])
    if as_json:
        click.echo(
            msgspec.json.encode(
                {"topic": new.reports_topic, "partitions": partitions, "created": created and not dry_run}
            )
        )
        return 0
    done = ("to be created" if dry_run else "created") if created else "exists"
    click.echo(f"{new.reports_topic}: {done}, {partitions} partitions")
    click.echo("\n".join(steps(settings, partitions)))
    return 0


def _finish(settings: Settings, old: str) -> None:
    """Delete the old topic; from now on everything that is counted comes from the new one."""
    store = open_store(settings)
    state = TopicWatch(settings, settings.reports_topic).look()
    if state is None or not state.partitions:
        raise click.ClickException(
            f"{old} is not deleted: there is no topic {settings.reports_topic}; set THAW_REPORTS to the new one"
        )
    now_ms = store.now_ms()
    Topics(settings).delete(old)
    store.sources.settle(settings.reports_topic, source_of(state), now_ms)
