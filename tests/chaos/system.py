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
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.contract import StoreError
from streams.worker.applier import DEFAULT_SHARDS
from tests.chaos import surveys
from tests.chaos.told import Told

logger = logging.getLogger(__name__)

RECOVERY_SECONDS = 240.0
"""A run that has not recovered by then is taken for stuck. Seconds are normal, tens of them on a busy machine."""
_RESTART_SECONDS = 0.2
_POLL_SECONDS = 0.05
GOOD_ENDINGS = frozenset({0, 75, -9})
"""How a worker may end: asked to stop, status 75 (safe to restart), killed by us."""


class StuckError(RuntimeError):
    """The system did not recover; the message says what is missing and carries the logs' ends."""


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
    """Broker, Redis, workers, a vectorised fleet and real device agents.

    Args:
        supervisor: owns all processes and the folder.
        devices: of the vectorised fleet, in each of its surveys.
        agents: real devices with a ledger each.
        ledgers: where the ledgers go; in memory if the machine has such a folder, since a killed process loses nothing
            that it has written, and a thousand ledgers would only wait for the disk.
        seed: of the fleet.
    """

    worker_count = 2
    tick_ms = 250
    survey_names: tuple[str, ...] = ("FLEET", "BITS", "KEYS", "AGENTS")

    def __init__(self, supervisor: Supervisor, *, devices: int, agents: int, ledgers: Path, seed: int) -> None:
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
        self.journal = supervisor.folder / "journal"
        self.told = Told(supervisor.folder, self._worker_runs)
        thaw = [sys.executable, "-m", "streams.cli"]
        env = {
            "THAW_KAFKA": self.settings.kafka,
            "THAW_REDIS": self.settings.redis,
            "THAW_SURVEYS": self.settings.surveys,
            "THAW_TICK_MS": str(self.settings.tick_ms),
            "PYTHONUNBUFFERED": "1",
        }
        *ports, guest_port = free_ports(self.worker_count + 1)
        self.workers = [
            Kept(
                f"worker-{number}",
                [*thaw, "worker"],
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
        words = [str(ledgers), str(files["AGENTS"]), str(agents), self.settings.kafka, self.settings.reports_topic]
        self.devices = Kept(
            "agents",
            [sys.executable, "-m", "tests.chaos.agents", *words],
            StopOrder.FLEET,
            env,
        )
        self.kept = [*self.workers, self.fleet, self.devices]
        self.told.start()

    def start_services(self) -> Settings:
        """Start Kafka and Redis; return the settings with which they are reached."""
        self.kafka = self.supervisor.add(ApacheKafka(folder=self.supervisor.folder / "kafka"))
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
        self, service: Program, *, after_seconds: float, before: Callable[[], object] = lambda: None
    ) -> None:
        """Start a killed service again in the background, after a while and after what `before` does to its data."""
        with self._lock:
            self._busy.add(service)

        def restart() -> None:
            try:
                time.sleep(after_seconds)
                before()
                service.start()
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
        return []

    def services_alive(self) -> bool:
        """Tell whether Kafka and Redis run."""
        return self.kafka.alive() and self.redis.alive()

    def recover(self) -> None:
        """Return when everything runs again and what the broker has at that moment is in the store.

        Raises:
            StuckError: it did not happen.
        """
        self.wait(self.all_run, "all processes to run")
        ends: dict[int, int] = {}

        def caught_up() -> bool:
            try:
                if not ends:
                    ends.update(self.end_offsets())
                return self.stored(ends)
            except (KafkaException, StoreError):
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


def _takes_orders(child: Child) -> bool:
    """Tell whether a process has come so far that it handles SIGTERM: before that it would simply die of it."""
    try:
        status = Path(f"/proc/{child.pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
