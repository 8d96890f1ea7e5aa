"""The numbers of docs/capacity.md, computed from what `make capacity` measured (deploy/capacity.toml)."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from producers.survey.durations import format_duration
from producers.survey.survey import Survey, load_survey, parse_survey
from streams.folders import deploy_folder
from streams.kafka.topics import wanted
from streams.settings import TABLE, Settings

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = Path(__file__).with_name("capacity.toml")
DEVICES: Final = (10**6, 10**8, 10**9)
REPLICATION: Final = 3
BUSY: Final = 0.5
"""Share of a processor that is busy at the peak. More: a restarted worker catches up slowly; less: idle machines."""
REDIS_GIB: Final = 16
"""Memory of one master. Larger: a failover and a rewrite of the file take longer; smaller: more nodes."""


LEAST_WORKERS: Final = 2
"""One goes on while the other is restarted."""
PARTITIONS_PER_WORKER: Final = 4
"""More: workers can grow further before a new topic is needed; fewer: less for the brokers to keep."""


@dataclass(frozen=True)
class Sizing:
    """What a survey needs with so many devices. Sends are "single" (a message each) or "batched" (through gateways)."""

    devices: int
    mean_rate: float
    """Reports per second over a window."""
    peak_rate: float
    """Reports per second while a rung is released within its jitter."""
    kafka_bytes: dict[str, float]
    """On the disks of all brokers, with all replicas."""
    redis_bytes: float
    """Of all windows that are kept, without replicas."""
    worker_processors: dict[str, float]
    redis_processors: dict[str, float]
    rebuild_seconds: float
    """Processor time to count one window again from Kafka."""
    export_seconds: float
    """Processor time to write one window as Parquet."""
    recount_seconds: float
    """Processor time to count it again from there."""
    export_bytes: float
    """One window as Parquet."""


def sizing(survey: Survey, devices: int, costs: dict[str, float]) -> Sizing:
    """Return what a survey needs: every device answers in every window and climbs the whole ladder."""
    windows = survey.windows
    reports = devices * survey.mechanism.rungs
    mean_rate = reports / (windows.step_ms / 1_000)
    # A rung of one window is released over the jitter; several windows may be due at the same time of day.
    peak_rate = max(mean_rate, devices / (max(survey.jitter_ms, 1_000) / 1_000))
    kept_ms = int(wanted(Settings(), [survey])[0].settings["retention.ms"])
    windows_kept = kept_ms / windows.step_ms
    ways = ("single", "batched")
    return Sizing(
        devices=devices,
        mean_rate=mean_rate,
        peak_rate=peak_rate,
        kafka_bytes={way: mean_rate * costs[f"kafka_bytes_{way}"] * (kept_ms / 1_000) * REPLICATION for way in ways},
        redis_bytes=devices * costs["redis_bytes_per_device_window"] * windows_kept,
        worker_processors={way: peak_rate * costs[f"worker_seconds_{way}"] / 1e6 / BUSY for way in ways},
        redis_processors={way: peak_rate * costs[f"redis_seconds_{way}"] / 1e6 / BUSY for way in ways},
        rebuild_seconds=reports * costs["rebuild_seconds"] / 1e6,
        export_seconds=reports * costs["export_seconds"] / 1e6,
        recount_seconds=reports * costs["recount_seconds"] / 1e6,
        export_bytes=reports * costs["export_bytes"],
    )


def _most_partitions() -> int:
    [most] = [row.about.high for row in TABLE if row.name == "partitions"]
    assert most is not None
    return int(most)


MOST_PARTITIONS: Final = _most_partitions()


def workers(size: Sizing, way: str) -> int:
    """Return how many workers the peak needs."""
    return max(LEAST_WORKERS, math.ceil(size.worker_processors[way]))


def partitions(size: Sizing, way: str) -> int:
    """Return how many partitions so many workers share, and more later."""
    return min(PARTITIONS_PER_WORKER * workers(size, way), MOST_PARTITIONS)


def measured() -> dict[str, float]:
    """Return what was measured."""
    found: dict[str, float] = tomllib.loads(FILE.read_text())["measured"]
    return found


def constants() -> str:
    """Return the table of what was measured."""
    costs = measured()
    rows = [
        ("processor of a worker", "s per million", "worker_seconds_single", "worker_seconds_batched"),
        ("processor of Redis", "s per million", "redis_seconds_single", "redis_seconds_batched"),
        ("bytes in Kafka, one replica", "per report", "kafka_bytes_single", "kafka_bytes_batched"),
    ]
    lines = ["| what | unit | a report a message | 1,000 reports a message |", "|---|---|---|---|"]
    lines += [f"| {what} | {unit} | {costs[one]:g} | {costs[many]:g} |" for what, unit, one, many in rows]
    lines += ["", "| what | unit | |", "|---|---|---|"]
    single = (
        ("Redis, all four rungs", "bytes per device and window", "redis_bytes_per_device_window"),
        (
            "memory of a worker, while it works on the window",
            "bytes per device and window",
            "worker_bytes_per_device_window",
        ),
        ("`thaw rebuild`", "processor seconds per million reports", "rebuild_seconds"),
        ("`thaw export`", "processor seconds per million reports", "export_seconds"),
        ("`thaw recount`, DuckDB", "processor seconds per million reports", "recount_seconds"),
        ("Parquet", "bytes per report", "export_bytes"),
    )
    lines += [f"| {what} | {unit} | {costs[name]:g} |" for what, unit, name in single]
    return "\n".join(lines)


def worked() -> str:
    """Return the worked sizing of every example."""
    costs = measured()
    text = (ROOT / "README.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0]
    surveys = {
        "The survey of the [README](../README.md)": parse_survey(text, "README.md"),
        "[`mean.toml`](../deploy/surveys/mean.toml)": load_survey(deploy_folder("surveys") / "mean.toml"),
    }
    return "\n\n".join(
        _section(name, survey, [sizing(survey, devices, costs) for devices in DEVICES])
        for name, survey in surveys.items()
    )


def _section(name: str, survey: Survey, sizes: list[Sizing]) -> str:
    about = (
        f"**{name}**: windows of {format_duration(survey.windows.size_ms)}, "
        f"{survey.mechanism.rungs} rungs, jitter {format_duration(survey.jitter_ms)}, late reports for "
        f"{format_duration(survey.retention_ms)}."
    )
    rows: list[tuple[str, list[str]]] = [
        ("reports per second, mean", [_rate(size.mean_rate) for size in sizes]),
        ("reports per second, peak", [_rate(size.peak_rate) for size in sizes]),
    ]
    for way, how in (("single", "a report a message"), ("batched", "through gateways")):
        rows += [
            (f"Kafka's disks, {how}", [_bytes(size.kafka_bytes[way]) for size in sizes]),
            (f"workers, {how}", [f"{workers(size, way):,}" for size in sizes]),
            (f"partitions, {how}", [f"{partitions(size, way):,}" for size in sizes]),
        ]
    rows += [
        ("memory of Redis", [_bytes(size.redis_bytes) for size in sizes]),
        (f"masters of {REDIS_GIB} GiB", [_masters(size) for size in sizes]),
        ("`thaw rebuild` of a window", [_seconds(size.rebuild_seconds) for size in sizes]),
        ("`thaw export` of a window", [_seconds(size.export_seconds) for size in sizes]),
        ("`thaw recount` of a window, DuckDB", [_seconds(size.recount_seconds) for size in sizes]),
        ("a window as Parquet", [_bytes(size.export_bytes) for size in sizes]),
    ]
    head = " | ".join(f"{devices:,} devices" for devices in DEVICES)
    lines = [f"| | {head} |", "|---|" + "---|" * len(DEVICES)]
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in rows]
    return "\n".join([about, "", *lines])


def _rate(rate: float) -> str:
    return f"{float(f'{rate:.2g}'):,.10g}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_000:
            return f"{float(f'{count:.2g}'):g} {unit}"
        count /= 1_024
    return f"{float(f'{count:.2g}'):,g} TiB"


def _masters(size: Sizing) -> str:
    by_memory = size.redis_bytes / (REDIS_GIB << 30) / BUSY
    return f"{max(1, math.ceil(max(by_memory, *size.redis_processors.values()))):,}"


def _seconds(seconds: float) -> str:
    return f"{format_duration(max(1, round(seconds)) * 1_000)} of one processor"
