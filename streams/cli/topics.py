"""`thaw topics`: compare topics with the surveys and create missing ones."""

from __future__ import annotations

from typing import Any

import click

from producers.survey.survey import load_folder
from streams.kafka.topics import Topics, wanted
from streams.settings import KAFKA, load_settings, settings_options


@click.group("topics")
def command() -> None:
    """Compare topics with what the surveys need, and create missing ones."""


@command.command("create")
@click.option("--dry-run", is_flag=True, help="Print what would be created; create nothing.")
@settings_options(*KAFKA, "surveys", "prefix", "partitions", "replication")
def create_command(dry_run: bool, **flags: Any) -> None:
    """Create the topics for reports, estimates and dead letters; list differences of existing ones.

    Existing topics are never changed: more partitions would move reports of one device to another partition, and a
    shorter retention would delete reports that are not counted yet. One survey file that is refused stops the command:
    the retention would be too short for it.
    """
    settings = load_settings(flags)
    surveys = load_folder(settings.surveys_folder).values()
    if not surveys:
        raise click.ClickException(
            f"no survey file (*.toml) in {settings.surveys_folder}; the retention of topics follows from the surveys: "
            "put their files there, or set THAW_SURVEYS"
        )
    topics = Topics(settings)
    findings = topics.compare(wanted(settings, surveys))
    if not dry_run:
        topics.create([finding.spec for finding in findings if finding.step == "create"])
    for finding in findings:
        created = finding.step == "create" and not dry_run
        click.echo(f"{finding.spec.name}: created" if created else finding.sentence())
    if any(finding.step == "differs" for finding in findings):
        raise click.ClickException("some topics differ; change them with your broker's tools, or choose another prefix")
