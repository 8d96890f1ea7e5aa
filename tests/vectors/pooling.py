"""Adapters for reference vectors; see the package docstring."""

from __future__ import annotations

from tests.vectors import Adapter

FUNCTIONS: dict[str, Adapter] = {}
