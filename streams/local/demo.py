"""The demo: all services, a worker, an exporter and simulated fleets on this machine, and the comparison at the end.

Starts a broker, a Redis, a worker, the exporter and two fleets (one of them the canary), with a gateway before the
broker if that is asked for; restarts worker, exporter or gateway when one ends; at the end compares what is stored with
what the broker acknowledged.
"""

from __future__ import annotations

import json
import logging
import secrets
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families

from producers.clock import system_clock
from producers.wire.shards import shards_of_partition
from streams.connections import librdkafka_options
from streams.kafka.reader import end_offsets
from streams.kafka.topics import Topics, wanted
from streams.local.demo_report import Audit, read_journals, report_counts, survey_entry, tier_entries
from streams.local.demo_settings import own_flags
from streams.local.demo_surveys import DEALT_DEVICES, DemoSurvey, data_of_fleets, scaled_copy
from streams.local.kafka import EmbeddedKafka, find_kafka
from streams.local.process import Child, ServiceError
from streams.local.redis import Redis
from streams.local.service import StopOrder
from streams.local.standing_demo import compared
from streams.local.supervisor import Supervisor
from streams.local.visitors import add_visitors
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
    env: dict[str, str]
    gateway_port: int = 0
    """Port of the gateway through which the fleets send; 0: they send to the broker."""
    visitors: bool = False
    """The page lets visitors answer."""
    fleets: list[Child] = field(default_factory=list)
    worker: Child | None = None
    exporter: Child | None = None
    gateway: Child | None = None
    dealer: Child | None = None
    restarts: int = 0
    first_window_ms: int = 0

    def __post_init__(self) -> None:
        self.store = open_store(self.settings)
        self.truths = open_truths(self.settings)

    @property
    def exporter_port(self) -> int:
        """Port of the page."""
        return self.settings.exporter_port

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

    def start_gateway(self) -> None:
        """Start the gateway, or start it again."""
        self.gateway = self.run_thaw("gateway", ["gateway"], StopOrder.WORKER)

    def start_dealer(self) -> None:
        """Start the dealer, or start it again on the same file."""
        self.dealer = self.run_thaw("dealer", ["dealer"], StopOrder.WORKER)

    def start_fleets(self) -> None:
        """Start the fleets at the next windows; the canary follows its own table."""
        self.first_window_ms = system_clock() + 1_500
        canaries = [demo for demo in self.surveys if demo.survey.canary is not None]
        dealt = [demo for demo in self.surveys if demo.is_dealt]
        others = [demo for demo in self.surveys if demo.survey.canary is None and not demo.is_dealt]
        behaviour = ["--scenario", self.scenario, "--seed", str(self.seed)]
        behaviour += ["--data", "real" if self.real_data else "synthetic"]
        dealer = f"http://127.0.0.1:{self.settings.dealer_port}"
        for name, group, extra in (
            ("fleet", others, [*behaviour, "--devices", str(self.devices)]),
            ("dealt", dealt, [*behaviour, "--devices", str(min(self.devices, DEALT_DEVICES)), "--dealer", dealer]),
            ("canary", canaries, ["--canary"]),
        ):
            if not group:
                continue
            files = [str(demo.path) for demo in group]
            common = ["--first-window-ms", str(self.first_window_ms), "--journal", str(self.journal / name), "--json"]
            if self.gateway_port:
                common += ["--gateway", f"http://127.0.0.1:{self.gateway_port}"]
            elif self.kind == "embedded":
                common += ["--api-version", "2.3"]
            self.fleets.append(self.run_thaw(name, ["fleet", *files, *extra, *common], StopOrder.FLEET))

    def look_after(self) -> None:
        """Restart the worker, the exporter, the gateway or the dealer if one has ended; any other end is an error."""
        for child, start in (
            (self.worker, self.start_worker),
            (self.exporter, self.start_exporter),
            (self.gateway, self.start_gateway),
            (self.dealer, self.start_dealer),
        ):
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
            fleet.send_signal(signal.SIGTERM)
        for fleet in self.fleets:
            self.supervisor.forget(fleet)
            # One signal is enough: a second one ends a process that is about to end by itself.
            if not fleet.wait(max(limit - time.monotonic(), 0.1)):
                fleet.kill()
            # One that the signal itself ended had not begun to send: it handles the signal before it does. One that has
            # printed its result has noted everything, and was only slow to end.
            if fleet.returncode not in (0, -signal.SIGTERM) and _reported(fleet) is None:
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
        return sum(_reported(fleet) or 0 for fleet in self.fleets)

    def worker_metrics(self) -> str:
        """Return the metrics page of the worker; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.settings.worker_port}/metrics", timeout=5) as answer:
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


def _reported(fleet: Child) -> int | None:
    """Return the number of reports that a fleet printed when it was done; None if it did not."""
    for line in reversed(fleet.log.read_text(errors="replace").splitlines()):
        with suppress(ValueError, TypeError, KeyError):
            return int(json.loads(line)["reports"])
    return None


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
    gateway: bool = False,
    visitors: bool = False,
) -> Iterator[Demo]:
    """Start everything but the fleets; stop everything on the way out. `given` are settings for all that is started.

    gateway: the fleets send through one. visitors: the page lets visitors answer, through a gateway too.

    Raises:
        SurveyError, FleetError, OutsideError: a file, the scenario or a broker of the user's own cannot be used;
            nothing was started.
        ServiceError: a service of this machine does not start.
    """
    for line in data_of_fleets(files, devices=devices, scenario=scenario, seed=seed, real_data=real_data):
        logger.info("%s", line)
    if kafka not in _OWN_BROKERS:
        Topics(load_settings({"kafka": kafka})).partitions()
    with Supervisor(stop_seconds=10.0) as supervisor:
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        surveys = [scaled_copy(path, folder, seconds, scenario, visitors=visitors) for path in files]
        for item in surveys:
            size_ms = item.survey.windows.size_ms
            logger.info("%s: windows of %.1f s (scaled by %.4g)", item.survey.id, size_ms / 1000, item.factor)
        prefix = f"demo-{secrets.token_hex(3)}." if kafka not in _OWN_BROKERS else ""
        draft = load_settings({"surveys": str(folder), "prefix": prefix})
        checked = [item.survey for item in surveys]
        topics = {spec.name: spec.partitions for spec in wanted(draft, checked)}
        broker = find_kafka(kafka, topics=topics, folder=supervisor.folder / "kafka", options=librdkafka_options(draft))
        logger.info("broker: %s", broker.kind)
        redis = Redis(folder=supervisor.folder / "redis")
        supervisor.add_together(broker, redis)
        flags = {name: value for name, value in given.items() if value is not None} | {
            "kafka": broker.address,
            "redis": redis.url,
            "surveys": str(folder),
            "prefix": prefix,
            "dealer_file": str(supervisor.folder / "dealer.sqlite"),
            **own_flags(visitors=visitors),
        }
        settings = load_settings(flags)
        if not isinstance(broker, EmbeddedKafka):
            Topics(settings).create(wanted(settings, checked))
        env = {f"THAW_{name.upper()}": str(value) for name, value in flags.items()} | {"PYTHONUNBUFFERED": "1"}
        fleet = (seed, devices, scenario, real_data)
        demo = Demo(supervisor, settings, surveys, *fleet, broker.kind, env, visitors=visitors)
        demo.start_worker()
        demo.start_exporter()
        _start_gateway(demo, fleets=gateway)
        _start_dealer(demo)
        yield demo


def _start_gateway(demo: Demo, *, fleets: bool) -> None:
    """Start a gateway if fleets or visitors send through it."""
    if fleets or demo.visitors:
        demo.start_gateway()
    if fleets:
        demo.gateway_port = demo.settings.gateway_port
        _wait_for(demo, "gateway", demo.gateway_port)


def _start_dealer(demo: Demo) -> None:
    """Start a dealer if a survey of the demo has cards."""
    if any(item.is_dealt for item in demo.surveys):
        demo.start_dealer()
        _wait_for(demo, "dealer", demo.settings.dealer_port)


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


def _wait_for(demo: Demo, name: str, port: int, seconds: float = 60.0) -> None:
    """Return when a child answers; of the gateway also its broker."""
    limit = time.monotonic() + seconds
    url = f"http://127.0.0.1:{port}/healthz"
    while time.monotonic() < limit:
        demo.look_after()
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise ServiceError(f"the {name} did not answer within {seconds:.0f} s; see {demo.supervisor.folder / name}.log")


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
    visitors = add_visitors(demo.settings, [item.survey for item in demo.surveys], journals) if demo.visitors else 0
    surveys, total = [], Audit(0, 0, 0)
    counted = [one for item in demo.surveys for one in (item.survey, *item.survey.tier_surveys)]
    for one in counted:
        own = [journal for journal in journals if journal.survey_id == one.id]
        entry, audit = survey_entry(demo.store, one, own, behind, system_clock())
        surveys.append(entry)
        total += audit
    sent = demo.sent()
    answered = next((item.survey for item in demo.surveys if item.survey.standing), None)
    ways = None if answered is None else compared(answered, demo.seed)
    elapsed = max((stopped_ms - demo.first_window_ms) / 1000, 1e-3)
    result: dict[str, Any] = {
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
    result |= {"visitors": visitors} if demo.visitors else {}
    tiers = tier_entries(counted, surveys)
    result |= {"tiers": tiers} if tiers else {}
    return result if ways is None else result | {"standing": [asdict(way) for way in ways]}
