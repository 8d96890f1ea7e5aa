"""The demo: all services, a worker, an exporter and simulated fleets on this machine, and the comparison at the end.

Starts a broker, a Redis, a worker, the exporter and two fleets (one of them the canary); restarts the worker or the
exporter when one ends; at the end compares what is stored with what the broker acknowledged.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families

from producers.clock import system_clock
from producers.survey.survey import load_survey
from producers.wire.shards import shards_of_partition
from streams.connections import librdkafka_options
from streams.kafka.reader import end_offsets
from streams.kafka.topics import Topics, wanted
from streams.local.demo_report import Audit, read_journals, report_counts, survey_entry
from streams.local.demo_surveys import DemoSurvey, scaled_copy
from streams.local.fleet import FleetOptions, plans_for
from streams.local.kafka import EmbeddedKafka, find_kafka
from streams.local.process import Child, ServiceError, free_ports
from streams.local.redis import Redis
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings, load_settings
from streams.store.connect import open_store, open_truths
from streams.store.contract import StoreError
from streams.worker_metrics import quantile

logger = logging.getLogger(__name__)

_OWN_BROKERS = ("auto", "real", "embedded")

FLEET_STOP_SECONDS = 8.0
CATCH_UP_SECONDS = 12.0
"""After the fleets have stopped the worker applies the rest, for as long as that shrinks: this is how long it may stay
as it is. A worker that keeps up needs a second, and the whole command ends within N + 25 s."""
TELL_SECONDS = 5.0


@dataclass(frozen=True)
class Backlog:
    """What the worker has still to do.

    shards: those whose stored offset is below the end of their partition; records: what lies between, over all
    partitions; windows: those that wait for an estimate.
    """

    shards: frozenset[int]
    records: int
    windows: int

    @property
    def size(self) -> tuple[int, int]:
        """How much it is; it shrinks while the worker catches up."""
        return self.records, self.windows


@dataclass
class Demo:
    """A running demo: its services and its children."""

    supervisor: Supervisor
    settings: Settings
    surveys: Sequence[DemoSurvey]
    seed: int
    devices: int
    scenario: str
    real_data: bool
    kind: str
    worker_port: int
    exporter_port: int
    env: dict[str, str]
    fleets: list[Child] = field(default_factory=list)
    worker: Child | None = None
    exporter: Child | None = None
    restarts: int = 0
    first_window_ms: int = 0

    def __post_init__(self) -> None:
        self.store = open_store(self.settings)
        self.truths = open_truths(self.settings)

    @property
    def journal(self) -> Path:
        """The folder in which the fleets record acknowledged reports."""
        return self.supervisor.folder / "journal"

    def run_thaw(self, name: str, arguments: Sequence[str], order: StopOrder) -> Child:
        """Start `thaw ...` as a child."""
        return self.supervisor.run(name, [sys.executable, "-m", "streams.cli", *arguments], order=order, env=self.env)

    def start_worker(self) -> None:
        """Start the worker, or start it again."""
        self.worker = self.run_thaw("worker", ["worker"], StopOrder.WORKER)

    def start_exporter(self) -> None:
        """Start the exporter, or start it again."""
        self.exporter = self.run_thaw("exporter", ["exporter"], StopOrder.EXPORTER)

    def start_fleets(self) -> None:
        """Start the fleets at the next windows; the canary follows its own table."""
        self.first_window_ms = system_clock() + 1_500
        canaries = [demo for demo in self.surveys if demo.survey.canary is not None]
        others = [demo for demo in self.surveys if demo.survey.canary is None]
        behaviour = ["--devices", str(self.devices), "--scenario", self.scenario, "--seed", str(self.seed)]
        for name, group, extra in (
            ("fleet", others, [*behaviour, "--data", "real" if self.real_data else "synthetic"]),
            ("canary", canaries, ["--canary"]),
        ):
            if not group:
                continue
            files = [str(demo.path) for demo in group]
            common = ["--first-window-ms", str(self.first_window_ms), "--journal", str(self.journal / name), "--json"]
            if self.kind == "embedded":
                common += ["--api-version", "2.3"]
            self.fleets.append(self.run_thaw(name, ["fleet", *files, *extra, *common], StopOrder.FLEET))

    def look_after(self) -> None:
        """Restart the worker or the exporter if one has ended; any other end is an error."""
        for child, start in ((self.worker, self.start_worker), (self.exporter, self.start_exporter)):
            if child is not None and not child.alive():
                logger.warning("%s ended with status %s; restarting it", child.name, child.returncode)
                self.supervisor.forget(child)
                self.restarts += 1
                start()
        self.supervisor.check()

    def stop_fleets(self) -> None:
        """Stop the fleets; each waits for the broker's acknowledgements and writes its journal."""
        limit = time.monotonic() + FLEET_STOP_SECONDS
        for fleet in self.fleets:
            self.supervisor.forget(fleet)
            fleet.terminate(max(limit - time.monotonic(), 0.1))
            if fleet.returncode != 0:
                raise ServiceError(
                    f"{fleet.name} ended with status {fleet.returncode} and may not have noted all that was sent, so "
                    f"nothing can be compared; its log ends with:\n{fleet.tail()}"
                )

    @property
    def shards(self) -> int:
        """The largest number of shards of a survey."""
        return max(demo.survey.shards for demo in self.surveys)

    def backlog(self) -> Backlog:
        """Return what the worker has not applied or estimated yet."""
        topic, partitions = self.settings.reports_topic, self.settings.partitions
        behind: set[int] = set()
        records = 0
        for partition, end in end_offsets(self.settings, topic, partitions).items():
            stored = self.store.log.offsets(topic, partition, shards_of_partition(partition, self.shards, partitions))
            behind.update(shard for shard, offset in stored.items() if offset < end)
            records += max([0, *(end - offset for offset in stored.values())])
        return Backlog(frozenset(behind), records, len(self.store.queue.entries()))

    def sent(self) -> int:
        """Return the reports that the broker acknowledged, as the fleets printed when they ended."""
        total = 0
        for fleet in self.fleets:
            for line in fleet.log.read_text(errors="replace").splitlines():
                with suppress(ValueError, TypeError, KeyError):
                    total += int(json.loads(line)["reports"])
        return total

    def worker_metrics(self) -> str:
        """Return the metrics page of the worker; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.worker_port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def latencies(self) -> dict[str, float | None]:
        """Return quantiles of the time from emission to stored estimate, read from the worker's metrics."""
        buckets = {
            float(sample.labels["le"]): sample.value
            for family in text_string_to_metric_families(self.worker_metrics())
            for sample in family.samples
            if sample.name == "thaw_worker_latency_seconds_bucket"
        }
        return {"p50": quantile(buckets, 0.5), "p99": quantile(buckets, 0.99)}


