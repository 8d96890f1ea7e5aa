"""`make capacity`: measure what a report costs; write deploy/capacity.toml, from which docs/capacity.md is computed.

Processor time is counted, not time that passes, so that other work on the machine matters little. Real Kafka, Redis,
worker and tools; a simulated fleet's messages, all in Kafka beforehand: one topic with up to 1,000 reports a message,
as gateways and relays send, and one with a single report each, as devices send by themselves.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import redis
import tomli_w

from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.shape import Shape
from streams.worker.table import Table
from tests.bench.pipeline import LARGE_WINDOWS, _Bench, _Topic
from tests.bench.processes import cpu_seconds
from tests.support.deadline import until
from tests.support.paths import ROOT

FILE: Final = ROOT / "deploy" / "capacity.toml"
ROUNDS: Final = 2
CLIMB_BLOCKS: Final = 8


class Cost(NamedTuple):
    """Processor seconds for a million reports."""

    worker: float
    redis: float
    kafka: float


class Counting:
    """A worker on one topic with an empty Redis."""

    def __init__(self, bench: _Bench, settings: Settings) -> None:
        with redis.Redis.from_url(bench.redis_url) as client:
            client.flushall()
        bench.runs += 1
        env = {
            "THAW_KAFKA": bench.kafka,
            "THAW_REDIS": bench.redis_url,
            "THAW_SURVEYS": str(bench.surveys),
            "THAW_PREFIX": settings.prefix,
            "THAW_GROUP": f"group-{bench.runs}",
            "THAW_WORKER_PORT": "0",
        }
        self._bench, self._store = bench, open_store(settings)
        self._child = bench._run([sys.executable, "-m", "streams.cli", "worker"], env)
        self.pids = {"worker": self._child.pid} | {name.lower(): one.child.pid for name, one in bench.services.items()}

    def applied(self) -> int:
        """Return how many reports were counted."""
        self._child.check()
        return self._store.log.counters(self._bench.survey.id).applied

    def wait(self, reports: int) -> None:
        """Return when so many were counted."""
        until(lambda: self.applied() >= reports, 300, f"{reports} reports", poll_seconds=0.02)

    def end(self) -> None:
        """Wait for the estimates, and end the worker."""
        until(lambda: not self._store.queue.entries(), 300, "all estimates")
        self._child.kill()
        self._bench.supervisor.forget(self._child)
        self._store.close()


def counted_cost(bench: _Bench, topic: _Topic) -> Cost:
    """Let a worker count a topic; return what a million reports cost."""
    counting = Counting(bench, topic.settings)
    first = until(counting.applied, 300, "a first report", poll_seconds=0.02)
    start = {name: cpu_seconds(pid) for name, pid in counting.pids.items()}
    counting.wait(topic.reports)
    spent = {name: cpu_seconds(pid) - start[name] for name, pid in counting.pids.items()}
    counting.end()
    millions = (topic.reports - first) / 1e6
    return Cost(*(spent[name] / millions for name in Cost._fields))


def climbed_bytes(bench: _Bench) -> float:
    """Return Redis' bytes for a device and window after all rungs, each sent when the one before was counted."""
    counting: Counting | None = None
    sent = before = 0
    with redis.Redis.from_url(bench.redis_url) as client:
        for settings, reports, _ in bench.sending("climb", CLIMB_BLOCKS, LARGE_WINDOWS, per_message=1_000):
            if counting is None:
                counting = Counting(bench, settings)
                before = client.info("memory")["used_memory"]
            sent += reports
            counting.wait(sent)
        assert counting is not None
        counting.end()
        held = int(client.info("memory")["used_memory"]) - before
    return held / (sent / bench.survey.mechanism.rungs)


def command_seconds(settings: Settings, *arguments: str) -> float:
    """Return the processor time of a command of `thaw`, without what it takes to start."""

    def run(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = os.environ | {
            "THAW_KAFKA": settings.kafka,
            "THAW_REDIS": settings.redis,
            "THAW_SURVEYS": settings.surveys,
            "THAW_PREFIX": settings.prefix,
        }
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli", *words], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run(*arguments) - run(arguments[0], "--help")


def log_bytes(folder: Path, topic: str) -> int:
    """Return the size of a topic's segments on the broker's disk."""
    return sum(file.stat().st_size for file in folder.rglob("*.log") if file.parent.name.startswith(f"{topic}-"))


def table_bytes(bench: _Bench) -> float:
    """Return a worker's memory for a token that it works on."""
    shape, users = Shape.of(bench.survey), 100_000
    table = Table(shape)
    entries = np.zeros((users, shape.entry_bytes), dtype=np.uint8)
    entries[:, :13] = np.random.default_rng(1).integers(0, 256, size=(users, 13), dtype=np.uint8)
    entries[:, 13] = 1  # the lowest rung
    table.fold_log(entries.tobytes())
    return table.nbytes / users


def measured(tell: Callable[[str], None]) -> dict[str, float]:
    """Measure everything."""
    with Supervisor() as supervisor:
        bench = _Bench.start(supervisor)
        per_token, climbed = table_bytes(bench), climbed_bytes(bench)
        tell(f"memory: {per_token:.3g} bytes in a worker, {climbed:.3g} in Redis")
        large = bench.topic("large", 16, LARGE_WINDOWS, per_message=1_000)
        single = bench.topic("single", 1, LARGE_WINDOWS, per_message=1, alone=True)
        costs: dict[str, list[Cost]] = {"single": [], "large": []}
        for number in range(ROUNDS):
            for name, topic in (("single", single), ("large", large)):
                costs[name].append(counted_cost(bench, topic))
                tell(f"round {number + 1} of {ROUNDS}, {name}: {costs[name][-1]}")
        # The least of each: whatever else a process did in a round was not for these reports.
        best = {name: Cost(*map(min, zip(*some, strict=True))) for name, some in costs.items()}
        # The last round left the large topic in Redis.
        folder = supervisor.folder
        export = folder / "export"
        found = {
            "worker_seconds_single": best["single"].worker,
            "worker_seconds_batched": best["large"].worker,
            "redis_seconds_single": best["single"].redis,
            "redis_seconds_batched": best["large"].redis,
            "kafka_bytes_single": log_bytes(folder / "kafka", single.settings.reports_topic) / single.reports,
            "kafka_bytes_batched": log_bytes(folder / "kafka", large.settings.reports_topic) / large.reports,
            "redis_bytes_per_device_window": climbed,
            "worker_bytes_per_device_window": per_token,
            "rebuild_seconds": command_seconds(large.settings, "rebuild", "bench", "--json") / large.reports * 1e6,
            "export_seconds": command_seconds(large.settings, "export", str(export)) / large.reports * 1e6,
        }
        found["export_bytes"] = sum(f.stat().st_size for f in export.rglob("*.parquet")) / large.reports
        # The worker is gone: nothing moves while the export is counted.
        found["recount_seconds"] = command_seconds(large.settings, "recount", str(export)) / large.reports * 1e6
        return found


def main() -> int:
    """Measure and write."""
    found = measured(lambda text: print(text, file=sys.stderr))
    head = (
        "# What a report costs: measured by `make capacity`, read by deploy/capacity.py for docs/capacity.md.\n"
        "# Seconds are processor seconds for a million reports; bytes are for one report, or one device and window.\n"
    )
    about = {"machine": platform.machine(), "python": platform.python_version()}
    rounded = {name: float(f"{value:.3g}") for name, value in found.items()}
    FILE.write_text(head + tomli_w.dumps({"measured": rounded, "on": about}))
    print(FILE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
