"""One chaos run: load, kills at random moments, and the comparison at the end."""

from __future__ import annotations

import logging
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import redis as redis_client

from streams.folders import cache_folder
from streams.local.supervisor import Supervisor
from streams.settings import DriverName
from streams.store.contract import StoreError
from streams.store.contradiction import contradiction
from streams.store.redis_connection import connect
from streams.store.shape import Key, Shape
from streams.worker.table import Table
from tests.chaos import ledgers, oracle, producers, transactions
from tests.chaos.faults import KINDS, WEIGHTS, Fault
from tests.chaos.system import DRIVERS, GOOD_ENDINGS, System

logger = logging.getLogger(__name__)

BURST = 0.25
"""Chance that the next fault does not wait for recovery from the one before."""
GUEST = 0.3
"""Chance that a third worker joins, or leaves, before a fault."""
DRAIN_SECONDS = 120.0
PARTS = ("log", "head", "tally")


@dataclass
class Outcome:
    """What a run amounted to."""

    kills: int
    wanted: int
    recoveries: dict[str, list[float]]
    """Seconds from a fault until everything runs and the store has what the broker has; bursts by all their kinds."""
    verdict: oracle.Verdict
    ledgers: ledgers.LedgerAudit
    endings: dict[str, dict[int, int]]
    told: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a fault until the log of a worker named it, where one did before it was over."""
    unnamed: dict[str, list[float]] = field(default_factory=dict)
    """Seconds that workers had to name a fault, where none did before it was over."""
    faults: list[str] = field(default_factory=list)
    told_within: float | None = None
    """Seconds within which a worker's log must name a fault, where that is judged."""
    notes: Sequence[str] = ()
    """What else was measured."""

    @property
    def told_late(self) -> list[str]:
        """Faults that were named later than they must be, or not at all.

        Damage in a log is met when the log is read: the slow reading of logs at rest may come to it much later.
        """
        limit = self.told_within
        return [
            f"{kind} {told} {max(seconds):.1f} s instead of {limit:g} s"
            for told, found in (("after", self.told), ("not within", self.unnamed))
            for kind, seconds in found.items()
            if limit is not None and max(seconds) > limit and not kind.startswith("corrupt-")
        ]

    @property
    def good(self) -> bool:
        """Tell whether every promise was kept and every kill happened."""
        verdict = self.verdict
        broken = verdict.lost or verdict.double or verdict.unequal or verdict.stale or self.ledgers.faults
        return (
            not (broken or verdict.backlog)
            and not self.faults
            and not self.told_late
            and self.kills == self.wanted
            and verdict.reports > 0
        )

    def lines(self) -> Iterator[str]:
        """Say it; the last line is for scripts."""
        yield from _table("recovered from", self.recoveries)
        yield from _table("named in a worker's log", self.told)
        if self.unnamed:
            yield from _table("over before it was named", self.unnamed)
        yield from self.notes
        for name, counts in self.endings.items():
            ended = ", ".join(f"{count} times with {status}" for status, count in sorted(counts.items()))
            yield f"{name} ended {ended or 'never'}"
        audit, verdict = self.ledgers, self.verdict
        yield f"{audit.devices} ledgers, {audit.chains} chains, {audit.rungs} rungs released, each drawn once"[
            : None if not audit.faults else -len(", each drawn once")
        ]
        yield f"{verdict.windows} windows, {verdict.tokens} tokens, {len(verdict.unequal)} tallies unlike the oracle's"
        if verdict.backlog:
            yield f"backlog: {verdict.backlog} tokens wait behind a transaction that nobody ended"
        for what, found in (
            ("unequal tally", verdict.unequal),
            ("stale estimate", verdict.stale),
            ("ledger", audit.faults),
            ("process", self.faults),
            ("told late", self.told_late),
        ):
            yield from (f"{what}: {text}" for text in found[:10])
        every = [second for seconds in self.recoveries.values() for second in seconds]
        yield (
            f"kills {self.kills}, reports {verdict.reports}, lost {verdict.lost}, double {verdict.double}, "
            f"recovery {max(every, default=0.0):.1f} s"
        )