@contextmanager
def running(
    kafka: str,
    files: Sequence[Path],
    given: Mapping[str, Any],
    *,
    seconds: int,
    seed: int,
    devices: int,
    scenario: str,
    real_data: bool,
) -> Iterator[Demo]:
    """Start everything but the fleets; stop everything on the way out. `given` are settings for all that is started.

    Raises:
        SurveyError, FleetError, OutsideError: a file, the scenario or a broker of the user's own cannot be used;
            nothing was started.
        ServiceError: a service of this machine does not start.
    """
    for line in _data_of_fleets(files, devices=devices, scenario=scenario, seed=seed, real_data=real_data):
        logger.info("%s", line)
    if kafka not in _OWN_BROKERS:
        Topics(load_settings({"kafka": kafka})).partitions()
    with Supervisor(stop_seconds=10.0) as supervisor:
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        surveys = [scaled_copy(path, folder, seconds) for path in files]
        for item in surveys:
            size_ms = item.survey.windows.size_ms
            logger.info("%s: windows of %.1f s (scaled by %.4g)", item.survey.id, size_ms / 1000, item.factor)
        prefix = f"demo-{secrets.token_hex(3)}." if kafka not in _OWN_BROKERS else ""
        draft = load_settings({"surveys": str(folder), "prefix": prefix})
        checked = [item.survey for item in surveys]
        topics = {spec.name: spec.partitions for spec in wanted(draft, checked)}
        broker = find_kafka(kafka, topics=topics, folder=supervisor.folder / "kafka", options=librdkafka_options(draft))
        logger.info("broker: %s", broker.kind)
        supervisor.add(broker)
        redis = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        worker_port, exporter_port = free_ports(2)
        flags = {name: value for name, value in given.items() if value is not None} | {
            "kafka": broker.address,
            "redis": redis.url,
            "surveys": str(folder),
            "prefix": prefix,
            "worker_port": worker_port,
            "exporter_port": exporter_port,
            "tick_ms": 250,
        }
        settings = load_settings(flags)
        if not isinstance(broker, EmbeddedKafka):
            Topics(settings).create(wanted(settings, checked))
        env = {f"THAW_{name.upper()}": str(value) for name, value in flags.items()} | {"PYTHONUNBUFFERED": "1"}
        fleet = (seed, devices, scenario, real_data)
        demo = Demo(supervisor, settings, surveys, *fleet, broker.kind, worker_port, exporter_port, env)
        demo.start_worker()
        demo.start_exporter()
        yield demo


