"""A whole system in one process on a manual clock: devices, broker, store, two workers.

All code under test is the project's own: `Device` with its ledger in a file, `BatchHandler`, `Applier`, `fold`,
`DeadLetterSender`, `Recomputer`, `MemoryStore`. Made up are only the network, the broker's log and the group's
assignments, and the moments of crashes.

What counts as failure: a window whose tally differs from the oracle's, a dead letter too many or too few (by place and
reason; repetitions are allowed), a device that lost a released rung or drew one twice, a window without a fresh
estimate, an estimate that at any time did not contain exactly what it said. What does not: repeated counters of refused
reports, and how long anything takes.
"""

from __future__ import annotations

import logging
import math
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from estimators.exact.randomness import SeededBits
from estimators.tally import Tally
from producers.device.agent import Device, ValueFixedError
from producers.survey.survey import Survey
from streams.kafka.messages import PublishError
from streams.repair.verify import Verdict, Verifier, stored
from streams.store.contract import StoreCorruptError, StoreUnavailableError
from streams.store.shape import Key, Shape
from streams.windows.counted import ReportsTopic
from streams.windows.latency import Latencies
from streams.windows.recompute import Recomputer
from streams.windows.record import decode_estimate
from streams.worker.applier import Applier
from streams.worker.dead_letters import OFFSET_HEADER, REASON_HEADER, DeadLetterSender
from streams.worker.handler import BatchHandler
from streams.worker.retry import RestartRequired
from streams.worker.table import Table
from streams.worker_metrics import WorkerMetrics, worker_metrics
from tests.simulation.bus import (
    DEVICES,
    PARTITIONS,
    SETTINGS,
    SURVEY,
    TOPIC,
    WORKERS,
    Bus,
    Crash,
    Reading,
    Wire,
    fetched,
)
from tests.simulation.devices import check_devices
from tests.simulation.oracle import oracle
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.reports import Report, SurveyDict
from tests.support.surveys import WEEK

VALUE_KEY = bytes(range(32))


class Worker:
    """One worker process. Dead until `join`; `dies_at` is the call of the store, before or after, that kills it."""

    def __init__(self, world: World, applier: type[Applier]) -> None:
        self._world, self._applier = world, applier
        self._handler: BatchHandler | None = None
        self._generation = 0
        self.surveys = SurveyDict()
        self.partitions: tuple[int, ...] = ()
        self.positions: dict[int, int] = {}
        self.dies_at: tuple[str, str] | None = None

    @property
    def alive(self) -> bool:
        return self._handler is not None

    def die(self) -> None:
        self._handler = None
        self.positions = {}

    def join(self, partitions: tuple[int, ...]) -> None:
        """Take part with these partitions, in a new process if there is none."""
        world = self._world
        self.partitions, self._generation = partitions, world.bus.generation
        self._do(lambda: self._assign(self._handler or self._start()))

    def _start(self) -> BatchHandler:
        world, self.surveys = self._world, SurveyDict(self._world.known)
        sender = DeadLetterSender(
            world.bus,  # type: ignore[arg-type]  # it sends like a Publisher
            SETTINGS.dead_letters_topic,
            world.metrics,
            patience_seconds=1.0,
            stopping=lambda: False,
        )
        applier = self._applier(
            FaultyStore(world.store, self._fault),
            self.surveys,
            sender,
            partitions=PARTITIONS,
            clock=world.clock,
            sleep=world.clock.sleep,
            cache_bytes=1 << 16,
        )
        applier._shards = world.asked.shards  # idle shards would only take time here
        self._handler = BatchHandler(SETTINGS.reports_topic, applier, world.metrics, Latencies())
        self.verify = applier.verify
        return self._handler

    def _assign(self, handler: BatchHandler) -> None:
        committed = {partition: self._world.bus.committed.get(partition) for partition in self.partitions}
        self.positions = handler.start_at(committed)

    def _fault(self, method: str, when: str) -> bool:
        if self.dies_at == (method, when):
            self.dies_at = None
            raise Crash
        return self._world.store_fails(method, when)

    def work(self, records: int, *, acknowledge: bool = True) -> None:
        """Read up to so many records of each partition, count them, and commit, as the agent of the app does."""
        bus = self._world.bus
        if not self.alive:
            self.join(self.partitions)
        if not self.alive or bus.away:
            return
        batches = [
            fetched(partition, start, bus.log[partition][start:end])
            for partition, start in self.positions.items()
            if (end := min(start + records, len(bus.log[partition]))) > start
        ]
        handler = self._handler
        if batches and handler is not None and self._do(lambda: handler.handle(batches)):
            if not acknowledge:
                self.die()
                return
            for batch in batches:
                self.positions[batch.partition] = batch.next_offset
                if self._generation == bus.generation and not bus.away:
                    bus.committed[batch.partition] = batch.next_offset

    def finds_the_store_behind(self) -> bool:
        """Ask the store, as an idle worker does; it exits if a stored offset regressed."""
        return self.alive and not self._do(self.verify)

    def _do(self, action: Callable[[], Any]) -> bool:
        try:
            action()
        except (RestartRequired, Crash):
            self.die()
            return False
        return True


