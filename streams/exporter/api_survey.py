"""Types of the public API for parts of a survey and of its windows."""

from __future__ import annotations

import msgspec

from producers.survey.grid import Grid
from producers.survey.registry import Registry


class GridInfo(msgspec.Struct, frozen=True):
    """A map of cells of equal size: rows from north to south, columns from west to east."""

    south: float
    north: float
    west: float
    east: float
    rows: int
    columns: int
    degrees: bool
    """The edges are degrees of latitude and longitude."""
    cells: list[int]
    """Positions of the cells in the list of values, row by row from the north-west."""

    @classmethod
    def of(cls, grid: Grid | None) -> GridInfo | None:
        """Convert the grid of a survey."""
        if grid is None:
            return None
        edges = (grid.south, grid.north, grid.west, grid.east)
        return cls(*edges, grid.rows, grid.columns, grid.degrees, list(range(len(grid.cells))))


class RegistryInfo(msgspec.Struct, frozen=True):
    """Who answers for a survey; what its file does not say is empty or null."""

    owner: str = ""
    purpose: str = ""
    """What the answers are used for."""
    expires_ms: int | None = None
    """From when on nothing is answered and nothing that arrives is counted."""
    review: str = ""
    """Address of the privacy review."""

    @classmethod
    def of(cls, registry: Registry) -> RegistryInfo:
        """Convert the registry of a survey."""
        return cls(registry.owner, registry.purpose, registry.expires_ms, registry.review)


class UnexplainedShare(msgspec.Struct, frozen=True):
    """The share of devices whose string is none of the candidates; bounds at level 1 - alpha."""

    estimate: float
    variance: float
    lower: float
    upper: float
