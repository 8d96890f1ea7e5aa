"""Independent implementations: loaded from the test environment, never skipped."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


def pure_ldp(package: str) -> Any:
    """Return one package of frequency oracles of pure-ldp.

    Its parent package loads all oracles at once, some of which need libraries that pure-ldp does not declare
    (scikit-learn, statsmodels); an empty parent in its place lets us take only what we compare with.
    """
    parent = "pure_ldp.frequency_oracles"
    if parent not in sys.modules:
        root = importlib.import_module("pure_ldp")
        empty = types.ModuleType(parent)
        empty.__path__ = [f"{folder}/frequency_oracles" for folder in root.__path__]
        sys.modules[parent] = empty
    return importlib.import_module(f"{parent}.{package}")


def multi_freq_ldpy(protocol: str) -> Any:
    """Return a pure frequency oracle of multi-freq-ldpy: GRR or UE."""
    return importlib.import_module(f"multi_freq_ldpy.pure_frequency_oracles.{protocol}")
