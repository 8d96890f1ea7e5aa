"""What open windows cost: the same reports spread over 10, 100 and 1,000 of them, with a real Redis, without Kafka.

What counts is a log that a batch touches, of one window and shard, whatever it holds. Its cost is the difference
between many windows and few, over the difference of the logs that were touched; processor time of the worker's code and
of Redis, so that other work on the machine matters little. The first report of a log makes it: that is measured apart.
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
from streams.worker.process import look_for_cycles_rarely
from tests.bench.fold import PARTITIONS, batches, refuse
from tests.bench.goals import Measured, Result, Series
from tests.bench.processes import cpu_seconds
from tests.support.reports import NOW_MS, TOPIC, WINDOW, SurveyDict

WINDOWS: Final = (10, 100, 1_000)
REPORTS: Final = 256_000
RUNGS: Final = 3
ROUNDS: Final = 2
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

    worker: float = 0.0
    redis: float = 0.0
    touched: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]  # no longer tuple
        """Add up."""
        return Cost(self.worker + other.worker, self.redis + other.redis, self.touched + other.touched)

    def least(self, other: Cost) -> Cost:
        """Return the lesser of each of two measurements of the same."""
        return Cost(min(self.worker, other.worker), min(self.redis, other.redis), self.touched)

    def of_a_log(self, few: Cost) -> tuple[float, float]:
        """Return what a touched log costs beside `few`, in ms: in the worker, in Redis."""
        logs = self.touched - few.touched
        return (self.worker - few.worker) / logs * 1e3, (self.redis - few.redis) / logs * 1e3


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


def cost(url: str, redis_pid: int, windows: int, number: int) -> tuple[Cost, Cost]:
    """Count the reports of all rungs with an empty store; return what the first one costs, and all others."""
    asked = survey()
    store = RedisStore.connect(url, prefix=f"{windows}-{number}:")
    applier = Applier(store, SurveyDict(asked), refuse, partitions=PARTITIONS, clock=lambda: NOW_MS)
    applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    costs, offset = [Cost(), Cost()], 0
    for rung in range(RUNGS):
        found = messages(asked, windows, rung)
        work = batches(found, start=offset)
        offset += sum(map(len, found.values()))
        for batch in work:
            before, before_redis = time.process_time(), cpu_seconds(redis_pid)
            done = applier.process(batch)
            spent = time.process_time() - before, cpu_seconds(redis_pid) - before_redis
            costs[rung > 0] += Cost(*spent, sum(len(moments) for moments in done.frames_sent_ms.values()))
            if done.counters.applied != done.reports:
                raise AssertionError(f"expected {done.reports} reports to be applied; got {done.counters}")
    store.close()
    return costs[0], costs[1]


def results() -> Iterator[Measured]:
    """Measure in turns; the least of each counts."""
    warm_up()
    look_for_cycles_rarely()
    firsts: dict[int, Cost] = {}
    others: dict[int, Cost] = {}
    with Supervisor() as supervisor:
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        for number in range(ROUNDS):
            for windows in WINDOWS:
                found = cost(server.url, server.child.pid, windows, number)
                print(f"{windows} windows: {found}", file=sys.stderr)
                for least, own in zip((firsts, others), found, strict=True):
                    least[windows] = own.least(least.get(windows, own))
    few, many = WINDOWS[0], WINDOWS[-1]
    worker, redis = others[many].of_a_log(others[few])
    yield Result("windows-worker", worker, "ms a touched log", most=WORKER_MS)
    yield Result("windows-redis", redis, "ms a touched log", most=REDIS_MS)
    worker, redis = firsts[many].of_a_log(firsts[few])
    yield Result("windows-worker-new", worker, "ms a new log")
    yield Result("windows-redis-new", redis, "ms a new log")
    whole = {windows: firsts[windows] + others[windows] for windows in WINDOWS}
    millions = REPORTS * RUNGS / 1e6
    rate = {windows: millions / (found.worker + found.redis) for windows, found in whole.items()}
    yield Result("windows-1000", rate[many], "M per CPU-s", "10 windows", rate[few])
    yield Series("windows", "worker", [(float(n), found.worker / millions) for n, found in whole.items()])
    yield Series("windows", "Redis", [(float(n), found.redis / millions) for n, found in whole.items()])
