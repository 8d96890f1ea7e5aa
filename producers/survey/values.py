"""The values of a survey file: a list, the cells of a grid, or the combinations of several attributes."""

from __future__ import annotations

from dataclasses import dataclass

from estimators.mechanism import ParameterError, Specification
from producers.survey.attributes import Attributes, attributes_of
from producers.survey.file import ValuesTable
from producers.survey.grid import Grid, grid_of
from producers.survey.messages import SurveyError


@dataclass(frozen=True)
class Values:
    """The values, and what they are where they are no plain list."""

    labels: list[str]
    grid: Grid | None = None
    attributes: Attributes | None = None

    def check(self, mechanism: Specification) -> None:
        """Refuse cells and combinations for a mechanism that estimates something else than the share of each."""
        if self.grid is None and self.attributes is None:
            return
        field = "values.grid" if self.grid is not None else "values.attributes"
        if list(mechanism.labels) != self.labels:
            remedy = "needs a mechanism that estimates the share of every cell; list values"
            raise ParameterError(field, mechanism.name, remedy)
        if self.attributes is not None and not mechanism.adds_up:
            remedy = "needs a mechanism whose shares may be added up, such as grr, sue, oue, urr or urap"
            raise ParameterError(field, mechanism.name, remedy)


def values_of(source: str, given: list[str] | ValuesTable) -> Values:
    """Check the values; SurveyError or ParameterError names field, value and remedy."""
    if isinstance(given, ValuesTable):
        if (given.grid is None) == (given.attributes is None):
            raise ParameterError("values", None, "list the values, or give either a grid or attributes")
        if given.grid is not None:
            grid = grid_of(given.grid)
            return Values(_listed(source, list(grid.values)), grid=grid)
        attributes = attributes_of(given.attributes or {})
        return Values(_listed(source, list(attributes.values)), attributes=attributes)
    return Values(_listed(source, given))


def _listed(source: str, values: list[str]) -> list[str]:
    seen: set[str] = set()
    for i, value in enumerate(values):
        if not value.strip() or len(value) > 200:
            raise SurveyError(source, f"values[{i}]", value, "a value has 1 to 200 characters, not all of them blank")
        if value in seen:
            raise SurveyError(source, f"values[{i}]", value, "every value occurs once; remove the second one")
        seen.add(value)
    return values
