"""Faults, one function each. Each returns when the damage is done and does not wait for recovery."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from typing import Final

from tests.chaos import aof
from tests.chaos.system import Kept, System

SESSION_SECONDS: Final = 10.0
"""After so long without a heartbeat a worker's partitions go to others (`broker_session_timeout` in `driver.py`)."""
CALL_SECONDS: Final = 5.0
"""After so long without an answer from Redis a worker gives a call up, and cannot know what became of it."""

Fault = Callable[[System, random.Random], None]


def worker(system: System, rng: random.Random) -> None:
    """kill -9 of a worker; the supervisor starts it again."""
    _kill(system, rng.choice(system.workers))


def fleet(system: System, rng: random.Random) -> None:
    """kill -9 of the vectorised fleet; it starts again and sends the same bytes."""
    _kill(system, system.fleet)


def device(system: System, rng: random.Random) -> None:
    """kill -9 of the process with all device agents; it goes on from their ledgers."""
    _kill(system, system.devices)


def broker(system: System, rng: random.Random) -> None:
    """kill -9 of the broker."""
    system.await_restarts()
    system.kafka.kill()
    system.bring_back(system.kafka, after_seconds=rng.uniform(0.0, 2.0))


def redis(system: System, rng: random.Random) -> None:
    """kill -9 of Redis; it comes back with everything it had written."""
    system.await_restarts()
    system.redis.kill()
    system.bring_back(system.redis, after_seconds=rng.uniform(0.0, 3.0))


def power(system: System, rng: random.Random) -> None:
    """A power cut: Redis comes back without the end of its append-only file, cut at any byte."""
    system.await_restarts()
    system.redis.kill()
    system.bring_back(
        system.redis, after_seconds=rng.uniform(0.0, 1.0), before=lambda: aof.cut_anywhere(system.redis.folder, rng)
    )


def tear(system: System, rng: random.Random) -> None:
    """A power cut inside a script's transaction, then a second crash.

    Redis 7.0 drops half a transaction when it loads the file, but leaves it in the file; what it appends then follows,
    and the second load revives the half.
    """
    system.await_restarts()
    system.redis.kill()

    def twice() -> None:
        aof.cut_inside_a_script(system.redis.folder, rng)
        system.redis.start()
        system.redis.kill()

    system.bring_back(system.redis, after_seconds=rng.uniform(0.0, 1.0), before=twice)


def disk(system: System, rng: random.Random) -> None:
    """Redis comes back empty: its disk is gone."""
    system.await_restarts()
    system.redis.kill()

    def empty() -> None:
        shutil.rmtree(system.redis.folder / "appendonlydir", ignore_errors=True)
        (system.redis.folder / "appendonly.aof").unlink(missing_ok=True)

    system.bring_back(system.redis, after_seconds=rng.uniform(0.0, 1.0), before=empty)


def zombie(system: System, rng: random.Random) -> None:
    """A worker sleeps until others have its partitions, then wakes up in the middle of what it was doing."""
    chosen = rng.choice(system.workers)
    if not _pause(chosen):
        system.wait(system.all_run, "a worker that can be paused")
        assert _pause(chosen)
    system.spend(SESSION_SECONDS + rng.uniform(1.0, 4.0))
    if chosen.child is not None:
        chosen.child.send_signal(signal.SIGCONT)
    chosen.paused = False


def stall(system: System, rng: random.Random) -> None:
    """Redis sleeps for longer than workers wait for an answer, then does what they had asked for."""
    system.await_restarts()
    system.redis.child.send_signal(signal.SIGSTOP)
    try:
        system.spend(CALL_SECONDS + rng.uniform(0.5, 2.5))
    finally:
        system.redis.child.send_signal(signal.SIGCONT)


KINDS: Final[dict[str, Fault]] = {
    "worker": worker,
    "redis": redis,
    "power": power,
    "tear": tear,
    "fleet": fleet,
    "device": device,
    "broker": broker,
    "zombie": zombie,
    "stall": stall,
    "disk": disk,
}

WEIGHTS: Final = {"worker": 3, "redis": 2, "power": 3, "tear": 3, "fleet": 2, "device": 2, "broker": 2, "zombie": 2}
"""How often each kind comes, where not once."""


def _kill(system: System, kept: Kept) -> None:
    if kept.child is None or not kept.child.alive():
        system.wait(lambda: kept.child is not None and kept.child.alive(), f"a running {kept.name} to kill")
    assert kept.child is not None
    kept.child.kill()


def _pause(kept: Kept) -> bool:
    if kept.child is None or not kept.child.alive():
        return False
    kept.child.send_signal(signal.SIGSTOP)
    kept.paused = True
    return True
