"""The pictures of docs/budgets.md are what the device does."""

from __future__ import annotations

import re

import pytest

from deploy.budget_figures import BUDGET, FIGURES, IMAGES, demands, spending
from deploy.market_figure import together
from deploy.standing_figure import ways
from tests.support.paths import ROOT
from tests.support.pictures import assert_same_picture


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    assert_same_picture(IMAGES / name, FIGURES[name]())


def test_the_pictures_show_what_the_page_says() -> None:
    assert list(spending(fair=False))[-1] == (BUDGET, 0.0)
    assert list(spending(fair=True))[-1] == (BUDGET / 2, BUDGET / 2)
    assert [spent for _, spent in demands()] == [0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_the_numbers_about_withdrawals_and_standing_values_follow_from_what_the_page_says() -> None:
    page = " ".join((ROOT / "docs" / "budgets.md").read_text().split())
    told = re.search(r"\((\d+) % against (\d+) %\), a share of (\d+) % is estimated as ([\d.]+) %", page)
    assert told
    own, others, share = (float(text) / 100 for text in told.groups()[:3])
    left = share * (1 - own)
    assert told[4] == f"{100 * left / (left + (1 - share) * (1 - others)):.1f}"
    fresh, standing = ways()
    assert "errs by several times as much as with fresh answers, at a fortieth of the cost" in page
    assert round(fresh.epsilon / standing.epsilon, -1) == 40
    assert standing.mean_error > 3 * fresh.mean_error


def test_several_draws_of_one_level_are_soon_the_released_one() -> None:
    # From theory: two buyers hold 1.87, five hold 2.93, with answers drawn anew at level 1 from level 3.
    assert [round(together(buyers), 2) for buyers in (1, 2, 5)] == [1.0, 1.87, 2.93]