def _data_of_fleets(files: Sequence[Path], *, devices: int, scenario: str, seed: int, real_data: bool) -> list[str]:
    """Return a line per survey that says where its values come from.

    Raises what the fleets would raise after everything else was started.
    """
    surveys = {str(path): load_survey(path) for path in files}
    lines = []
    for canary in (False, True):
        chosen = tuple(path for path, survey in surveys.items() if (survey.canary is not None) is canary)
        options = FleetOptions(load_settings(), chosen, devices, scenario, seed, real_data=real_data, canary=canary)
        lines += [f"values of {plan.survey.name}: {plan.data}" for plan in plans_for(options, system_clock())]
    return lines


def wait_for_worker(demo: Demo, seconds: float = 60.0) -> None:
    """Return when the worker reads the topic: its metrics say that partitions are assigned."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        demo.look_after()
        if "thaw_worker_lag_records{" in demo.worker_metrics():
            return
        time.sleep(0.1)
    raise ServiceError(
        f"the worker did not join within {seconds:.0f} s; its log ends with:\n{demo.worker and demo.worker.tail()}"
    )


def _catch_up(demo: Demo) -> frozenset[int]:
    """Wait while what the worker has still to do shrinks; return the shards that are behind at the end."""
    shards, smallest = frozenset(range(demo.shards)), (sys.maxsize, sys.maxsize)
    limit, told = time.monotonic() + CATCH_UP_SECONDS, time.monotonic()
    while time.monotonic() < limit:
        demo.look_after()
        with suppress(StoreError, KafkaException):
            now = demo.backlog()
            shards = now.shards
            if not now.shards and not now.windows:
                return shards
            if now.size < smallest:
                smallest, limit = now.size, time.monotonic() + CATCH_UP_SECONDS
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            logger.info("the worker is %d records and %d windows behind; waiting", *smallest)
        time.sleep(0.1)
    logger.warning(
        "the worker is %d records and %d windows behind, and did not come closer in %.0f s",
        *smallest,
        CATCH_UP_SECONDS,
    )
    return shards


def finish(demo: Demo) -> dict[str, Any]:
    """Stop the fleets, give the worker time to apply the rest, and compare."""
    demo.stop_fleets()
    stopped_ms = system_clock()
    behind = _catch_up(demo)
    journals = read_journals(demo.journal)
    surveys, total = [], Audit(0, 0, 0)
    for item in demo.surveys:
        own = [journal for journal in journals if journal.survey_id == item.survey.id]
        entry, audit = survey_entry(demo.store, item.survey, own, behind, system_clock())
        surveys.append(entry)
        total += audit
    sent = demo.sent()
    elapsed = max((stopped_ms - demo.first_window_ms) / 1000, 1e-3)
    return {
        "kafka": demo.kind,
        "seed": demo.seed,
        "reports": report_counts(demo.store, [item.survey for item in demo.surveys], sent),
        "backlog": total.backlog,
        "lost": total.lost,
        "double": total.double,
        "reports_per_second": sent / elapsed,
        "latency_seconds": demo.latencies(),
        "surveys": surveys,
    }
