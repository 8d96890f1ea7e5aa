"""`make soak`: does the memory of a worker stay bounded under steady load? Prints the curve and says so.

A worker with a small cache counts a fleet whose windows come and go, more of them than the cache holds. Its resident
memory is read every few seconds. It may grow while it warms up (compiled code, the allocator, caches filling); after
that a leak of a few bytes per report would show. Exit status 1 if it grew.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from producers.survey.survey import load_survey
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, ServiceError, free_ports, signals_as_interrupt
from streams.local.redis import Redis
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from tests.chaos import surveys

CACHE_MIB = 8
ROWS = 40
"""Of the printed curve."""
GROWTH = 1.05
"""How much larger the last third of a run may be than the middle third: what an allocator needs to settle."""
SLACK_MIB = 8.0
_BAR = 60


@dataclass(frozen=True)
class Point:
    """One look at the worker."""

    seconds: float
    rss_mib: float
    reports: int


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no resident memory; it has ended")


def flat(points: Sequence[Point]) -> bool:
    """Tell whether the last third of the run needed no more memory than the middle third."""
    third = len(points) // 3
    middle, last = points[third : 2 * third], points[2 * third :]
    before, after = max(point.rss_mib for point in middle), max(point.rss_mib for point in last)
    return after <= max(before * GROWTH, before + SLACK_MIB)


def curve(points: Sequence[Point]) -> str:
    """Draw memory over time, one row per look or per few looks."""
    every = max(1, -(-len(points) // ROWS))
    top = max(point.rss_mib for point in points)
    rows = [
        f"{point.seconds:6.0f} s {point.rss_mib:7.1f} MiB {point.reports:>12,} "
        + "#" * round(_BAR * point.rss_mib / top)
        for point in points[every - 1 :: every]
    ]
    return "\n".join(rows)


def soak(seconds: float, *, devices: int, look_seconds: float) -> list[Point]:
    """Run a worker under load and return what was seen."""
    with Supervisor(stop_seconds=20.0) as supervisor:
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        files = [folder / "fleet.toml", folder / "bits.toml"]
        for path, text in zip(files, (surveys.FLEET, surveys.BITS), strict=True):
            path.write_text(text)
        kafka = supervisor.add(ApacheKafka(folder=supervisor.folder / "kafka"))
        redis = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        settings = Settings(kafka=kafka.address, redis=redis.url, surveys=str(folder))
        known = [load_survey(path) for path in files]
        Topics(settings).create(wanted(settings, known))
        env = {
            "THAW_KAFKA": settings.kafka,
            "THAW_REDIS": settings.redis,
            "THAW_SURVEYS": settings.surveys,
            "THAW_CACHE_MIB": str(CACHE_MIB),
            "THAW_WORKER_PORT": str(free_ports(1)[0]),
        }
        thaw = [sys.executable, "-m", "streams.cli"]
        worker = supervisor.run("worker", [*thaw, "worker"], order=StopOrder.WORKER, env=env)
        fleet = ["fleet", *map(str, files), "--devices", str(devices), "--scenario", "city", "--no-truth"]
        supervisor.run("fleet", [*thaw, *fleet], order=StopOrder.FLEET, env=env)
        store = open_store(settings)

        def reports() -> int:
            counted = [store.log.counters(survey.id) for survey in known]
            return sum(counters.applied + counters.duplicate + counters.outdated for counters in counted)

        return _watch(supervisor, worker, seconds, look_seconds, reports)


def _watch(
    supervisor: Supervisor, worker: Child, seconds: float, look_seconds: float, reports: Callable[[], int]
) -> list[Point]:
    points: list[Point] = []
    while not reports():
        supervisor.check()
        time.sleep(0.1)
    started = time.monotonic()
    while (elapsed := time.monotonic() - started) < seconds:
        supervisor.check()
        points.append(Point(elapsed, rss_mib(worker.pid), reports()))
        time.sleep(look_seconds)
    return points


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default 600)")
    parser.add_argument("--devices", type=int, default=20_000, help="devices of the fleet (default 20000)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    with signals_as_interrupt():
        try:
            points = soak(options.seconds, devices=options.devices, look_seconds=max(0.5, options.seconds / 240))
        except ServiceError as error:
            print(error, file=sys.stderr)
            return 1
    if len(points) < 9 or points[-1].reports <= points[len(points) // 2].reports:
        print("too little happened to tell anything; run it for longer", file=sys.stderr)
        return 1
    print(curve(points))
    good = flat(points)
    last = points[-1]
    print(
        f"soak {last.seconds:.0f} s, reports {last.reports}, memory {points[0].rss_mib:.0f} MiB at first, "
        f"{max(point.rss_mib for point in points):.0f} MiB at most, {last.rss_mib:.0f} MiB at last: "
        f"{'flat' if good else 'grows'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
