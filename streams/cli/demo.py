"""`thaw demo`: the whole path on this machine, with simulated devices whose truth is known.

Starts a broker, a Redis, a worker, the exporter and two fleets (one of them the canary), shows estimate, band and
truth while budgets thaw, and at the end compares what is stored with what the broker acknowledged.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis as RedisClient
from redis import RedisError
from rich.console import Console
from rich.live import Live

from producers.clock import system_clock
from producers.simulation.truth import RedisTruthBoard
from producers.survey.survey import Survey, SurveyError
from streams import logs
from streams.cli.terminal.demo import SurveyView, ValueRow, WindowView, render
from streams.folders import deploy_folder
from streams.kafka.reader import end_offsets
from streams.kafka.topics import Topics, wanted
from streams.local.demo_report import read_journals, report_counts, survey_entry
from streams.local.demo_surveys import DemoSurvey, scaled_copy
from streams.local.services import (
    Child,
    EmbeddedKafka,
    PartError,
    Redis,
    StopOrder,
    Supervisor,
    find_kafka,
    free_ports,
    signals_as_interrupt,
)
from streams.metrics import quantile
from streams.settings import Settings, load_settings
from streams.store.contract import StoreError
from streams.store.redis import RedisStore
from streams.windows.record import EstimateRecord, RecordError, decode_estimate

logger = logging.getLogger(__name__)

DEFAULT_SECONDS = 120
"""What the windows of an endless demo are scaled to: ten of them in two minutes."""
DEVICES = 20_000
WINDOWS_SHOWN = 6
LOOK_SECONDS = 0.5
FLEET_STOP_SECONDS = 8.0
CATCH_UP_SECONDS = 12.0
"""What remains for the worker after the fleets have stopped. The promise is N + 25 s in all, stopping included."""


@dataclass
class Demo:
    """A running demo: its parts, its children and what it can see of them."""

    supervisor: Supervisor
    settings: Settings
    surveys: Sequence[DemoSurvey]
    seed: int
    devices: int
    scenario: str
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
        client = RedisClient.from_url(self.settings.redis)
        self.store = RedisStore(client, prefix=self.settings.prefix)
        self.board = RedisTruthBoard(client, prefix=self.settings.prefix)

    @property
    def journal(self) -> Path:
        """Where the fleets note what the broker has."""
        return self.supervisor.folder / "journal"

    def run_thaw(self, name: str, arguments: Sequence[str], order: StopOrder) -> Child:
        """Start `thaw ...` as a child."""
        return self.supervisor.run(
            name, [sys.executable, "-m", "streams.cli.main", *arguments], order=order, env=self.env
        )

    def start_worker(self) -> None:
        """Start the worker, or start it again."""
        self.worker = self.run_thaw("worker", ["worker"], StopOrder.WORKER)

    def start_exporter(self) -> None:
        """Start the exporter, or start it again."""
        self.exporter = self.run_thaw("exporter", ["exporter"], StopOrder.EXPORTER)

    def start_fleets(self) -> None:
        """Start the fleets at the next windows; the canary behaves by its own table."""
        self.first_window_ms = system_clock() + 1_500
        canaries = [demo for demo in self.surveys if demo.survey.canary is not None]
        others = [demo for demo in self.surveys if demo.survey.canary is None]
        for name, group, extra in (
            ("fleet", others, ["--devices", str(self.devices), "--scenario", self.scenario, "--seed", str(self.seed)]),
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
        """Start the worker or the exporter again if one has ended; anything else that ends is an error."""
        for child, start in ((self.worker, self.start_worker), (self.exporter, self.start_exporter)):
            if child is not None and not child.alive():
                logger.warning("%s ended with status %s; starting it again", child.name, child.returncode)
                self.supervisor.forget(child)
                self.restarts += 1
                start()
        self.supervisor.check()

    def stop_fleets(self) -> None:
        """Stop the fleets; each waits for the broker's word and writes its journal."""
        limit = time.monotonic() + FLEET_STOP_SECONDS
        for fleet in self.fleets:
            self.supervisor.forget(fleet)
            fleet.terminate(max(limit - time.monotonic(), 0.1))

    def caught_up(self) -> bool:
        """Tell whether everything that the broker has is stored, and every estimate is new."""
        topic, partitions = self.settings.reports_topic, self.settings.partitions
        ends = end_offsets(self.settings, topic, partitions)
        shards = max(demo.survey.shards for demo in self.surveys)
        for partition, end in ends.items():
            stored = self.store.offsets(topic, partition, range(partition, shards, partitions))
            if min(stored.values()) < end:
                return False
        return not self.store.dirty()

    def views(self) -> list[SurveyView]:
        """Return what the terminal shows."""
        return [_survey_view(self, demo.survey) for demo in self.surveys]

    def sent(self) -> int:
        """Return the reports that the broker acknowledged, as the fleets said when they ended."""
        total = 0
        for fleet in self.fleets:
            for line in fleet.log.read_text(errors="replace").splitlines():
                with suppress(ValueError, TypeError, KeyError):
                    total += int(json.loads(line)["reports"])
        return total

    def worker_metrics(self) -> str:
        """Return what the worker says about itself; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.worker_port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def latencies(self) -> dict[str, float | None]:
        """Return quantiles of the time from emission to stored estimate, read from the worker's own metrics."""
        buckets = {
            float(sample.labels["le"]): sample.value
            for family in text_string_to_metric_families(self.worker_metrics())
            for sample in family.samples
            if sample.name == "thaw_worker_latency_seconds_bucket"
        }
        return {"p50": quantile(buckets, 0.5), "p99": quantile(buckets, 0.99)}