class World:
    """All of it. Use as a context manager; `finish` heals everything and checks what must hold."""

    def __init__(
        self,
        *,
        store: Callable[[ManualClock], MemoryStore] = MemoryStore,
        applier: type[Applier] = Applier,
        device: type[Device] = Device,
        asked: Survey = SURVEY,
        later: Survey | None = None,
    ) -> None:
        self.first = self.asked = self.known = asked
        self._later = later
        self.script: list[object] = []
        self.clock = ManualClock(WEEK)
        self.bus = Bus(self.clock)
        self.store = store(self.clock)
        self.fsynced = self.store.snapshot()
        self.metrics: WorkerMetrics = worker_metrics()
        self.store_away_until_ms = 0
        self.answers_to_lose = 0
        self.expected_dead: set[tuple[str, str, bytes]] = set()
        self.wrong: list[Verdict] = []
        self.withdrawn: set[tuple[int, int]] = set()
        """Devices, and windows that they have taken their answers of back."""
        self._surveys = SurveyDict(self.asked)
        self.recomputer = Recomputer(
            FaultyStore(self.store, self.store_fails),
            self._surveys,
            self.bus.send,
            SETTINGS.estimates_topic,
            ReportsTopic(TOPIC, PARTITIONS),
            fold=Table.of_log,
            clock=self.clock,
            metrics=self.metrics,
        )
        self._folder = Path(tempfile.mkdtemp(prefix="thaw-simulation-", dir=_fast_folder()))
        self._stack = ExitStack()
        # What is random must be the same when hypothesis runs a script again.
        self._stack.enter_context(patch("producers.device.sending.secrets.SystemRandom", lambda: random.Random(7)))
        # Four entries: logs of a few devices are written, read and shortened in pieces.
        self._stack.enter_context(patch("streams.store.log_content.PIECE_BYTES", 64))
        logging.disable(logging.CRITICAL)
        self._stack.callback(logging.disable, logging.NOTSET)
        self._device_class = device
        self.wires = [Wire(self.bus) for _ in range(DEVICES)]
        self.devices: list[Device | None] = [None] * DEVICES
        self._starts = 0
        self.workers = [Worker(self, applier) for _ in range(WORKERS)]
        self.rebalance((0, 1))

    def close(self) -> None:
        for device in self.devices:
            if device is not None:
                device.close()
        self._stack.close()
        shutil.rmtree(self._folder)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def store_fails(self, method: str, when: str) -> bool:
        if self.clock() < self.store_away_until_ms:
            return True
        if self.answers_to_lose and (method, when) == ("log.apply", "after"):
            self.answers_to_lose -= 1
            return True
        return False

    def rebalance(self, owners: tuple[int, ...], *, zombie: int | None = None) -> None:
        """Give partition p to worker owners[p]; a zombie does not learn of it; its commits are refused."""
        self.bus.generation += 1
        for number, worker in enumerate(self.workers):
            if number != zombie:
                worker.join(tuple(partition for partition, owner in enumerate(owners) if owner == number))

    def device(self, number: int) -> Device:
        """Return a device, started if it is not running."""
        running = self.devices[number]
        if running is None:
            path = self._folder / f"device-{number}.sqlite"
            running = self._device_class(
                path, [self.asked], self.wires[number], lifetime_epsilon=math.inf, value_key=VALUE_KEY, clock=self.clock
            )
            running._ledger.connection.execute("PRAGMA synchronous = OFF")  # nothing here outlives the machine
            running._ledger.connection.execute("UPDATE device SET secret = ?", (bytes([number]) * 32,))
            self._starts += 1
            running._bits = SeededBits(self._starts, "device", number)  # type: ignore[assignment]  # to be repeatable
            self.devices[number] = running
        return running

    def on_device(self, number: int, action: Callable[[Device], Any]) -> None:
        """Do something on a device; if it dies on the way, it starts again with what its file holds."""
        device = self.device(number)
        try:
            with suppress(ValueFixedError):
                action(device)
        except Crash:
            self.kill_device(number)

    def kill_device(self, number: int) -> None:
        device, self.devices[number] = self.devices[number], None
        if device is not None:
            device.close()

    def learn(self, worker: Worker) -> None:
        """Give a worker, and those that start from now on, the file of the survey that continues this one."""
        assert self._later is not None
        self.known = self._later
        worker.surveys.add(self._later)

    def go_on(self) -> None:
        """Continue the survey: all workers know, devices that start from now on answer the longer ladder."""
        for worker in self.workers:
            self.learn(worker)
        self._surveys.add(self.known)
        self.asked = self.known

    def tick_devices(self) -> None:
        for number in range(DEVICES):
            if self.devices[number] is not None or (self._folder / f"device-{number}.sqlite").exists():
                self.on_device(number, lambda device: device.tick())

    def estimate(self) -> None:
        """Let a worker tick; what is left undone stays in the queue."""
        with suppress(StoreUnavailableError, PublishError):
            self.recomputer.tick()
        self.wrong += [verdict for verdict in self.verdicts() if verdict.status not in ("equal", "unproven")]

    def verdicts(self) -> list[Verdict]:
        """Count again what every stored estimate says it contains, whatever else goes on."""
        found: list[Verdict] = []
        for survey in (self.asked, *self.asked.tier_surveys):
            records = stored(self.store.estimates, [survey]).values()
            verifier = Verifier(Reading(self.bus), survey, partitions=PARTITIONS, clock=self.clock)
            found += verifier.run(list(records))
        return found

    def finish(self) -> None:
        """Bring everything back, let it run until nothing is left to do, then compare."""
        if self.known is not self.asked:
            self.go_on()
        self.bus.away_until_ms = self.store_away_until_ms = self.answers_to_lose = 0
        for wire in self.wires:
            wire.held, wire.crash = False, ""
        for worker in self.workers:
            worker.dies_at = None
        # Longer than a device waits between two attempts, and than the lock of a dead worker lives.
        self.clock.advance(61_000)
        self.tick_devices()
        self.rebalance((0, 1))
        ends = dict(enumerate(map(len, self.bus.log)))
        for worker in self.workers:
            while worker.finds_the_store_behind() or any(ends[p] != at for p, at in worker.positions.items()):
                worker.work(1_000)
        # An old window that had its turn in a round and was queued again has its next one when the round is over.
        for _ in range(2):
            self.estimate()
        self.check()

    def check(self) -> None:
        """Compare with the oracle; the messages say what differs."""
        log = [
            (record.timestamp_ms, window_ms, report)
            for records in self.bus.log
            for record in records
            for window_ms, report in record.genuine
        ]
        for survey in (self.asked, *self.asked.tier_surveys):
            self._check_tallies(survey, log)
        assert not self.store.queue.entries(), "windows were left without a fresh estimate"
        self._check_dead_letters()
        check_devices(self.asked, self.device, self._folder, self.withdrawn, log)
        self._check_estimates()

    def _check_tallies(self, survey: Survey, log: list[tuple[int, int, Report]]) -> None:
        expected, shape = oracle(survey, log), Shape.of(survey)
        for window_ms in {window_ms for _, window_ms, _ in log}:
            empty = Tally.empty(*shape_of(shape))
            wanted = expected.get(window_ms, empty)
            keys = [Key(survey.id, window_ms, shard) for shard in range(survey.shards)]
            found = self._tally(survey, window_ms, shape)
            assert found == wanted, f"{survey.name}, window {window_ms}: {difference(wanted, found)}"
            in_logs = sum(
                (kept.content.tally() for kept in self.store.log.load(keys, shape, Table.of_log).values()), empty
            )
            assert in_logs == wanted, f"logs of window {window_ms}: {difference(wanted, in_logs)}"
            if wanted.total_users:
                payload = self.store.estimates.read(survey.id, window_ms)
                assert payload is not None, f"window {window_ms} has no estimate"
                record, rungs = decode_estimate(payload), survey.mechanism.rungs
                assert (record.users, record.withdrawn or 0) == (wanted.users[:rungs].sum(), wanted.users[rungs:].sum())

    def _tally(self, survey: Survey, window_ms: int, shape: Shape) -> Tally:
        """Return what is stored; a log that a worker found to contradict its tally has none until it is rebuilt."""
        try:
            return self.store.estimates.tally(survey.id, window_ms, survey.shards, shape)
        except StoreCorruptError as error:
            raise AssertionError(f"window {window_ms} is unreadable: {error}") from error

    def _check_estimates(self) -> None:
        for part in ("tally", "log"):
            wrong = self.metrics.registry.get_sample_value("thaw_worker_unreadable_total", {"part": part})
            assert not wrong, f"{wrong:.0f} times a {part} was not what it should be"
        assert not self.wrong, f"estimates did not contain what they said: {self.wrong}"
        unproven = [verdict for verdict in self.verdicts() if verdict.status != "equal" or not verdict.winners]
        assert not unproven, f"estimates cannot be checked: {unproven}"

    def _check_dead_letters(self) -> None:
        found = set()
        for message in self.bus.published:
            if message.topic == SETTINGS.dead_letters_topic:
                headers = dict(message.headers)
                found.add((headers[OFFSET_HEADER].decode(), headers[REASON_HEADER].decode(), message.value))
        assert found == self.expected_dead, f"dead letters: expected {self.expected_dead}; got {found}"


def shape_of(shape: Shape) -> tuple[int, int, int]:
    """Return the dimensions of a tally."""
    return shape.rungs, shape.groups, shape.size


def difference(wanted: Tally, found: Tally) -> str:
    """Say what differs, cell by cell, as (rung, group, cell): expected -> found."""
    cells = [tuple(map(int, cell)) for cell in zip(*(wanted.counts != found.counts).nonzero(), strict=True)]
    differences = ", ".join(f"{cell}: {wanted.counts[cell]} -> {found.counts[cell]}" for cell in cells[:8])
    return f"{wanted.total_users} users expected, {found.total_users} found; {differences or 'users per rung differ'}"


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