def _table(title: str, measured: dict[str, list[float]]) -> Iterator[str]:
    yield f"{title:<24} {'times':>5} {'median':>8} {'longest':>8}"
    for kind, seconds in sorted(measured.items()):
        yield f"{kind:<24} {len(seconds):>5} {statistics.median(seconds):>6.1f} s {max(seconds):>6.1f} s"


def plan(kills: int, kinds: Sequence[str], rng: random.Random) -> list[str]:
    """Return what goes wrong, in order: every kind once as far as that goes, then at random by weight."""
    order = list(kinds)
    rng.shuffle(order)
    weights = [WEIGHTS.get(kind, 1) for kind in kinds]
    return [*order, *rng.choices(list(kinds), weights, k=max(kills - len(order), 0))][:kills]


def run(
    kills: int,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    seed: int,
    devices: int,
    agents: int,
    burst: float = BURST,
    told_within: float | None = None,
    make: type[System] = System,
    known: Mapping[str, Fault] = KINDS,
    guest: float = GUEST,
    driver: DriverName = DRIVERS[0],
) -> Outcome:
    """Start everything, break it `kills` times, let it come to rest and compare.

    `make` and `known` are the system and its faults by kind, `guest` is the chance of GUEST, `driver` that of workers.
    """
    rng = random.Random(seed)
    with Supervisor(stop_seconds=20.0) as supervisor, _ledger_folder() as folder, _kept_logs(supervisor.folder, seed):
        system = make(supervisor, devices=devices, agents=agents, ledgers=folder, seed=seed, driver=driver)
        system.wait(lambda: _answered(system), "the first reports to be counted")
        recoveries: dict[str, list[float]] = {}
        chances = Chances(burst, guest)
        done = _break(system, [(kind, known[kind]) for kind in plan(kills, kinds, rng)], rng, chances, recoveries)
        system.told.finish()
        faults = _come_to_rest(system) + system.faults()
        verdict, audit = _judge(system, folder)
        if audit.devices != agents:
            faults.append(f"expected {agents} ledgers; found {audit.devices}")
        everyone = [*system.workers, system.guest, system.gateway, system.fleet, system.devices]
        for kept in everyone:
            strange = set(kept.endings) - GOOD_ENDINGS
            faults += [f"{kept.name} ended with status {status}" for status in sorted(strange)]
        endings = {kept.name: dict(kept.endings) for kept in everyone}
        for kept in system.kept:
            if kept.child is not None:
                kept.child.kill()  # an orderly end is not needed
        told = system.told
        outcome = Outcome(
            done, kills, recoveries, verdict, audit, endings, told.seconds, told.unnamed, faults, told_within
        )
        outcome.notes = system.notes()
        if not outcome.good:
            _keep_logs(supervisor.folder, seed)
    return outcome


def _judge(system: System, folder: Path) -> tuple[oracle.Verdict, ledgers.LedgerAudit]:
    messages, behind = transactions.read_all(system.settings)
    windows, reports = oracle.fold(messages, system.surveys)
    waiting, _ = oracle.fold(behind, system.surveys)
    verdict = oracle.judge(system.store, system.surveys, windows, system.journal, waiting)
    verdict.reports = reports
    sent = ledgers.emitted(messages + behind, system.agents_survey, system.surveys)
    return verdict, ledgers.audit(folder, system.agents_survey, sent)


@contextmanager
def _kept_logs(folder: Path, seed: int) -> Iterator[None]:
    """Keep the logs of a run that ends by an error."""
    try:
        yield
    except Exception:
        _keep_logs(folder, seed)
        raise


def _keep_logs(folder: Path, seed: int) -> None:
    """Copy the logs of services and processes to where they outlive the run."""
    kept = cache_folder() / "chaos" / f"seed-{seed}"
    for log in folder.rglob("*.log"):
        place = kept / log.relative_to(folder)
        # A partition's segments are called .log too.
        if "data" not in log.parts and "appendonlydir" not in log.parts:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, place)
    logger.error("the run failed; its logs are in %s", kept)


