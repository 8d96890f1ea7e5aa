"""The tables and the picture of docs/performance.md, and the table of docs/gateway.md: what `make bench` measured.

It is in deploy/performance.json. `make generated` writes the tables, this module the picture:

python -m deploy.performance
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Final

from estimators.reproduction.charts import Bars, Chart, Curve

FILE: Final = Path(__file__).with_name("performance.json")
PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "performance.svg"
BUSY: Final = 0.5
"""Share of a processor that is busy: as in deploy/capacity.py."""
PROCESSORS: Final = 2
"""Of the machine that goals are set for."""
RATES: Final = (10**6, 10**7, 10**8)
"""Reports per second of the clusters that are reckoned."""

_GROWTH: Final = {
    "users": ("Devices in a window", "devices", "CPU-s per million reports"),
    "windows": ("Open windows, the same reports", "windows", "CPU-s per million reports"),
    "values": ("Values of a survey", "values", "processor time of an estimate, ms"),
    "bits": ("Bits of an answer", "bits", "CPU-s per million reports"),
    "latency": ("From emission to a stored estimate", "million reports a second", "seconds"),
}
"""By the name of a series: title and axes of its chart."""
_GATEWAY: Final = {
    "gateway-requests": "requests",
    "gateway-p99": "99 % are answered within",
    "gateway-slow-client": "requests beside slow connections",
    "gateway-slow-client-memory": "memory that slow connections add",
    "gateway-hung-broker-memory": "memory that a broker that hangs adds",
}
"""By the name of a result: what it says of the gateway."""
_LINEAR: Final = ("latency",)
_WORKERS: Final = "Workers on this machine", "workers", "million reports a second"


def measured() -> dict[str, Any]:
    """Return what was measured."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def machine() -> str:
    """Return where it was measured, as a list; a machine that was busy with something else is called so."""
    about = measured()["machine"]
    lines = [f"* {what}: {text}" for what, text in about.items()]
    found = re.search(r"averages ([\d.]+)", about["load"])
    if found is not None and float(found[1]) > BUSY * PROCESSORS:
        lines += [
            "",
            "**It was busy with other work**: what is measured by the clock is slower here than on a quiet machine.",
        ]
    return "\n".join(lines)


def ratios() -> str:
    """Return the table of ratios."""
    rows = ["| what | ratio | goal | absolute |", "|---|---|---|---|"]
    for one in measured()["results"]:
        name, ratio, goal, absolute = one["cells"]
        rows.append(f"| `{name}` | {ratio} | {goal} | {absolute} |")
    return "\n".join(rows)


def gateway() -> str:
    """Return the table of what a gateway does under load."""
    rows = ["| | measured | ratio | goal |", "|---|---|---|---|"]
    for one in measured()["results"]:
        if one["name"] in _GATEWAY:
            _, ratio, goal, absolute = one["cells"]
            rows.append(f"| {_GATEWAY[one['name']]} | {absolute.strip('()')} | {ratio} | {goal} |")
    return "\n".join(rows)


def goals() -> str:
    """Return the lines that the benchmark ended with."""
    found = measured()
    lines = [f"{part}: its goals were not measured" for part in found["failed"]]
    lines += [one["verdict"] for one in found["results"] if one["verdict"] is not None]
    return "\n".join(["```text", *lines, "```"])


def cluster() -> str:
    """Return what a cluster would need, reckoned from processor time."""
    [spent] = [one["parts"] for one in measured()["spent"] if one["name"] == "1,000 reports a message"]
    rows = [
        "| reports a second | " + " | ".join(f"{rate:,}" for rate in RATES) + " |",
        "|---|" + "---|" * len(RATES),
    ]
    for process, what in (("worker", "processors of workers"), ("Redis", "masters of Redis"), ("Kafka", "of brokers")):
        needed = (math.ceil(rate / 1e6 * spent[process] / BUSY) for rate in RATES)
        rows.append(f"| {what} | " + " | ".join(f"{number:,}" for number in needed) + " |")
    return "\n".join(rows)


def charts() -> list[Chart]:
    """Return where the time goes, and how costs grow."""
    found = measured()
    spent = {one["name"]: one["parts"] for one in found["spent"] if set(one["parts"]) == {"worker", "Kafka", "Redis"}}
    processes = ("worker", "Redis", "Kafka")
    shown = [
        Chart(
            "Where the time goes",
            "",
            "CPU-s per million reports",
            [Bars(processes, {name: [parts[process] for process in processes] for name, parts in spent.items()})],
        )
    ]
    for name, (title, across, up) in _GROWTH.items():
        curves = [
            Curve(one["label"], [x for x, _ in one["points"]], [y for _, y in one["points"]])
            for one in found["series"]
            if one["name"] == name
        ]
        shown.append(Chart(title, across, up, curves, x_log=name not in _LINEAR, y_log=name not in _LINEAR))
    title, across, up = _WORKERS
    counts = {one["label"]: dict(one["points"]) for one in found["series"] if one["name"] == "workers"}
    numbers = sorted({number for points in counts.values() for number in points})
    heights = {label: [points[number] for number in numbers] for label, points in counts.items()}
    shown.append(Chart(title, across, up, [Bars([f"{number:g}" for number in numbers], heights)]))
    return shown


def write() -> None:
    """Draw the picture."""
    from streams.reproduction.pictures import draw  # a benchmark of one part needs no matplotlib

    PICTURE.write_text(draw(charts()))


if __name__ == "__main__":
    write()
