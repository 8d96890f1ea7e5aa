"""The pictures of docs/budgets.md are what the device does."""

from __future__ import annotations

import pytest

from deploy.budget_figures import BUDGET, FIGURES, IMAGES, demands, spending
from deploy.market_figure import together
from tests.support.pictures import assert_same_picture


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_picture_is_what_its_script_draws(name: str) -> None:
    assert_same_picture(IMAGES / name, FIGURES[name]())


def test_the_pictures_show_what_the_page_says() -> None:
    assert list(spending(fair=False))[-1] == (BUDGET, 0.0)
    assert list(spending(fair=True))[-1] == (BUDGET / 2, BUDGET / 2)
    assert [spent for _, spent in demands()] == [0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_several_draws_of_one_level_are_soon_the_released_one() -> None:
    # From theory: two buyers hold 1.87, five hold 2.93, with answers drawn anew at level 1 from level 3.
    assert [round(together(buyers), 2) for buyers in (1, 2, 5)] == [1.0, 1.87, 2.93]
