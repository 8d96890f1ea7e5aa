"""What open windows cost: the same reports spread over 10, 100 and 1,000 of them, with a real Redis, without Kafka.

What counts is a log that a batch touches, of one window and shard, whatever it holds. Its cost is the difference
between many windows and few, over the difference of the logs that were touched; processor time of the worker's code and
of Redis, so that other work on the machine matters little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from producers.survey.survey import Survey, parse_survey
from producers.wire import frames as wire
from producers.wire.shards import partition_of, shards_of
from streams.local.redis import Redis
from streams.local.supervisor import Supervisor
from streams.store.redis import RedisStore
from streams.worker.applier import Applier
from streams.worker.fold import warm_up
from tests.bench.fold import PARTITIONS, batches, refuse
from tests.bench.goals import Measured, Result, Series
from tests.bench.processes import cpu_seconds
from tests.support.reports import NOW_MS, TOPIC, WINDOW, SurveyDict

WINDOWS: Final = (10, 100, 1_000)
REPORTS: Final = 256_000
RUNGS: Final = 3
ROUNDS: Final = 1
STEP_MS: Final = 60_000
WORKER_MS, REDIS_MS = 0.025, 0.012
"""Goals for a touched log: a fifth of the 0.125 ms and 0.06 ms that it once took."""

_SURVEY: Final = """
name = "windows"
question = "Which of a hundred?"
values = [{values}]
shards = 64
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0]
opens = ["0s", "1s", "2s"]
jitter = "0s"
[window]
size = "1m"
retention = "7d"
[budget]
lifetime = 1000
"""


class Cost(NamedTuple):
    """Processor seconds, and how many logs were touched."""

    worker: float
    redis: float
    touched: int


def survey() -> Survey:
    """Return the survey."""
    values = ", ".join(f'"value {number}"' for number in range(100))
    return parse_survey(_SURVEY.format(values=values), "windows.toml")


def messages(asked: Survey, windows: int, rung: int) -> dict[int, list[bytes]]:
    """Return messages of one frame each, by partition: the same tokens for every rung."""
    rng = np.random.default_rng(windows)
    tokens = rng.integers(0, 256, size=(REPORTS, 16), dtype=np.uint8)
    window = rng.integers(0, windows, REPORTS)
    answers = np.random.default_rng([windows, rung]).integers(0, 100, size=(REPORTS, 1), dtype=np.uint8)
    shards = shards_of(tokens, asked.shards).astype(np.int64)
    place = window * asked.shards + shards
    order = np.argsort(place, kind="stable")
    cuts = np.flatnonzero(np.diff(place[order])) + 1
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for some in np.split(order, cuts):
        start_ms = WINDOW - int(window[some[0]]) * STEP_MS
        shard = int(shards[some[0]])
        columns = wire.Reports(tokens[some], answers[some], np.full(len(some), rung, np.uint8), None)
        frame = wire.encode(asked.digest, start_ms, NOW_MS, shard, columns, asked.layout)
        found[partition_of(shard, PARTITIONS)].append(frame)
    for partition in found.values():
        rng.shuffle(partition)
    return found


def cost(url: str, redis_pid: int, windows: int, number: int) -> Cost:
    """Count the reports of all rungs with an empty store."""
    asked = survey()
    store = RedisStore.connect(url, prefix=f"{windows}-{number}:")
    applier = Applier(store, SurveyDict(asked), refuse, partitions=PARTITIONS, clock=lambda: NOW_MS)
    applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    worker = redis = 0.0
    touched, offset = 0, 0
    for rung in range(RUNGS):
        found = messages(asked, windows, rung)
        work = batches(found, start=offset)
        offset += sum(map(len, found.values()))
        for batch in work:
            before, before_redis = time.process_time(), cpu_seconds(redis_pid)
            done = applier.process(batch)
            worker += time.process_time() - before
            redis += cpu_seconds(redis_pid) - before_redis
            touched += sum(len(moments) for moments in done.frames_sent_ms.values())
            if done.counters.applied != done.reports:
                raise AssertionError(f"expected {done.reports} reports to be applied; got {done.counters}")
    store.close()
    return Cost(worker, redis, touched)


def results() -> Iterator[Measured]:
    """Measure in turns; the least of each counts."""
    warm_up()
    least: dict[int, Cost] = {}
    with Supervisor() as supervisor:
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        for number in range(ROUNDS):
            for windows in WINDOWS:
                found = cost(server.url, server.child.pid, windows, number)
                print(f"{windows} windows: {found}", file=sys.stderr)
                best = least.get(windows, found)
                least[windows] = Cost(min(found.worker, best.worker), min(found.redis, best.redis), found.touched)
    few, many = least[WINDOWS[0]], least[WINDOWS[-1]]
    millions = REPORTS * RUNGS / 1e6
    logs = many.touched - few.touched
    yield Result("windows-worker", (many.worker - few.worker) / logs * 1e3, "ms a touched log", most=WORKER_MS)
    yield Result("windows-redis", (many.redis - few.redis) / logs * 1e3, "ms a touched log", most=REDIS_MS)
    yield Result(
        "windows-1000",
        millions / (many.worker + many.redis),
        "M per CPU-s",
        "10 windows",
        millions / (few.worker + few.redis),
    )
    yield Series("windows", "worker", [(float(n), found.worker / millions) for n, found in least.items()])
    yield Series("windows", "Redis", [(float(n), found.redis / millions) for n, found in least.items()])
