"""Data files of published numbers: complete entries, and every correction is one that the documentation lists."""

from __future__ import annotations

import re

import pytest

from estimators.reproduction.results import flatten
from streams.reproduction.published import load_papers, load_published
from tests.support.paths import ROOT

NUMBERS = load_published()
CORRECTIONS = set(re.findall(r"^\| ([a-z]+-\d+) \|", (ROOT / "docs" / "papers.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("key", NUMBERS)
def test_an_entry_is_complete(key: str) -> None:
    entry = NUMBERS[key]
    assert entry.place
    assert entry.kind in ("printed", "formula", "recomputed")
    if entry.erratum is None:
        assert entry.right is None
        return
    assert entry.erratum in CORRECTIONS, "write the correction into docs/papers.md"
    values, rights = flatten(entry.value), flatten(entry.right)
    assert len(values) == len(rights)
    assert values != rights, "a correction that changes nothing explains nothing"


def test_a_file_exists_for_every_paper_that_is_corrected() -> None:
    assert {key.partition(".")[0] for key in NUMBERS} <= {name.partition("-")[0] for name in CORRECTIONS} | {"new"}


def test_a_file_names_its_edition_and_its_pages_or_says_why_not() -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    for paper in load_papers():
        assert re.match(r"\d|none|unknown[^:]*: \w", paper.page), paper.paper
        if re.match(r"\d", paper.page):
            printed = [number for number in paper.numbers if number.kind != "recomputed"]
            printed = [number for number in printed if number.place != "throughout"]
            assert all(re.fullmatch(r"\d+(-\d+)?", number.page) for number in printed), "every number has a page"
            assert all(NUMBERS[number.id].place.endswith(f", p. {number.page}") for number in printed)
        assert f"Edition: {paper.edition}. Page: {paper.page}." in gallery, "run `make gallery`"
