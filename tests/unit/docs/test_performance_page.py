"""docs/performance.md, its picture and the table of docs/gateway.md show what `make bench` measured."""

from __future__ import annotations

import pytest

from deploy import performance
from deploy.docs import BLOCKS, DOCS, generated_block
from streams.reproduction.pictures import draw
from tests.support.pictures import assert_same_picture


@pytest.mark.parametrize("name", ["ratios", "machine", "goals", "cluster"])
def test_the_page_shows_what_was_measured(name: str) -> None:
    assert generated_block(DOCS / "performance.md", name) == BLOCKS["performance.md", name]()


def test_the_page_of_the_gateway_shows_all_that_was_measured_of_it() -> None:
    shown = generated_block(DOCS / "gateway.md", "load")
    assert shown == BLOCKS["gateway.md", "load"]()
    names = [one["name"] for one in performance.measured()["results"]]
    assert len(shown.splitlines()) == 2 + sum(name.startswith("gateway-") for name in names)


def test_the_picture_is_drawn_from_what_was_measured() -> None:
    assert_same_picture(performance.PICTURE, draw(performance.charts()))


def test_every_goal_is_met_or_missed_by_something_or_was_not_measured() -> None:
    found = performance.goals().splitlines()[1:-1]
    missing = [line for line in found if line.endswith(": its goals were not measured")]
    assert len(missing) == len(performance.measured()["failed"])
    assert all(line.endswith(": met") or ": missed by " in line for line in found if line not in missing)
    assert len(found) > len(missing)
