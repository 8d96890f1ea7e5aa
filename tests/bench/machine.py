"""Where a benchmark ran: processors, load, and the versions of what was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from streams.local.kafka import kafka_libs, kafka_version

_PACKAGES: Final = ("numpy", "numba", "aiokafka", "faust-streaming", "confluent-kafka", "redis", "hiredis", "aiohttp")


def machine() -> dict[str, str]:
    """Return a description, in words."""
    loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{_processor()}, {os.cpu_count()} processors, {_memory_gib():.0f} GiB",
        "load": f"load averages {loads}",
        "python": platform.python_version(),
        "redis": _redis(),
        "kafka": _kafka(),
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _redis() -> str:
    done = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False)
    return next((word.removeprefix("v=") for word in done.stdout.split() if word.startswith("v=")), "unknown")


def _kafka() -> str:
    libs = kafka_libs()
    return "none" if libs is None else f"Apache Kafka {kafka_version(libs)}"
