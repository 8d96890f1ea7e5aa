"""A simulated fleet on this machine: plans from survey files, one process or several, reports to Kafka."""

from __future__ import annotations

import http.client
import logging
import multiprocessing
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from estimators.simulation.simulator import simulator_of
from producers.clock import system_clock
from producers.simulation.dealing import Dealings
from producers.simulation.fleet import BLOCK, Plan
from producers.simulation.gateway import GatewayPublisher
from producers.simulation.kafka import KafkaPublisher
from producers.simulation.recordings import Recording, is_recorded, recording_of
from producers.simulation.run import FleetRun, Progress
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey, load_survey
from streams import logs
from streams.connections import kafka_python_options
from streams.failures import UnavailableError
from streams.kafka.topics import Topics
from streams.local.canary import CanaryAuditor
from streams.local.exec import die_with_parent
from streams.local.truths import PatientTruths
from streams.logs import StateLog
from streams.settings import Settings
from streams.store.connect import open_store, open_truths
from streams.urls import without_secrets

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
# How long a gateway may be away when a fleet starts. Shorter: one that is restarted just then ends the fleet; longer: a
# wrong address is an error only after that time, though it is logged at once.
GATEWAY_SECONDS = 30.0
_LOOK_SECONDS = 0.2
SYNTHETIC = "synthetic: drawn from known shares"


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
    seed: int
    real_data: bool = False
    jump: tuple[int, int, float] | None = None
    windows: int | None = None
    rate: float | None = None
    live: bool = True
    canary: bool = False
    first_window_ms: int | None = None
    tick_ms: int = 100
    journal: str | None = None
    truth: bool = True
    processes: int = 1
    gateway: str = ""
    dealer: str = ""
    """Address of the dealer that devices ask for cards; empty: the fleet deals to itself."""
    """Address of the gateway through which reports go; empty: to the broker."""
    api_version: tuple[int, ...] | None = None


def plans_for(options: FleetOptions, now_ms: int) -> list[Plan]:
    """Turn options into plans: one per survey file."""
    return [_plan(options, load_survey(Path(file)), now_ms) for file in options.files]


def _plan(options: FleetOptions, survey: Survey, now_ms: int) -> Plan:
    simulator = simulator_of(survey.mechanism)
    shares, devices, seed = falling_shares(simulator.kinds), options.devices, options.seed
    if options.canary:
        canary = survey.canary
        if canary is None:
            raise FleetError(f"{survey.name} has no [canary] table; name a survey that has one, or leave --canary out")
        shares, devices, seed = np.asarray(canary.shares, dtype=np.float64), canary.devices, canary.seed
    name = "steady" if options.canary else options.scenario
    if options.jump is not None and not 0 <= options.jump[1] < len(shares):
        raise FleetError(
            f"--jump: {survey.name} has the values 0 to {len(shares) - 1}, by index; got {options.jump[1]}; choose one"
        )
    recording, data = _recording(options, survey)
    if recording is not None:
        devices = recording.devices
        name = "steady" if name == "flights" else name
    scenario = scenario_named(name, jump=options.jump)
    if scenario.needs and not getattr(survey, scenario.needs.rpartition(".")[2]):
        raise FleetError(
            f"--scenario {name} is for surveys with {scenario.needs} = true, and {survey.name} is none; write it into "
            "its file, or choose another scenario"
        )
    if options.dealer:
        _check_dealt(options, survey)
        data += "; every device asks the dealer for a card"
    elif simulator.jointly_encoded and devices > BLOCK:
        # Devices are encoded block by block; two dealers, for example, would hand out the same deck twice.
        raise FleetError(
            f"a simulated fleet of {survey.mechanism.name} {simulator.jointly_encoded}, for at most {BLOCK} devices; "
            f"got {devices}; use --devices"
        )
    return Plan(
        survey,
        devices,
        scenario,
        seed,
        shares,
        first_window(options, survey, now_ms),
        recording,
        data,
    )


def _check_dealt(options: FleetOptions, survey: Survey) -> None:
    if not survey.mechanism.cards:
        raise FleetError(f"--dealer: {survey.name} ({survey.mechanism.name}) has no cards; leave --dealer out for it")
    if not options.live:
        raise FleetError("--dealer deals cards of windows that are open; leave --pace fast out")


