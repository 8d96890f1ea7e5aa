"""What a simulated fleet costs beside the worker that counts what it sent."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streams.kafka.topics import Topics, wanted
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from tests.bench.goals import Measured, Result, Spent
from tests.bench.pipeline import _Bench, _Topic

ROUNDS: Final = 1
DEVICES: Final = 300_000
WINDOWS: Final = 3


def results() -> Iterator[Measured]:
    """Let a fleet send as fast as it can, then let a worker count it; the least processor time of each counts."""
    fleets, workers = [], []
    with Supervisor() as supervisor:
        bench = _Bench.start(supervisor)
        for number in range(ROUNDS):
            settings = Settings(
                kafka=bench.kafka, redis=bench.redis_url, surveys=str(bench.surveys), prefix=f"fleet-{number}."
            )
            Topics(settings).create(wanted(settings, [bench.survey]))
            reports = DEVICES * WINDOWS * bench.survey.mechanism.rungs
            fleets.append(_fleet(bench, settings) / reports * 1e6)
            run = bench.worker(_Topic(settings, reports, 0))
            workers.append(run.spent["worker"])
            print(f"fleet {fleets[-1]:.3g}, worker {workers[-1]:.3g} CPU-s per million", file=sys.stderr)
    fleet, worker = min(fleets), min(workers)
    yield Result("fleet", 1 / fleet, "M per CPU-s", "worker on its reports", 1 / worker, least_ratio=1)
    yield Spent("a fleet and its worker", {"fleet": fleet, "worker": worker})


def _fleet(bench: _Bench, settings: Settings) -> float:
    """Return the processor time of `thaw fleet`, without what it takes to start."""
    survey = Path(settings.surveys) / "bench.toml"
    words = [str(survey), "--devices", str(DEVICES), "--windows", str(WINDOWS), "--pace", "fast", "--no-truth"]
    env = os.environ | {"THAW_KAFKA": bench.kafka, "THAW_REDIS": bench.redis_url, "THAW_PREFIX": settings.prefix}
    spent = []
    for arguments in ([*words, "--seed", "1"], ["--help"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "streams.cli", "fleet", *arguments], env=env, check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return spent[0] - spent[1]
