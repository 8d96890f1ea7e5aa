"""Tallies drawn as counts follow the same law as tallies of devices that draw their answers one by one."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.mechanisms.registry import names
from tests.calibration.cells import Layout, Setting
from tests.calibration.counts import device_by_device, drawer
from tests.calibration.worlds import worlds
from tests.support.stats import assert_normal

TALLIES = 200
USERS = 150


@pytest.mark.statistical
@pytest.mark.parametrize("name", names())
def test_counts_have_the_means_of_devices_that_answer_one_by_one(name: str) -> None:
    world = next(iter(worlds([name])))
    layout: Layout = "mixed" if len(world.ladder) > 1 else "top rung"
    rng = np.random.default_rng(8)
    people, _ = Setting(world, layout, USERS, "fleet").people(rng)
    found = []
    for draw in (drawer(world)[0], device_by_device(world)):
        tallies = [draw(people, rng) for _ in range(TALLIES)]
        assert all(tally.total_users == people.sum() * world.mechanism.specification.copies for tally in tallies)
        found.append(np.array([tally.counts.reshape(-1) for tally in tallies], dtype=np.float64))
    errors = np.sqrt(sum(counts.var(axis=0) for counts in found) / TALLIES)
    for drawn, one_by_one, error in zip(found[0].mean(axis=0), found[1].mean(axis=0), errors, strict=True):
        # Where both hardly ever differ from a constant, one answer more or less in all tallies is no difference.
        assert_normal(float(drawn), float(one_by_one), max(float(error), 1.0 / TALLIES))
