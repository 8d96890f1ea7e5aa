"""The page of promises names tests that exist, and faults that `make chaos` knows."""

from __future__ import annotations

import re

import pytest

from tests.chaos.faults import KINDS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/\S+\.py)::(test_\w+)`", PAGE)))


def test_the_page_names_many_tests() -> None:
    assert len(NAMED) > 15


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), flags=re.MULTILINE)


def test_every_fault_is_listed_and_no_other() -> None:
    table = PAGE.split("| fault |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE)) == set(KINDS)
