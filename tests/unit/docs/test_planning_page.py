"""docs/planning.md shows what its commands print and draw."""

import re

import pytest

from deploy.docs import BLOCKS, DOCS, PLANS, generated_block
from deploy.plan_figures import IMAGES, PICTURES, figure
from tests.support.pictures import assert_same_picture


@pytest.mark.parametrize("name", PLANS)
def test_the_examples_of_the_page_are_what_the_command_prints(name: str) -> None:
    assert generated_block(DOCS / "planning.md", name) == BLOCKS["planning.md", name]()


@pytest.mark.parametrize("name", PLANS)
def test_every_example_names_its_command(name: str) -> None:
    page = (DOCS / "planning.md").read_text()
    assert f"`thaw plan {' '.join(PLANS[name])}`" in page


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_command_below_it_draws(name: str) -> None:
    page = (DOCS / "planning.md").read_text()
    assert f"(images/{name})\n\n*`thaw plan {' '.join(PICTURES[name])} --plot {name}`*" in page
    assert_same_picture(IMAGES / name, figure(name))


def test_no_picture_of_the_page_is_without_a_command() -> None:
    shown = re.findall(r"\(images/([\w-]+\.svg)\)", (DOCS / "planning.md").read_text())
    assert set(shown) == set(PICTURES)
