"""The short form of `make examples`: one demo of the example surveys whose path is like no other's."""

from __future__ import annotations

import pytest

from streams.folders import deploy_folder
from tests.integration import examples
from tests.support.stats import BUDGET, SHARE

pytestmark = pytest.mark.real

UNLIKE_OTHERS = ("improved_christofides", "k_randomization", "pckv_ue", "rappor")
"""Cards of a real dealer, totals only of a crowd, keys with values, strings of a file of candidates."""
DEVICES = 3_000
SECONDS = 14


def test_examples_run_in_the_demo_and_their_bands_hold(kafka: str) -> None:
    files = [deploy_folder("surveys") / f"{name}.toml" for name in UNLIKE_OTHERS]
    run = examples.run(files, "--kafka", kafka, "--devices", str(DEVICES), seconds=SECONDS, seed=12)
    BUDGET.take()
    assert examples.faults([run], false_alarm=SHARE, windows=4, rows=12) == []
    assert [one.name for one in run.examples] == list(UNLIKE_OTHERS)
    assert run.sent > DEVICES
    assert examples.closing_line([run]).startswith("examples 4, lost 0, double 0, inside ")
