"""The whole path on this machine, with a supervisor that restarts what ends: the system that chaos tests break."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, get_args

from confluent_kafka import KafkaException

from producers.clock import system_clock
from producers.survey.survey import Survey, load_survey
from producers.wire.shards import shards_of_partition
from streams.kafka.reader import end_offsets
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, free_ports
from streams.local.redis import Redis
from streams.local.service import Program, StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import DriverName, Settings
from streams.store.connect import open_store
from streams.store.contract import StoreError
from streams.worker.applier import DEFAULT_SHARDS
from tests.chaos import surveys, transactions
from tests.chaos.told import Told

logger = logging.getLogger(__name__)

RECOVERY_SECONDS = 240.0
"""A run that has not recovered by then is taken for stuck. Seconds are normal, tens of them on a busy machine."""
HOLD_MS = 20
"""How long the gateway holds reports. Every agent waits for it: longer, and a thousand of them send too little."""
_WORKERS = "streams.cli", "tests.support.walking_worker"
"""Batches here are short: every other worker walks all of them by compiled code, as long ones are walked."""
_RESTART_SECONDS = 0.2
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 2.0
DRIVERS: Final[tuple[DriverName, ...]] = get_args(DriverName)
GOOD_ENDINGS = frozenset({0, 75, -9})
"""How a worker may end: asked to stop, status 75 (safe to restart), killed by us."""


class StuckError(RuntimeError):
    """The system did not recover; the message says what is missing and carries the logs' ends."""


class Broker(ApacheKafka):
    """Says more than others: what became of transactions, and when it lost its place in the cluster."""

    jvm_options = (
        *ApacheKafka.jvm_options,
        "-Dorg.slf4j.simpleLogger.log.kafka.coordinator.transaction=info",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.BrokerLifecycleManager=info",
    )


@dataclass
class Kept:
    """A command that is started again whenever it ends, until it is asked to stop."""

    name: str
    argv: Sequence[str]
    order: StopOrder
    env: dict[str, str] = field(default_factory=dict)
    child: Child | None = None
    paused: bool = False
    endings: Counter[int] = field(default_factory=Counter)
    start_after: float = 0.0