def _recording(options: FleetOptions, survey: Survey) -> tuple[Recording | None, str]:
    """Return the real data that a fleet replays, None where it draws its values, and the same in words.

    Raises:
        FleetError: the user asked for exactly these data and they cannot be replayed.
    """
    flights = options.scenario == "flights" and not options.canary
    if not flights and not (options.real_data and is_recorded(survey)):
        return None, SYNTHETIC
    if options.jump is not None:
        raise FleetError("--jump changes drawn values, and real data are replayed as they are; leave one of both out")
    try:
        found = recording_of(survey, "carriers" if flights else survey.name).sample(options.devices, options.seed)
    except ValueError as error:
        if flights:
            raise FleetError(f"--scenario flights with {survey.name}: {error}") from error
        return None, f"{SYNTHETIC}; there are real data, but {error}"
    return found, f"{found.source}; {found.devices:,} devices"


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
    publisher = _publisher(options)
    with ExitStack() as opened:
        truths = opened.enter_context(PatientTruths(open_truths(settings))) if options.truth else None
        audits = options.truth and options.canary
        watch = opened.enter_context(CanaryAuditor(open_store(settings))) if audits else None
        cards = opened.enter_context(closing(Dealings(options.dealer))) if options.dealer else None
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
            watch=watch,
            cards=cards,
            stopping=stop.is_set,
            on_progress=tell,
        )
        progress = run.run()
    publisher.close()
    return progress


def _publisher(options: FleetOptions) -> KafkaPublisher | GatewayPublisher:
    if options.gateway:
        return GatewayPublisher(options.gateway)
    kafka_options = kafka_python_options(options.settings)
    if options.api_version is not None:
        kafka_options["api_version"] = options.api_version
    return KafkaPublisher(options.settings.reports_topic, kafka_options)


def run_fleet(options: FleetOptions, tell: Callable[[Progress], None] = lambda _: None) -> Progress:
    """Run a fleet in this process, or in several side by side; return what they did together.

    Raises:
        FleetError: the options do not fit a survey.
        FleetEndedError: one of several processes ended early.
        OutsideError: no broker or gateway answers, or it refuses this user.
        OSError: the journal cannot be written.
    """
    first_ms = system_clock()
    # Everything that can be refused is refused before anything is started.
    plans_for(options, first_ms)
    if options.journal:
        Path(options.journal).mkdir(parents=True, exist_ok=True)
    if options.truth:
        open_truths(options.settings)  # refuses a certificate file that cannot be used
    if options.gateway:
        _check_gateway(options.gateway)
    else:
        _check_broker(options.settings)
    if options.processes == 1:
        return run_process(options, 0, first_ms, tell)
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    parent_pid = os.getpid()
    workers = [
        context.Process(target=_spawned, args=(options, process, first_ms, parent_pid, queue))
        for process in range(options.processes)
    ]

    def stop_all(*_: object) -> None:
        for worker in multiprocessing.active_children():
            worker.terminate()

    # Before anything is sent: a fleet that such a signal ends by itself has sent nothing.
    signal.signal(signal.SIGTERM, stop_all)
    signal.signal(signal.SIGINT, stop_all)
    for worker in workers:
        worker.start()
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


def _check_broker(settings: Settings) -> None:
    """Raise OutsideError unless a broker answers and lets this user write; a missing topic may come later."""
    topics = Topics(settings)
    if settings.reports_topic in topics.partitions(settings.reports_topic):
        topics.check_rights(writes=[settings.reports_topic])


def _check_gateway(url: str) -> None:
    """Raise UnavailableError unless a gateway answers whose broker answers; one that starts again just now may."""
    limit = time.monotonic() + GATEWAY_SECONDS
    state = StateLog(logger, f"the gateway at {without_secrets(url)}")
    while True:
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/healthz", timeout=ANSWER_SECONDS):
                state.up()
                return
        except (OSError, http.client.HTTPException, ValueError) as error:
            state.down(error)
            if time.monotonic() >= limit:
                raise UnavailableError(
                    f"no gateway with a broker answers at {without_secrets(url)} ({error})"
                ) from None
        time.sleep(_LOOK_SECONDS)


def _spawned(options: FleetOptions, process: int, first_ms: int, parent_pid: int, queue: Any) -> None:
    die_with_parent(parent_pid)
    logs.configure(options.settings.log_level, options.settings.log_format)
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
