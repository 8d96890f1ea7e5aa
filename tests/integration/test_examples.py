"""The short form of `make examples`: one demo of the example surveys whose path is like no other's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.folders import deploy_folder
from tests.integration import examples
from tests.support.stats import BUDGET, SHARE

pytestmark = pytest.mark.real

UNLIKE_OTHERS = ("improved_christofides", "k_randomization", "pckv_ue", "rappor")
"""Cards of a real dealer, totals only of a crowd, keys with values, strings of a file of candidates."""
DEVICES = 3_000
SECONDS = 20
FEWEST = {"windows": 1, "rows": 2}
"""How many windows settle in so short a time depends on the machine; `make examples` asks for ten, and 30 rows."""


def test_examples_run_in_the_demo_and_their_bands_hold(kafka: str) -> None:
    files = [deploy_folder("surveys") / f"{name}.toml" for name in UNLIKE_OTHERS]
    run = examples.run(files, "--kafka", kafka, "--devices", str(DEVICES), seconds=SECONDS, seed=12)
    BUDGET.take()
    assert examples.faults([run], false_alarm=SHARE, **FEWEST) == []
    assert [one.name for one in run.examples] == list(UNLIKE_OTHERS)
    assert run.sent > DEVICES
    assert examples.closing_line([run]).startswith("examples 4, lost 0, double 0, inside ")


def row(*, inside: bool, known: bool = True) -> dict[str, Any]:
    ends = (0.4, 0.6) if known else (None, None)
    return {"lower": ends[0], "upper": ends[1], "truth": 0.5 if inside else 0.7, "inside": inside}


def test_what_is_wrong_with_a_run_is_named() -> None:
    windows = [{"estimates": [row(inside=True), row(inside=True), row(inside=False, known=False)]}] * 12
    good = examples.Found.of("good", {"mechanism": "grr", "windows": windows})
    assert good.line == "good (grr): windows 12, inside 24 of 24, without a band 12"
    assert (good.trials.trials, good.trials.held) == (12, 12)
    run = examples.Run((good,), sent=9, backlog=0, lost=0, double=0)
    assert examples.faults([run]) == []
    lost = replace(run, backlog=1, lost=2, double=3)
    assert examples.faults([run, lost]) == ["good: backlog 1, lost 2, double 3"]
    assert examples.closing_line([run, lost]) == "examples 2, lost 2, double 3, inside 48 of 48"
    short = examples.Found.of("short", {"mechanism": "grr", "windows": windows[:9]})
    assert examples.faults([replace(run, examples=(short,))]) == [
        "short: 9 windows and 27 rows; at least 10 and 30 must settle"
    ]
    bad = examples.Found.of("bad", {"mechanism": "grr", "windows": [{"estimates": [row(inside=False)] * 3}] * 12})
    assert examples.faults([replace(run, examples=(good, bad))]) == [
        "all examples: 12 of 24 bands hold, one of each window",
        "bad: 0 of 12 bands hold, one of each window",
    ]
