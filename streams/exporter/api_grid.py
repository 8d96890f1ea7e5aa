"""The type of the public API for surveys whose values are cells of a map."""

from __future__ import annotations

import msgspec

from producers.survey.grid import Grid


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
