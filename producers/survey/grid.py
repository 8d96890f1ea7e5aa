"""Grids: the values of a survey as cells of a map, named like the squares of a street plan: A1 is in the north-west."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from estimators.mechanism import ParameterError
from producers.survey.file import GridTable

MOST_CELLS: Final = 10_000
KILOMETRES_PER_DEGREE: Final = 111.2
_LETTERS: Final = 26


@dataclass(frozen=True)
class Grid:
    """Cells of equal size, rows from north to south and columns from west to east; `outside` names all other places."""

    south: float
    north: float
    west: float
    east: float
    rows: int
    columns: int
    outside: str = ""
    degrees: bool = True

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of all cells, row by row from the north-west."""
        return tuple(f"{letters(column)}{row + 1}" for row in range(self.rows) for column in range(self.columns))

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the survey: the cells, and at the end everywhere else."""
        return (*self.cells, self.outside) if self.outside else self.cells

    def cell(self, latitude: float, longitude: float) -> str:
        """Return the value of a place: the cell that contains it, or `outside`.

        Raises:
            ParameterError: it lies outside, and the survey has no value for that; or it is no place.

        >>> Grid(0.0, 2.0, 0.0, 3.0, 2, 3).cell(1.5, 2.9)
        'C1'
        """
        if not (math.isfinite(latitude) and math.isfinite(longitude)):
            raise ParameterError("value", (latitude, longitude), "a place has a finite latitude and longitude")
        if self.south <= latitude <= self.north and self.west <= longitude <= self.east:
            # The outer edges belong to the outermost cells.
            down = min(int((self.north - latitude) / (self.north - self.south) * self.rows), self.rows - 1)
            along = min(int((longitude - self.west) / (self.east - self.west) * self.columns), self.columns - 1)
            return f"{letters(along)}{down + 1}"
        if not self.outside:
            raise ParameterError("value", (latitude, longitude), "lies outside the grid, and it has no `outside`")
        return self.outside

    def canonical(self) -> dict[str, Any]:
        """Return all that the meaning of a cell depends on; the survey id hashes it."""
        edges = [repr(edge) for edge in (self.south, self.north, self.west, self.east)]
        return {"edges": edges, "rows": self.rows, "columns": self.columns, "degrees": self.degrees}

    def sentence(self) -> str:
        """Say how large the cells are."""
        height, width = (self.north - self.south) / self.rows, (self.east - self.west) / self.columns
        size = f"{height:.4g} by {width:.4g}"
        if self.degrees:
            flat = math.cos(math.radians((self.north + self.south) / 2))
            size = f"{height * KILOMETRES_PER_DEGREE:.2f} km by {width * flat * KILOMETRES_PER_DEGREE:.2f} km"
        rest = f"; every other place is '{self.outside}'" if self.outside else ""
        last = self.cells[-1]
        return f"The values are the cells A1 (north-west) to {last} (south-east) of a grid, each {size}{rest}."


def letters(column: int) -> str:
    """Return the letters of a column: A to Z, AA, AB, ...

    >>> letters(0), letters(25), letters(26), letters(701)
    ('A', 'Z', 'AA', 'ZZ')
    """
    text = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, _LETTERS)
        text = chr(ord("A") + rest) + text
    return text


def grid_of(table: GridTable) -> Grid:
    """Check the table; ParameterError names field, value and remedy."""
    for field in ("south", "north", "west", "east"):
        if not math.isfinite(getattr(table, field)):
            raise ParameterError(f"values.grid.{field}", getattr(table, field), "must be a finite number")
    for low, high in (("south", "north"), ("west", "east")):
        if not getattr(table, low) < getattr(table, high):
            remedy = f"must be above {low} ({getattr(table, low)!r}); exchange them or widen the grid"
            raise ParameterError(f"values.grid.{high}", getattr(table, high), remedy)
    degrees = table.unit == "degrees"
    for field, limit in (("south", 90), ("north", 90), ("west", 180), ("east", 180)):
        if degrees and abs(getattr(table, field)) > limit:
            remedy = f'degrees lie between -{limit} and {limit}; correct it, or write unit = "other"'
            raise ParameterError(f"values.grid.{field}", getattr(table, field), remedy)
    for field in ("rows", "columns"):
        if not 1 <= getattr(table, field) <= MOST_CELLS:
            raise ParameterError(f"values.grid.{field}", getattr(table, field), f"must be 1 to {MOST_CELLS}")
    if table.rows * table.columns > MOST_CELLS:
        raise ParameterError("values.grid.rows", table.rows, f"rows times columns are at most {MOST_CELLS}; use fewer")
    edges = (table.south, table.north, table.west, table.east)
    grid = Grid(*edges, table.rows, table.columns, table.outside, degrees)
    if grid.outside in grid.cells:
        raise ParameterError("values.grid.outside", grid.outside, "is the name of a cell; choose another")
    return grid