class System:
    """Broker, Redis, workers, a vectorised fleet, and real device agents behind a gateway.

    Args:
        supervisor: owns all processes and the folder.
        devices: of the vectorised fleet, in each of its surveys.
        agents: real devices with a ledger each.
        ledgers: where the ledgers go; in memory if the machine has such a folder, since a killed process loses nothing
            that it has written, and a thousand ledgers would only wait for the disk.
        seed: of the fleet.
        driver: with which workers read Kafka.
    """

    worker_count = 2
    tick_ms = 250
    survey_names: tuple[str, ...] = ("FLEET", "BITS", "KEYS", "LONGER", "AGENTS")

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        devices: int,
        agents: int,
        ledgers: Path,
        seed: int,
        driver: DriverName = DRIVERS[0],
    ) -> None:
        self.supervisor, self.ledgers, self.agents = supervisor, ledgers, agents
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        files = {}
        for name in self.survey_names:
            files[name] = folder / f"{name.lower()}.toml"
            files[name].write_text(getattr(surveys, name))
        self.agents_survey = load_survey(files["AGENTS"])
        fleets = [file for name, file in files.items() if name != "AGENTS"]
        self.surveys: list[Survey] = [*map(load_survey, fleets), self.agents_survey]
        self.settings = replace(self.start_services(), surveys=str(folder), tick_ms=self.tick_ms)
        Topics(self.settings).create(wanted(self.settings, self.surveys))
        self.store = open_store(self.settings)
        self._busy: set[Program] = set()
        self._lock = threading.Lock()
        self.hanging, self._look_after = transactions.Hanging(), 0.0
        self.journal = supervisor.folder / "journal"
        self.told = Told(supervisor.folder, self._worker_runs)
        thaw = [sys.executable, "-m", "streams.cli"]
        env = _env(self.settings, driver)
        *ports, guest_port, gateway_port, gateway_metrics_port = free_ports(self.worker_count + 3)
        self.workers = [
            Kept(
                f"worker-{number}",
                [sys.executable, "-m", _WORKERS[number % len(_WORKERS)], "worker"],
                StopOrder.WORKER,
                env | {"THAW_INSTANCE": f"worker-{number}", "THAW_WORKER_PORT": str(port)},
            )
            for number, port in enumerate(ports)
        ]
        self.guest = Kept(
            "worker-guest",
            [*thaw, "worker"],
            StopOrder.WORKER,
            env | {"THAW_INSTANCE": "guest", "THAW_WORKER_PORT": str(guest_port)},
        )
        fleet = ["fleet", *map(str, fleets), "--devices", str(devices), "--scenario", "city"]
        fleet += ["--seed", str(seed), "--first-window-ms", str(system_clock()), "--journal", str(self.journal)]
        self.fleet = Kept("fleet", [*thaw, *fleet, "--no-truth", "--json"], StopOrder.FLEET, env)
        ports_env = _gateway_env(gateway_port, gateway_metrics_port)
        self.gateway = Kept("gateway", [*thaw, "gateway"], StopOrder.WORKER, env | ports_env)
        words = [str(ledgers), str(files["AGENTS"]), str(agents), f"http://127.0.0.1:{gateway_port}"]
        self.devices = Kept(
            "agents",
            [sys.executable, "-m", "tests.chaos.agents", *words],
            StopOrder.FLEET,
            env,
        )
        self.kept = [*self.workers, self.gateway, self.fleet, self.devices]
        self.told.start()

    def start_services(self) -> Settings:
        """Start Kafka and Redis; return the settings with which they are reached."""
        self.kafka = self.supervisor.add(Broker(folder=self.supervisor.folder / "kafka"))
        self.redis = self.supervisor.add(Redis(folder=self.supervisor.folder / "redis"))
        return Settings(kafka=self.kafka.address, redis=self.redis.url)

    # What runs, and what is started again.

    def look_after(self) -> None:
        """Start again what has ended."""
        now = time.monotonic()
        for kept in self.kept:
            if kept.child is not None and not kept.child.alive():
                self._note_end(kept)
                kept.start_after = now + _RESTART_SECONDS
            if kept.child is None and now >= kept.start_after:
                kept.child = self.supervisor.run(kept.name, kept.argv, order=kept.order, env=kept.env)

    def _note_end(self, kept: Kept) -> None:
        assert kept.child is not None
        status = kept.child.returncode
        assert status is not None
        kept.endings[status] += 1
        logger.info("%s ended with status %d", kept.name, status)
        if status not in GOOD_ENDINGS:
            logger.warning("the end of its log:\n%s", kept.child.tail())
        self.supervisor.forget(kept.child)
        kept.child, kept.paused = None, False

    def dismiss(self, kept: Kept, seconds: float) -> int:
        """Tell a process to end as planned, wait for it, and return its status."""
        self.kept = [other for other in self.kept if other is not kept]
        if kept.child is None:
            return 0
        kept.child.terminate(seconds)
        status = kept.child.returncode
        self._note_end(kept)
        assert status is not None
        return status

    def invite(self) -> None:
        """Let a third worker join, or stop again if it runs and can handle the signal."""
        if self.guest not in self.kept:
            self.kept.append(self.guest)
        elif self.guest.child is not None and _takes_orders(self.guest.child):
            self.dismiss(self.guest, 30.0)

    def bring_back(
        self,
        service: Program,
        *,
        after_seconds: float,
        before: Callable[[], object] = lambda: None,
        traceless: bool = False,
    ) -> None:
        """Start a killed service again in the background, after a while and after what `before` does to its data.

        `traceless`: once it runs nobody can tell any more that it was away.
        """
        fault = self.told.number
        with self._lock:
            self._busy.add(service)

        def restart() -> None:
            try:
                time.sleep(after_seconds)
                before()
                service.start()
                if traceless:
                    self.told.over(fault)
            except Exception:
                logger.exception("%s did not start again", service.name)
            finally:
                with self._lock:
                    self._busy.discard(service)

        threading.Thread(target=restart, name=f"restart {service.name}", daemon=True).start()

    def await_restarts(self) -> None:
        """Return when no service is being started in the background; only then can the next fault begin."""
        self.wait(self._services_run, "the services to be back", only_services=True)
        self.told.begin()

    def _services_run(self) -> bool:
        with self._lock:
            return not self._busy

    def _worker_runs(self) -> bool:
        """Tell whether a worker runs that is neither starting nor paused."""
        return any(_takes_orders(kept.child) for kept in (*self.workers, self.guest) if kept.child and not kept.paused)

    # What the outside can see of it.

    def end_offsets(self) -> dict[int, int]:
        """Return the end of every partition of the reports topic."""
        return end_offsets(self.settings, self.settings.reports_topic, self.settings.partitions)

    def stored(self, ends: dict[int, int]) -> bool:
        """Tell whether everything below these offsets is in the store."""
        shards = max(DEFAULT_SHARDS, *(survey.shards for survey in self.surveys))
        for partition, end in ends.items():
            numbers = shards_of_partition(partition, shards, self.settings.partitions)
            if min(self.store.log.offsets(self.settings.reports_topic, partition, numbers).values()) < end:
                return False
        return True

    def all_run(self) -> bool:
        """Tell whether every service and process runs and none is paused."""
        running = all(
            kept.child is not None and kept.child.alive() and not kept.paused and _takes_orders(kept.child)
            for kept in self.kept
        )
        return running and self._services_run() and self.services_alive()

    def faults(self) -> list[str]:
        """Return what else went wrong, at the end of a run."""
        return [
            f"partition {partition}: the broker did not end the transaction at {offset}; look for it in its log"
            for partition, offset in sorted(self.hanging.partitions.items())
        ]

    def notes(self) -> list[str]:
        """Return what else was measured, at the end of a run."""
        return []

    def services_alive(self) -> bool:
        """Tell whether Kafka and Redis run."""
        return self.kafka.alive() and self.redis.alive()

    def recover(self) -> None:
        """Return when everything runs again and what the broker has at that moment is in the store.

        Without what lies behind a transaction that the broker does not end: nobody can read that.

        Raises:
            StuckError: it did not happen.
        """
        self.wait(self.all_run, "all processes to run")
        ends: dict[int, int] = {}

        def caught_up() -> bool:
            try:
                if not ends:
                    ends.update(self.end_offsets())
                if self.stored(ends):
                    return True
                if time.monotonic() >= self._look_after:
                    self._look_after = time.monotonic() + _LOOK_SECONDS
                    self.hanging.look(transactions.places(self.settings))
                    ends.update(
                        {partition: min(ends[partition], at) for partition, at in self.hanging.partitions.items()}
                    )
            except (KafkaException, StoreError):
                pass
            return False

        self.wait(caught_up, "the store to have what the broker has")

    def wait(self, condition: Callable[[], bool], what: str, *, only_services: bool = False) -> None:
        """Poll while looking after everything.

        Raises:
            StuckError: the condition did not come true.
        """
        limit = time.monotonic() + RECOVERY_SECONDS
        while True:
            if not only_services:
                self.look_after()
            if condition():
                return
            if time.monotonic() > limit:
                raise StuckError(f"expected {what} within {RECOVERY_SECONDS:.0f} s;\n{self._logs()}")
            time.sleep(_POLL_SECONDS)

    def spend(self, seconds: float) -> None:
        """Let it run for a while, looking after everything."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.look_after()
            time.sleep(_POLL_SECONDS)

    def _logs(self) -> str:
        tails = []
        for kept in self.kept:
            tails.append(f"{kept.name} ({'runs' if kept.child is not None and kept.child.alive() else 'ended'}):")
            if kept.child is not None:
                tails.append(kept.child.tail())
        return "\n".join(tails)


def _env(settings: Settings, driver: DriverName) -> dict[str, str]:
    return {
        "THAW_KAFKA": settings.kafka,
        "THAW_REDIS": settings.redis,
        "THAW_SURVEYS": settings.surveys,
        "THAW_TICK_MS": str(settings.tick_ms),
        "THAW_DRIVER": driver,
        "PYTHONUNBUFFERED": "1",
    }


def _gateway_env(port: int, metrics_port: int) -> dict[str, str]:
    settings = {"port": port, "metrics_port": metrics_port, "hold_ms": HOLD_MS, "rate": 0}
    return {f"THAW_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()}


def _takes_orders(child: Child) -> bool:
    """Tell whether a process has come so far that it handles SIGTERM: before that it would simply die of it."""
    try:
        status = Path(f"/proc/{child.pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
