"""`thaw worker`: count reports and estimate every window."""

from __future__ import annotations

from typing import Any

import click

from streams.connections import check_connection
from streams.repair.unreadable import rebuild_unreadable
from streams.settings import KAFKA, LOGS, REDIS, load_settings, settings_options
from streams.worker.process import ConfigurationError, run_worker


@click.command("worker")
@settings_options(
    *KAFKA,
    *REDIS,
    "surveys",
    "prefix",
    "reports",
    "draining",
    "group",
    "instance",
    "driver",
    "partitions",
    "strict",
    "cache_mib",
    "tick_ms",
    "patience_seconds",
    "bind",
    "worker_port",
    "insecure",
    "tracing",
    *LOGS,
)
def command(**flags: Any) -> int:
    """Count reports from Kafka into Redis and estimate every window. Any number of workers may run.

    Exits with status 75 when it is safe to restart it: no report is lost.
    """
    settings = load_settings(flags)
    check_connection(settings)
    try:
        return run_worker(settings, rebuild_unreadable)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
