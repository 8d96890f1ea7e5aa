"""A simulated fleet on this machine: plans from survey files, one process or several, reports to Kafka."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from estimators.simulation.simulator import simulator_of
from producers.clock import system_clock
from producers.simulation.fleet import BLOCK, Plan
from producers.simulation.kafka import KafkaPublisher
from producers.simulation.run import FleetRun, Progress
from producers.simulation.scenarios import falling_shares, flights, scenario_named
from producers.survey.survey import Survey, load_survey
from streams.connections import kafka_python_options
from streams.local.exec import die_with_parent
from streams.settings import Settings
from streams.store.connect import open_truths


class FleetError(ValueError):
    """The options of a fleet do not fit its survey; the message says what to change."""


class FleetEndedError(RuntimeError):
    """A process of the fleet ended before its work was done."""


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
    simulator = simulator_of(survey.mechanism)
    days, shares, devices, seed = None, falling_shares(simulator.kinds), options.devices, options.seed
    if options.canary:
        canary = survey.canary
        if canary is None:
            raise FleetError(f"{survey.name} has no [canary] table; name a survey that has one, or leave --canary out")
        shares, devices, seed = np.asarray(canary.shares, dtype=np.float64), canary.devices, canary.seed
    name = "steady" if options.canary else options.scenario
    if name == "flights":
        days = flights(survey.mechanism.labels)
        devices = max(len(day) for day in days)
        name = "steady"
    if simulator.jointly_encoded and devices > BLOCK:
        # Devices are encoded block by block; two dealers, for example, would hand out the same deck twice.
        raise FleetError(
            f"a simulated fleet of {survey.mechanism.name} {simulator.jointly_encoded}, for at most {BLOCK} devices; "
            f"got {devices}; use --devices"
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
    truths = open_truths(settings) if options.truth else None
    kafka_options = kafka_python_options(settings)
    if options.api_version is not None:
        kafka_options["api_version"] = options.api_version
    publisher = KafkaPublisher(settings.reports_topic, kafka_options)
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
        truths=truths,
        stopping=stop.is_set,
        on_progress=tell,
    )
    progress = run.run()
    publisher.close()
    return progress


def run_fleet(options: FleetOptions, tell: Callable[[Progress], None] = lambda _: None) -> Progress:
    """Run a fleet in this process, or in several side by side; return what they did together.

    Raises:
        FleetError: the options do not fit a survey.
        FleetEndedError: one of several processes ended early.
    """
    first_ms = system_clock()
    plans_for(options, first_ms)  # refuses what cannot be simulated before anything is connected or started
    if options.processes == 1:
        return run_process(options, 0, first_ms, tell)
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
    latest = {process: Progress() for process in range(options.processes)}
    finished: set[int] = set()
    while len(finished) < options.processes:
        try:
            process, progress, done = queue.get(timeout=0.5)
        except Empty:
            dead = [i for i, worker in enumerate(workers) if i not in finished and not worker.is_alive()]
            if dead:
                raise FleetEndedError(
                    f"fleet process {dead[0]} ended with status {workers[dead[0]].exitcode}; start the fleet again "
                    f"with --seed {options.seed} to send the same reports"
                ) from None
            continue
        latest[process] = progress
        if done:
            finished.add(process)
        tell(_total(latest.values()))
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
