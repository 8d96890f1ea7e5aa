"""Reference vectors: known results, checked against the project's own functions.

Each module of this package exports FUNCTIONS, a table from the quantity named in a vector to a small adapter. An
adapter unpacks the inputs and names the results; it never computes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

MODULES = ("release", "pooling", "christofides", "three_element", "uldp", "krandomization")

Adapter = Callable[..., dict[str, Any]]


def load_functions() -> dict[str, Adapter]:
    """Merge the tables of all modules; a quantity claimed by two modules is an error."""
    merged: dict[str, Adapter] = {}
    for name in MODULES:
        table: dict[str, Adapter] = importlib.import_module(f"tests.vectors.{name}").FUNCTIONS
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"tests.vectors.{name} repeats {sorted(twice)}; each quantity needs one adapter")
        merged.update(table)
    return merged
