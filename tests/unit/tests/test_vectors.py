"""All reference vectors pass, and the runner can fail."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import vectors
from tests.vectors.runner import check, differences, parse_infinity, run

REFERENCE = Path(vectors.__file__).with_name("reference.json")


def test_every_reference_vector_passes() -> None:
    found = json.loads(REFERENCE.read_text(encoding="utf-8"))
    assert len(found) > 300
    assert [str(failure) for failure in run(found, vectors.load_functions())] == []


def vector(**changes: Any) -> dict[str, Any]:
    base = {"id": "t", "fn": "f", "inputs": {"x": 1.0}, "expected": {"y": 2.0}, "tolerance": {"rel": 1e-9, "abs": 0.0}}
    return {**base, **changes}


def adapters() -> dict[str, Any]:
    return {"f": lambda x: {"y": 2 * x, "more": None}, "boom": lambda x: 1 / (x - x)}


def test_unknown_quantities_exceptions_and_wrong_numbers_fail() -> None:
    assert check(vector(), adapters()) is None
    for broken, reason in (
        (vector(fn="no_such"), "no function 'no_such'"),
        (vector(fn="boom"), "boom raised ZeroDivisionError"),
        (vector(expected={"y": 2.1}), r"result.y is 2.0, expected 2.1"),
        (vector(expected={"z": 2.0}), "result.z is missing"),
        (vector(inputs={"w": 1.0}), "raised TypeError"),
    ):
        failure = check(broken, adapters())
        assert failure is not None
        assert reason in str(failure)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (None, 0.0), (0.0, None), (1, True), (True, 1.0), (math.nan, 1.0), ([1.0], [1.0, 2.0]), (1.0, "inf"),
        ({"a": 1.0}, [1.0]), ("x", "y"), (1.0, {"a": 1.0}), (math.inf, 5.0),
    ],
)  # fmt: skip
def test_values_that_only_look_alike_differ(got: Any, expected: Any) -> None:
    assert differences(got, expected, 1e-9, 1e-9)


def test_values_that_mean_the_same_are_the_same() -> None:
    assert differences({3: [1.0, math.inf, None, True]}, {"3": [1.0 + 1e-12, "inf", None, True]}, 1e-9, 0.0) == []
    assert parse_infinity(["inf", [1, "inf"], "ln(k)"]) == [math.inf, [1, math.inf], "ln(k)"]


def test_the_command_ends_with_the_counts_and_a_status(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps([vector(fn="no_such"), json.loads(REFERENCE.read_text(encoding="utf-8"))[0]]))
    root = Path(vectors.__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "tests.vectors", path], capture_output=True, text=True, cwd=root)
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert done.returncode == 1
