"""A simulated fleet of the past through a real worker: for tests that judge many windows at once and wait for none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from producers.survey.survey import Survey, load_survey
from streams.kafka.topics import Topics, wanted
from streams.local.demo_report import WindowJournal, read_journals
from streams.local.process import free_ports
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import load_settings
from streams.store.redis import RedisStore
from tests.integration.test_poison import metric
from tests.support.deadline import until

THAW = [sys.executable, "-m", "streams.cli"]


Counted = tuple[RedisStore, list[Survey], list[WindowJournal]]
"""Where the reports were counted, of which surveys, and what the broker acknowledged of each window."""


def fleet_through_worker(kafka: str, redis_url: str, prefix: str, folder: Path, arguments: Sequence[str]) -> Counted:
    """Send the past of all surveys in `folder` through one worker; return when every window is estimated."""
    with worker_with_fleet(kafka, redis_url, prefix, folder, arguments) as counted:
        return counted


@contextmanager
def worker_with_fleet(
    kafka: str, redis_url: str, prefix: str, folder: Path, arguments: Sequence[str]
) -> Iterator[Counted]:
    """Send the past of all surveys in `folder` through one worker, which goes on once every window is estimated.

    Args:
        kafka: address of the broker.
        redis_url: address of Redis.
        prefix: of topics and keys, fresh.
        folder: holds the survey files; the fleet's journal goes beside them.
        arguments: of `thaw fleet`, beyond survey files, pace and journal.
    """
    files = sorted(folder.glob("*.toml"))
    surveys = [load_survey(path) for path in files]
    flags = {"kafka": kafka, "redis": redis_url, "surveys": str(folder), "prefix": prefix, "group": prefix}
    [port] = free_ports(1)
    flags["worker_port"] = str(port)
    env = {f"THAW_{name.upper()}": value for name, value in flags.items()}
    settings = load_settings(environment=env)
    Topics(settings).create(wanted(settings, surveys))
    store = RedisStore(Redis.from_url(redis_url), prefix=prefix)
    journal = folder / "journal"
    with Supervisor() as supervisor:
        supervisor.run("worker", [*THAW, "worker"], order=StopOrder.WORKER, env=env)
        fleet = [*THAW, "fleet", *map(str, files), "--pace", "fast", "--journal", str(journal), "--json", *arguments]
        sent = json.loads(subprocess.run(fleet, env=os.environ | env, stdout=subprocess.PIPE, check=True).stdout)

        def done() -> bool:
            supervisor.check()
            counters = [store.log.counters(survey.id) for survey in surveys]
            counted = sum(some.applied + some.duplicate + some.outdated for some in counters)
            # A window is queued after its counts are stored, and the worker counts its reports after that.
            return (
                counted == sent["reports"]
                and metric(port, "thaw_worker_reports_total") >= counted
                and not store.queue.entries()
            )

        until(done, 120, "every report is applied and every window estimated")
        yield store, surveys, read_journals(journal)