def _survey_view(demo: Demo, survey: Survey) -> SurveyView:
    windows = []
    now_ms = system_clock()
    for start_ms in reversed(demo.store.window_starts(survey.id)[-WINDOWS_SHOWN:]):
        payload = demo.store.estimate(survey.id, start_ms)
        if payload is None:
            continue
        record = decode_estimate(payload)
        truth = demo.board.read(survey.id, start_ms)
        shares = truth.shares if truth is not None else [None] * len(record.values)
        windows.append(_window_view(record, shares, now_ms))
    return SurveyView(survey.id, survey.question, survey.mechanism.ladder, windows)


def _window_view(record: EstimateRecord, truth: Sequence[float | None], now_ms: int) -> WindowView:
    left_ms = record.window_end_ms - now_ms
    state = f"open for {left_ms / 1000:.1f} s" if left_ms > 0 else f"closed {-left_ms / 1000:.0f} s ago"
    rows = [
        ValueRow(row.value, row.estimate, row.lower, row.upper, true)
        for row, true in zip(record.values, truth, strict=True)
    ]
    return WindowView(state, record.users_per_rung, rows)


@contextmanager
def running(
    kafka: str, files: Sequence[Path], *, seconds: int, seed: int, devices: int, scenario: str
) -> Iterator[Demo]:
    """Start everything but the fleets; stop everything on the way out."""
    with Supervisor(stop_seconds=10.0) as supervisor:
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        surveys = [scaled_copy(path, folder, seconds) for path in files]
        for item in surveys:
            size_ms = item.survey.windows.size_ms
            logger.info("%s: windows of %.1f s (scaled by %.4g)", item.survey.id, size_ms / 1000, item.factor)
        prefix = f"demo-{secrets.token_hex(3)}." if kafka not in ("auto", "real", "embedded") else ""
        draft = load_settings({"surveys": str(folder), "prefix": prefix})
        checked = [item.survey for item in surveys]
        topics = {spec.name: spec.partitions for spec in wanted(draft, checked)}
        broker = find_kafka(kafka, topics=topics, folder=supervisor.folder / "kafka")
        logger.info("broker: %s", broker.kind)
        supervisor.add(broker)
        redis = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        worker_port, exporter_port = free_ports(2)
        flags = {
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
        demo = Demo(
            supervisor, settings, surveys, seed, devices, scenario, broker.kind, worker_port, exporter_port, env
        )
        demo.start_worker()
        demo.start_exporter()
        yield demo


def _wait_for_worker(demo: Demo, seconds: float = 60.0) -> None:
    """Return when the worker reads the topic: its metrics say that partitions are assigned."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        demo.look_after()
        if "thaw_worker_lag_records{" in demo.worker_metrics():
            return
        time.sleep(0.1)
    raise PartError(
        f"the worker did not join within {seconds:.0f} s; its log ends with:\n{demo.worker and demo.worker.tail()}"
    )


def _watch(demo: Demo, end_ms: int | None, console: Console, *, show: bool) -> None:
    """Look after the children and redraw until the time is over; Ctrl-C ends it early."""
    url = f"http://127.0.0.1:{demo.exporter_port}/"
    with Live(console=console, refresh_per_second=4, screen=False, transient=False) if show else _nothing() as live:
        while end_ms is None or system_clock() < end_ms:
            demo.look_after()
            if live is not None:
                note = f"page {url}   seed {demo.seed}   broker {demo.kind}   restarts {demo.restarts}   Ctrl-C stops"
                with suppress(StoreError, RedisError, RecordError):
                    live.update(render(demo.views(), note))
            time.sleep(LOOK_SECONDS)


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def _finish(demo: Demo) -> dict[str, Any]:
    """Stop the fleets, let the worker catch up, and compare."""
    demo.stop_fleets()
    stopped_ms = system_clock()
    limit = time.monotonic() + CATCH_UP_SECONDS
    while time.monotonic() < limit:
        demo.look_after()
        with suppress(StoreError, KafkaException):
            if demo.caught_up():
                break
        time.sleep(0.1)
    else:
        logger.warning("the worker had not caught up after %.0f s", CATCH_UP_SECONDS)
    journals = read_journals(demo.journal)
    surveys, lost, double = [], 0, 0
    for item in demo.surveys:
        entry, audit = survey_entry(
            demo.store, item.survey, [journal for journal in journals if journal.survey_id == item.survey.id]
        )
        surveys.append(entry)
        lost += audit.lost
        double += audit.double
    sent = demo.sent()
    elapsed = max((stopped_ms - demo.first_window_ms) / 1000, 1e-3)
    return {
        "kafka": demo.kind,
        "seed": demo.seed,
        "reports": report_counts(demo.store, [item.survey for item in demo.surveys], sent),
        "lost": lost,
        "double": double,
        "reports_per_second": sent / elapsed,
        "latency_seconds": demo.latencies(),
        "surveys": surveys,
    }


def _summary(result: dict[str, Any]) -> str:
    rows = [row for survey in result["surveys"] for window in survey["windows"] for row in window["estimates"]]
    inside = sum(row["inside"] for row in rows)
    windows = sum(len(survey["windows"]) for survey in result["surveys"])
    latency = result["latency_seconds"]
    text = f"{result['reports']['sent']:,} reports, {result['reports_per_second']:,.0f} a second; "
    text += f"{windows} settled windows, {inside} of {len(rows)} truths inside their band"
    if latency["p50"] is not None:
        text += f"; estimate {latency['p50']:.2f} s behind (p99 {latency['p99']:.2f} s)"
    return f"{text}; lost {result['lost']}, double {result['double']}"


@click.command("demo")
@click.option("--seconds", type=click.IntRange(10, 86_400), help="Stop this long after the first report.")
@click.option(
    "--kafka",
    default="auto",
    show_default=True,
    help="auto: Apache Kafka if installed, else the embedded broker; real; embedded; or HOST:PORT of your own.",
)
@click.option(
    "--survey",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run a scaled copy of this survey instead of the example surveys; may be given several times.",
)
@click.option("--devices", default=DEVICES, show_default=True, type=click.IntRange(1, 10_000_000))
@click.option("--scenario", default="city", show_default=True, help="How the fleet behaves; see `thaw fleet --help`.")
@click.option("--seed", type=int, help="Seed of the fleet; a random one is printed if absent.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, nothing else, on stdout.")
def demo_command(
    seconds: int | None,
    kafka: str,
    files: tuple[Path, ...],
    devices: int,
    scenario: str,
    seed: int | None,
    as_json: bool,
) -> None:
    """Run the whole path on this machine: broker, Redis, worker, exporter and a simulated fleet with known truth.

    Exit status 0 only if nothing was lost and nothing was counted twice. Kill the worker with -9 while it runs: it is
    started again, and the counts do not change.
    """
    logs.configure("info", "human")
    seed = secrets.randbits(32) if seed is None else seed
    console = Console(stderr=True)
    paths = list(files) or [deploy_folder("surveys") / name for name in ("browser.toml", "canary.toml")]
    click.echo(f"seed {seed}", err=True)
    try:
        with (
            signals_as_interrupt(),
            running(
                kafka, paths, seconds=seconds or DEFAULT_SECONDS, seed=seed, devices=devices, scenario=scenario
            ) as demo,
        ):
            _wait_for_worker(demo)
            demo.start_fleets()
            end_ms = demo.first_window_ms + seconds * 1_000 if seconds else None
            click.echo(f"page http://127.0.0.1:{demo.exporter_port}/", err=True)
            with suppress(KeyboardInterrupt):
                _watch(demo, end_ms, console, show=console.is_terminal and not as_json)
            result = _finish(demo)
    except (PartError, SurveyError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None
    if as_json:
        click.echo(json.dumps(result))
    click.echo(_summary(result), err=True)
    if result["lost"] or result["double"]:
        raise SystemExit(1)
