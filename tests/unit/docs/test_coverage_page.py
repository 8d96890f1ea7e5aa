"""The page of coverage through the pipeline is that of a whole run of `make coverage`."""

from __future__ import annotations

from estimators.mechanisms.registry import names, specification_class
from tests.integration.coverage import DEVICES, PAGE, WINDOWS


def test_the_table_is_that_of_a_whole_run() -> None:
    page = PAGE.read_text()
    cells = sum(len(specification_class(name).methods) for name in names())
    assert f"runs this, {WINDOWS} windows each" in page
    assert f"windows with {DEVICES} devices each" in page
    assert f"{WINDOWS * cells:,} estimates equal those of the library. cells {cells}, below 0." in page
