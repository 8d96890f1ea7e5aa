"""docs/planning.md shows what its commands print."""

import pytest

from deploy.docs import BLOCKS, DOCS, PLANS, generated_block


@pytest.mark.parametrize("name", PLANS)
def test_the_examples_of_the_page_are_what_the_command_prints(name: str) -> None:
    assert generated_block(DOCS / "planning.md", name) == BLOCKS["planning.md", name]()


@pytest.mark.parametrize("name", PLANS)
def test_every_example_names_its_command(name: str) -> None:
    page = (DOCS / "planning.md").read_text()
    assert f"`thaw plan {' '.join(PLANS[name])}`" in page
