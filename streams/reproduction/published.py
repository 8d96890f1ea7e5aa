"""Published numbers: one TOML file per paper beside this module."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

from estimators.reproduction.results import Published


class _Number(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    place: str
    what: str
    kind: str
    value: Any
    tolerance: float
    relative_tolerance: float = 0.0
    erratum: str | None = None
    right: Any = None
    right_tolerance: float = 0.0


class _Paper(msgspec.Struct, forbid_unknown_fields=True):
    paper: str
    numbers: list[_Number]


def load_published() -> dict[str, Published]:
    """Return all numbers by id."""
    found: dict[str, Published] = {}
    for path in sorted((files(__package__) / "published").iterdir(), key=lambda path: path.name):
        for number in msgspec.toml.decode(path.read_bytes(), type=_Paper).numbers:
            assert number.id not in found, f"{path.name}: the id {number.id} stands twice"
            found[number.id] = Published(**msgspec.structs.asdict(number))
    return found