def _answered(system: System) -> bool:
    try:
        return all(system.store.log.counters(survey.id).applied > 0 for survey in system.surveys)
    except StoreError:
        return False


class Chances(NamedTuple):
    """How likely it is that a fault meets the one before, and that the guest comes or leaves."""

    burst: float
    guest: float


def _break(
    system: System,
    kinds: Sequence[tuple[str, Fault]],
    rng: random.Random,
    chances: Chances,
    recoveries: dict[str, list[float]],
) -> int:
    """Let everything on the list go wrong; return how much did."""
    burst: list[str] = []
    started, done = 0.0, 0
    for number, (kind, fault) in enumerate(kinds):
        if rng.random() < chances.guest:
            system.invite()
        if not burst:
            system.spend(rng.uniform(0.2, 3.0))
            started = time.monotonic()
        sent = producers.send_some(system.settings, system.surveys[0], rng)
        logger.info("%d of %d: %s (other producers: %s)", number + 1, len(kinds), kind, sent)
        system.told.expect(kind)
        fault(system, rng)
        done += 1
        burst.append(kind)
        if number + 1 < len(kinds) and rng.random() < chances.burst:
            system.spend(rng.uniform(0.0, 2.0))
            continue
        system.recover()
        name = burst[0] if len(burst) == 1 else "several at once"
        recoveries.setdefault(name, []).append(time.monotonic() - started)
        logger.info("recovered from %s after %.1f s", ", ".join(burst), recoveries[name][-1])
        burst = []
    return done


def _come_to_rest(system: System) -> list[str]:
    """Let the senders finish, the workers catch up and every estimate be computed; return what went wrong."""
    faults = []
    for sender in (system.fleet, system.devices):
        status = system.dismiss(sender, DRAIN_SECONDS)
        if status != 0:
            faults.append(f"{sender.name} was asked to finish and ended with status {status}")
    system.recover()

    def estimated() -> bool:
        try:
            return not system.store.queue.entries()
        except StoreError:
            return False

    logger.info("everything is stored")
    _await_repairs(system)
    system.wait(estimated, "every window to be estimated")
    logger.info("everything is estimated; comparing with the oracle")
    return faults


def _await_repairs(system: System) -> None:
    """Wait until workers have found and repaired what is damaged in windows at rest; this only reads."""
    surveys = [one for survey in system.surveys for one in (survey, *survey.tier_surveys)]
    shapes = {survey.id: Shape.of(survey) for survey in surveys}
    logs = [
        Key(survey.id, window_ms, shard)
        for survey in surveys
        for window_ms in system.store.estimates.window_starts(survey.id)
        for shard in range(survey.shards)
    ]
    with connect(system.settings.redis) as client:
        damaged = [key for key in logs if not _is_whole(client, key, shapes[key.survey_id])]
        logger.info("%d of %d logs are damaged", len(damaged), len(logs))
        system.wait(
            lambda: all(_is_whole(client, key, shapes[key.survey_id]) for key in damaged),
            f"workers to find the damage in {damaged}",
        )
    system.wait(lambda: not system.store.unreadable.entries(), "unreadable windows to be rebuilt")


def _is_whole(client: Any, key: Key, shape: Shape) -> bool:
    log, head, tally = (f"thaw:v1:{{{key.shard}}}:{part}:{key.survey_id}:{key.window_ms}" for part in PARTS)
    try:
        with client.pipeline() as pipe:
            pipe.hmget(head, "stamp", "chunks", "records").lrange(log, 0, -1).get(tally)
            (stamp, *counted), segments, stored = pipe.execute()
        entries = b"".join(segments)
        table = Table.of_log(shape, entries)
    except (ValueError, redis_client.ResponseError):
        return False
    in_log = len(entries) // shape.entry_bytes
    return not stamp or contradiction(counted, len(segments), in_log, stored, table.tally()) is None


@contextmanager
def _ledger_folder() -> Iterator[Path]:
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="thaw-chaos-", dir=shared if os.access(shared, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
