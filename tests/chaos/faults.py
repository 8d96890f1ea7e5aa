"""Faults, one function each. Each returns when the damage is done and does not wait for recovery."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import redis as redis_client

from streams.local.service import Program
from streams.store.redis_connection import ANSWER_SECONDS
from tests.chaos import aof
from tests.chaos.replica import cut_off_replica, take_over
from tests.chaos.system import Kept, System

SESSION_SECONDS: Final = 10.0
"""After so long without a heartbeat a worker's partitions go to others (`broker_session_timeout` in `driver.py`)."""

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


def gateway(system: System, rng: random.Random) -> None:
    """kill -9 of the gateway: devices that wait for an answer never get it, and send the same bytes again."""
    _kill(system, system.gateway)


def broker(system: System, rng: random.Random) -> None:
    """kill -9 of the broker."""
    system.await_restarts()
    system.kafka.kill()
    system.bring_back(system.kafka, after_seconds=rng.uniform(0.0, 2.0), traceless=True)


def redis(system: System, rng: random.Random) -> None:
    """kill -9 of Redis; it comes back with everything it had written."""
    system.await_restarts()
    system.redis.kill()
    system.bring_back(system.redis, after_seconds=rng.uniform(0.0, 3.0), traceless=True)


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
    _hang(system, system.redis, ANSWER_SECONDS + rng.uniform(0.5, 2.5))


def hang_redis(system: System, rng: random.Random) -> None:
    """Redis hangs until workers have lost their sessions or given calls up several times."""
    system.await_restarts()
    _hang(system, system.redis, SESSION_SECONDS + rng.uniform(2.0, 8.0))


def hang_kafka(system: System, rng: random.Random) -> None:
    """The broker hangs for longer than sessions and requests last."""
    system.await_restarts()
    _hang(system, system.kafka, SESSION_SECONDS + rng.uniform(2.0, 8.0))


def _hang(system: System, service: Program, seconds: float) -> None:
    child = service.child
    child.send_signal(signal.SIGSTOP)
    try:
        system.spend(seconds)
    finally:
        child.send_signal(signal.SIGCONT)
        system.told.over(system.told.number)


def corrupt_tally(system: System, rng: random.Random) -> None:
    """Something else stands in the place of a tally."""
    system.await_restarts()
    with redis_client.Redis.from_url(system.settings.redis) as client:
        for key in _some_keys(client, "tally", rng):
            if rng.random() < 0.3:
                client.delete(key)
                client.rpush(key, b"no tally")
            else:
                client.set(key, rng.randbytes(rng.randrange(1, 200)))


def corrupt_log(system: System, rng: random.Random) -> None:
    """Something else, or nothing, stands in the place of a segment of a report log, or of the log."""
    system.await_restarts()
    with redis_client.Redis.from_url(system.settings.redis) as client:
        for key in _some_keys(client, "log", rng):
            if rng.random() < 0.3:
                client.set(key, b"no log")
                continue
            # One byte less than whole entries: no survey has such a segment. The worker may be faster.
            raw = rng.choice([b"", rng.randbytes(8 * rng.randrange(1, 9) - 1)])
            with suppress(redis_client.ResponseError):
                client.lset(key, -1, raw)


def _some_keys(client: Any, part: str, rng: random.Random) -> list[bytes]:
    """Return up to three keys of the newest windows, which are worked on."""
    found = list(client.scan_iter(match=f"*:{part}:*", count=1_000, _type="list" if part == "log" else "string"))
    newest = sorted(found, key=lambda key: (int(key.rpartition(b":")[2]), key))[-200:]
    return rng.sample(newest, min(len(newest), rng.randint(1, 3)))


def full_redis(system: System, rng: random.Random) -> None:
    """Redis has no memory left, in the middle of whatever it is doing, and gets some again after a while."""
    system.await_restarts()
    with redis_client.Redis.from_url(system.settings.redis) as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used + rng.randrange(100_000))
        try:
            system.spend(rng.uniform(3.0, 10.0))
        finally:
            client.config_set("maxmemory", 0)
            system.told.over(system.told.number)


def stale_replica(system: System, rng: random.Random) -> None:
    """A replica that lost acknowledged writes takes the place of Redis."""
    system.await_restarts()
    with cut_off_replica(system.redis, system.wait) as replica:
        system.spend(rng.uniform(0.5, 4.0))
        # Until here nothing was wrong: a replica was started and fell behind.
        system.told.begin()
        take_over(system.redis, replica)
    system.bring_back(system.redis, after_seconds=rng.uniform(0.0, 1.0))


KINDS: Final[dict[str, Fault]] = {
    "worker": worker,
    "redis": redis,
    "power": power,
    "tear": tear,
    "fleet": fleet,
    "device": device,
    "gateway": gateway,
    "broker": broker,
    "zombie": zombie,
    "stall": stall,
    "disk": disk,
    "hang-redis": hang_redis,
    "hang-kafka": hang_kafka,
    "corrupt-tally": corrupt_tally,
    "corrupt-log": corrupt_log,
    "full-redis": full_redis,
    "stale-replica": stale_replica,
}

WEIGHTS: Final = {
    "worker": 3,
    "redis": 2,
    "power": 3,
    "tear": 3,
    "fleet": 2,
    "device": 2,
    "gateway": 3,
    "broker": 2,
    "zombie": 2,
}
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
