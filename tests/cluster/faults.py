"""What goes wrong, or is done on purpose, in a cluster; one function each."""

from __future__ import annotations

import logging
import random
from typing import Final

from tests.chaos.faults import Fault, worker
from tests.chaos.system import System
from tests.cluster.system import ClusterSystem

logger = logging.getLogger(__name__)

SLOTS: Final = 5
"""So many slots with keys are moved at a time."""


def _cluster(system: System) -> ClusterSystem:
    assert isinstance(system, ClusterSystem)
    return system


def broker(system: System, rng: random.Random) -> None:
    """kill -9 of one of three brokers; the others go on."""
    cluster = _cluster(system)
    cluster.await_restarts()
    chosen = rng.choice(cluster.running_brokers())
    chosen.kill()
    cluster.bring_back(chosen, after_seconds=rng.uniform(1.0, 4.0))


def two_brokers(system: System, rng: random.Random) -> None:
    """kill -9 of two of three brokers: the last can neither store a report nor elect a leader, and workers say so."""
    cluster = _cluster(system)
    cluster.await_restarts()
    killed = rng.sample(cluster.running_brokers(), 2)
    for chosen in killed:
        chosen.kill()
    cluster.wait(lambda: cluster.told.is_named, "a worker to say that brokers are missing")
    for chosen in killed:
        cluster.bring_back(chosen, after_seconds=rng.uniform(0.0, 3.0))


def redis_master(system: System, rng: random.Random) -> None:
    """kill -9 of a master of Redis: its replica takes over, and it comes back as a replica."""
    cluster = _cluster(system)
    cluster.await_restarts()
    chosen = rng.choice(cluster.running_masters())
    chosen.kill()
    cluster.bring_back(chosen, after_seconds=rng.uniform(6.0, 9.0))


def failover(system: System, rng: random.Random) -> None:
    """A replica takes over in order from a master that runs."""
    _take_over(_cluster(system), rng)


def forced_failover(system: System, rng: random.Random) -> None:
    """A replica takes over by force from a master that runs, without what it had not yet."""
    _take_over(_cluster(system), rng, "FORCE")


def _take_over(cluster: ClusterSystem, rng: random.Random, *how: str) -> None:
    chosen = rng.choice(cluster.nodes.replicas())
    chosen.ask("CLUSTER", "FAILOVER", *how)
    cluster.wait(chosen.is_master, f"{chosen.name} to take over")
    logger.info("%s took over %s", chosen.name, " ".join(how).lower() or "in order")


def slots(system: System, rng: random.Random) -> None:
    """Slots with all their keys move from one master to another while they are counted into."""
    cluster = _cluster(system)
    source, target = rng.sample(cluster.running_masters(), 2)

    def used() -> list[int]:
        with source.client() as client:
            owned = cluster.nodes.slots_of(source)
            return [slot for slot in owned if client.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)]

    cluster.wait(lambda: len(used()) >= SLOTS, f"{source.name} to have keys in {SLOTS} slots")
    chosen, moved = rng.sample(used(), SLOTS), 0
    for slot in chosen:
        moved += cluster.nodes.move_slot(slot, source, target)
        cluster.spend(0.05)
    logger.info("moved %d slots with %d keys from %s to %s", len(chosen), moved, source.name, target.name)


def rolling(system: System, rng: random.Random) -> None:
    """All workers are restarted in order, one after the other; estimates go on."""
    cluster = _cluster(system)
    cluster.wait(cluster.all_run, "all processes to run")
    cluster.watch_estimates(True)
    for kept in cluster.workers:
        cluster.wait(cluster.all_run, "the worker before to be back")
        assert kept.child is not None
        kept.child.terminate(60.0)
        cluster.recover()
    cluster.watch_estimates(False)
    for line in cluster.notes():
        logger.info("%s", line)


KINDS: Final[dict[str, Fault]] = {
    "worker": worker,
    "broker": broker,
    "two-brokers": two_brokers,
    "redis-master": redis_master,
    "failover": failover,
    "forced-failover": forced_failover,
    "slots": slots,
    "rolling": rolling,
}
