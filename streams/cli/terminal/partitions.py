"""Partitions of the topic of reports, for commands that place reports or look for them by their shard."""

from __future__ import annotations

import click

from streams.kafka.reader import TopicReader
from streams.settings import Settings


def check_partitions(settings: Settings, reader: TopicReader) -> None:
    """Check that the setting agrees with the topic.

    Raises:
        click.ClickException: it does not.
    """
    if reader.partitions != settings.partitions:
        raise click.ClickException(
            f"{settings.reports_topic} has {reader.partitions} partitions, THAW_PARTITIONS says "
            f"{settings.partitions}; set it to what the topic has"
        )
