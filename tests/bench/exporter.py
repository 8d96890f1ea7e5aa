"""The exporter with five surveys of 100 windows and 100 values: answers per second, listeners, memory.

The other side of a ratio is what the same exporter would do if each request read, computed and encoded for itself, one
after the other, as it once did: what one takes is measured in this process, on the same Redis.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import aiohttp
from prometheus_client import CollectorRegistry, generate_latest

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import load_survey
from streams.exporter.collector import ThawCollector
from streams.exporter.reader import Reader
from streams.exporter.views import Views
from streams.exporter.watcher import Seen
from streams.local.redis import Redis
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from tests.bench.goals import Measured, Result
from tests.bench.processes import peak_mib
from tests.browser.stored import store_windows, survey_file
from tests.chaos.soak import rss_mib
from tests.support.exporter_process import start_exporter

SURVEYS, WINDOWS, VALUES = 5, 100, 100
CLIENTS, LISTENERS = 500, 1_000
LEAST_TIMES: Final = 20.0
MOST_MIB: Final = 100.0
MOST_HEALTH_MS: Final = 100.0
"""A health check while scrapes run: far below the second after which probes give up."""
_SECONDS: Final = 4
_ROUNDS: Final = 5


def results() -> Iterator[Measured]:
    """Fill a Redis, start an exporter, and put load on it."""
    with Supervisor() as supervisor:
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        folder = supervisor.folder / "surveys"
        folder.mkdir()
        settings = Settings(redis=server.url, surveys=str(folder))
        for number in range(SURVEYS):
            file = survey_file(folder, f"survey-{number}", [f"value {value}" for value in range(VALUES)])
            store_windows(settings, load_survey(file), windows=WINDOWS, users=1_000, seed=number)
        alone = _alone(settings, folder)
        child, url = start_exporter(folder, redis_url=server.url, prefix="")
        try:
            rested = rss_mib(child.pid)
            scrapes, _ = _load(f"{url}/metrics", 8)
            health, _ = _load(f"{url}/healthz", 64)
            scraping = _wrk(f"{url}/metrics", 8)
            _, beside_ms = _load(f"{url}/healthz", 8)
            scraping.wait(60)
            served = asyncio.run(_clients(url, f"survey-{SURVEYS - 1}"))
            heard = asyncio.run(_listeners(url))
            peak = peak_mib(child.pid)
        finally:
            child.kill()
    yield Result("exporter-metrics", scrapes, "per s", "each for itself", alone["metrics"], least_ratio=LEAST_TIMES)
    yield Result("exporter-healthz", health, "per s", "each for itself", alone["health"], least_ratio=LEAST_TIMES)
    yield Result("exporter-healthz-beside-scrapes", beside_ms, "ms p99", most=MOST_HEALTH_MS)
    yield Result("exporter-clients", served, "of 500 served", "all", float(CLIENTS), least_ratio=1)
    yield Result("exporter-listeners", heard, "listeners", "all", float(LISTENERS), least_ratio=1)
    yield Result("exporter-memory", rested, "MiB", most=MOST_MIB)
    yield Result("exporter-memory-peak", peak, "MiB with 1,000 listeners")


def _alone(settings: Settings, folder: Path) -> dict[str, float]:
    """Return how many answers a second there would be if each look at the store served one."""
    store = open_store(settings)
    surveys = SurveyFolder(folder, system_clock(), keep_removed=False)

    def look() -> Seen:
        reader = Reader(store, surveys, heartbeats=store.heartbeats)  # it keeps nothing of an earlier look
        snapshot = reader.snapshot()
        return Seen(1, Views(reader).health(snapshot), snapshot)

    def scrape() -> None:
        seen = look()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(ThawCollector(lambda: seen, value_limit=VALUES))
        generate_latest(registry)

    found = {"metrics": 1 / _least(scrape), "health": 1 / _least(look)}
    store.close()
    return found


def _least(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begin)
    return min(spent)


def _wrk(url: str, connections: int) -> subprocess.Popen[str]:
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{_SECONDS}s", "--latency"]
    return subprocess.Popen([*command, "--timeout", "60s", url], stdout=subprocess.PIPE, text=True)


def _load(url: str, connections: int) -> tuple[float, float]:
    """Return answers per second, and the time in ms within which 99 of 100 came."""
    text, _ = _wrk(url, connections).communicate(timeout=120)
    rate, p99 = re.search(r"Requests/sec:\s+([\d.]+)", text), re.search(r"99%\s+([\d.]+)(us|ms|s)\n", text)
    assert rate is not None, text
    assert p99 is not None, text
    if "Non-2xx" in text:
        raise AssertionError(f"expected good answers from {url}: {text}")
    print(f"{url}: {float(rate[1]):,.0f} a second", file=sys.stderr)
    return float(rate[1]), float(p99[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[p99[2]]


async def _clients(url: str, name: str) -> float:
    """Return how many of many clients that ask for 60 windows at the same time get them within ten seconds."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        async with session.get(f"{url}/api/v1/surveys") as answer:
            [survey] = [one["id"] for one in await answer.json() if one["name"] == name]

        async def ask() -> bool:
            try:
                async with session.get(f"{url}/api/v1/surveys/{survey}/windows?limit=60") as answer:
                    return answer.status == 200 and len(await answer.read()) > VALUES
            except (TimeoutError, aiohttp.ClientError):
                return False

        return float(sum(await asyncio.gather(*(ask() for _ in range(CLIENTS)))))


async def _listeners(url: str) -> float:
    """Return how many of many listeners at the same time hear an event."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        open_until = asyncio.Event()
        heard = 0

        async def listen() -> None:
            nonlocal heard
            try:
                async with session.get(f"{url}/api/v1/events") as answer:
                    async for line in answer.content:
                        if line.startswith(b"event:"):
                            heard += 1
                            break
                    await open_until.wait()
            except (TimeoutError, aiohttp.ClientError):
                return

        listening = [asyncio.create_task(listen()) for _ in range(LISTENERS)]
        for _ in range(200):
            if heard == LISTENERS:
                break
            await asyncio.sleep(0.1)
        open_until.set()
        await asyncio.gather(*listening)
    return float(heard)
