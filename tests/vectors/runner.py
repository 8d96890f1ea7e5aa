"""Compare results with the expected values of a vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.vectors import Adapter


@dataclass(frozen=True)
class Failure:
    """One vector that did not pass: which, and why."""

    vector: str
    reason: str

    def __str__(self) -> str:
        return f"{self.vector}: {self.reason}"


def run(vectors: Sequence[Mapping[str, Any]], functions: Mapping[str, Adapter]) -> list[Failure]:
    """Run all vectors; an unknown quantity or an exception is a failure, never a skip."""
    return [failure for vector in vectors if (failure := check(vector, functions)) is not None]


def check(vector: Mapping[str, Any], functions: Mapping[str, Adapter]) -> Failure | None:
    """Run one vector and return why it failed, or None."""
    name, adapter = str(vector.get("id", "?")), functions.get(vector.get("fn", ""))
    if adapter is None:
        return Failure(name, f"no function {vector.get('fn')!r} in the table")
    try:
        inputs = {key: parse_infinity(value) for key, value in vector["inputs"].items()}
        got, tolerance = adapter(**inputs), vector["tolerance"]
        reasons = differences(got, vector["expected"], tolerance["rel"], tolerance["abs"])
    except Exception as error:  # any exception is a failed vector, and the others still run
        return Failure(name, f"{vector['fn']} raised {type(error).__name__}: {error}")
    return Failure(name, f"{vector['fn']}: " + "; ".join(reasons[:3])) if reasons else None


def parse_infinity(value: Any) -> Any:
    """Return inputs with the string "inf" read as the number."""
    if isinstance(value, list):
        return [parse_infinity(entry) for entry in value]
    return math.inf if value == "inf" else value


def differences(got: Any, expected: Any, relative: float, absolute: float, path: str = "result") -> list[str]:
    """Return where `got` departs from `expected`; only the keys of `expected` are looked at."""
    if isinstance(got, np.ndarray | np.generic):
        got = got.tolist()
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return [f"{path} is {got!r}, not a table"]
        named = {str(key): value for key, value in got.items()}
        missing = [f"{path}.{key} is missing" for key in expected if key not in named]
        return missing + [
            reason
            for key, value in expected.items()
            if key in named
            for reason in differences(named[key], value, relative, absolute, f"{path}.{key}")
        ]
    if isinstance(expected, list):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return [f"{path} is {got!r}, expected {len(expected)} entries"]
        return [
            reason
            for i, (left, right) in enumerate(zip(got, expected, strict=True))
            for reason in differences(left, right, relative, absolute, f"{path}[{i}]")
        ]
    return [] if _same(got, expected, relative, absolute) else [f"{path} is {got!r}, expected {expected!r}"]


def _same(got: Any, expected: Any, relative: float, absolute: float) -> bool:
    if expected is None or isinstance(expected, bool):
        return got is expected
    if expected == "inf":
        return got in ("inf", math.inf)
    if isinstance(expected, str):
        return bool(got == expected)
    if isinstance(got, bool) or not isinstance(got, int | float):
        return False
    return bool(abs(got - expected) <= absolute + relative * abs(expected))
