"""The worked sizes of docs/capacity.md follow from what was measured, by the formulas that the page states."""

from __future__ import annotations

import re

import pytest

from deploy.capacity import (
    BUSY,
    LEAST_WORKERS,
    MOST_PARTITIONS,
    PARTITIONS_PER_WORKER,
    measured,
    partitions,
    sizing,
    worked,
    workers,
)
from tests.support.paths import DOCS
from tests.support.surveys import survey

WAYS = ("single", "batched")


@pytest.mark.parametrize("way", WAYS)
def test_a_small_survey_gets_two_workers_and_a_large_one_what_its_peak_takes(way: str) -> None:
    costs = measured()
    small, large = (sizing(survey(), devices, costs) for devices in (10, 10**9))
    assert (workers(small, way), partitions(small, way)) == (LEAST_WORKERS, PARTITIONS_PER_WORKER * LEAST_WORKERS)
    needed = large.peak_rate * costs[f"worker_seconds_{way}"] / 1e6 / BUSY
    assert needed <= workers(large, way) < needed + 1
    assert partitions(large, way) == min(PARTITIONS_PER_WORKER * workers(large, way), MOST_PARTITIONS)


def test_every_processor_second_that_was_measured_is_in_a_worked_size() -> None:
    costs = measured()
    for name in (name for name in costs if "_seconds" in name):
        assert sizing(survey(), 10**6, costs | {name: 2 * costs[name]}) != sizing(survey(), 10**6, costs), name


def test_no_worked_size_has_fewer_workers_than_the_page_says() -> None:
    rows = re.findall(r"^\| (workers|partitions), .*?\| (.*) \|$", worked(), re.MULTILINE)
    assert {name for name, _ in rows} == {"workers", "partitions"}
    least = {"workers": LEAST_WORKERS, "partitions": PARTITIONS_PER_WORKER * LEAST_WORKERS}
    for name, cells in rows:
        assert all(int(cell.replace(",", "")) >= least[name] for cell in cells.split(" | "))
    text = (DOCS / "capacity.md").read_text()
    assert f"at most {MOST_PARTITIONS:,}" in text
