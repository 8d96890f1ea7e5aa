"""docs/tour.md, from its first command to its last picture, on real services."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.pages import pictures, run_page
from tests.support.pictures import assert_same_picture


@pytest.mark.real
def test_the_tour_prints_and_draws_what_it_shows(tmp_path: Path) -> None:
    run_page("tour.md", tmp_path)
    drawn = pictures("tour.md", tmp_path)
    assert {"new-splitting.svg", "rungs.svg"} <= {path.name for path in drawn}
    for path, text in drawn.items():
        assert_same_picture(path, text)
