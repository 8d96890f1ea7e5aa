"""docs/gallery.md shows every experiment of `thaw reproduce` with its picture; explanations can be looked up."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from deploy.gallery import PAGE, PICTURES, page
from estimators.reproduction.laboratory import Laboratory
from estimators.reproduction.registry import EXPERIMENTS
from streams.reproduction.datasets import PackagedData
from streams.reproduction.published import load_published
from streams.reproduction.run import perform
from tests.support.paths import ROOT

TEXT = PAGE.read_text()


def test_the_page_has_a_section_for_every_experiment_and_no_other() -> None:
    assert sorted(re.findall(r"^### (\S+)$", TEXT, re.MULTILINE)) == sorted(EXPERIMENTS)


def test_the_page_shows_no_number_that_differs() -> None:
    assert "**differ**" not in TEXT


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_picture_is_drawn_for_both_themes(name: str) -> None:
    picture = (PICTURES / f"{name}.svg").read_text()
    ET.fromstring(picture)
    assert "prefers-color-scheme: dark" in picture
    assert f"(images/gallery/{name}.svg)" in TEXT


def test_corrections_on_the_page_are_listed() -> None:
    known = set(re.findall(r"^\| ([a-z]+-\d+) \|", (ROOT / "docs" / "papers.md").read_text(), re.MULTILINE))
    used = set(re.findall(r"\| ([a-z]+-\d+) \|$", TEXT, re.MULTILINE))
    assert used
    assert used <= known


def test_sections_of_closed_forms_are_what_the_generator_writes() -> None:
    names = ("pan-table-1", "pan-fig-1a", "kr-worked", "sun-table-2")
    laboratory = Laboratory(load_published(), PackagedData())
    made = page(list(perform([EXPERIMENTS[name] for name in names], laboratory)))
    for section in re.findall(r"^### .*?(?=^##|\Z)", made, re.MULTILINE | re.DOTALL):
        assert section.strip() in TEXT, "run `make gallery`"
