"""The values of a survey file: a list, the cells of a grid, combinations of attributes, or a file of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from estimators.mechanism import ParameterError, Specification
from producers.survey.attributes import Attributes, attributes_of
from producers.survey.candidates import FIELD as CANDIDATES
from producers.survey.candidates import candidates_path, check_candidates, read_candidates
from producers.survey.file import ValuesTable
from producers.survey.grid import Grid, grid_of
from producers.survey.messages import SurveyError


@dataclass(frozen=True)
class Values:
    """The values, and what they are where they are no plain list."""

    labels: list[str]
    grid: Grid | None = None
    attributes: Attributes | None = None
    candidates: str = ""
    """Name of the file that they were read from, where they are candidates."""

    def check(self, mechanism: Specification) -> None:
        """Refuse cells, combinations and candidates for a mechanism that is not made for them."""
        if self.candidates:
            check_candidates(mechanism)
        if self.grid is None and self.attributes is None:
            return
        field = "values.grid" if self.grid is not None else "values.attributes"
        if list(mechanism.labels) != self.labels:
            remedy = "needs a mechanism that estimates the share of every cell; list values"
            raise ParameterError(field, mechanism.name, remedy)
        if self.attributes is not None and not mechanism.adds_up:
            remedy = "needs a mechanism whose shares may be added up, such as grr, sue, oue, urr or urap"
            raise ParameterError(field, mechanism.name, remedy)


def values_of(source: str, given: list[str] | ValuesTable, candidates: Sequence[str] | None = None) -> Values:
    """Check the values; SurveyError or ParameterError names field, value and remedy.

    candidates: in place of those in the file that the survey names.
    """
    if not isinstance(given, ValuesTable):
        return Values(_listed(source, given))
    if sum(form is not None for form in (given.grid, given.attributes, given.candidates)) != 1:
        raise ParameterError("values", None, "list the values, or give one of grid, attributes and candidates")
    if given.candidates is not None:
        candidates_path(source, given.candidates)
        strings = read_candidates(source, given.candidates) if candidates is None else list(candidates)
        return Values(_listed(source, strings, CANDIDATES), candidates=given.candidates)
    if given.grid is not None:
        grid = grid_of(given.grid)
        return Values(_listed(source, list(grid.values)), grid=grid)
    attributes = attributes_of(given.attributes or {})
    return Values(_listed(source, list(attributes.values)), attributes=attributes)


def _listed(source: str, values: list[str], field: str = "values") -> list[str]:
    seen: set[str] = set()
    for i, value in enumerate(values):
        if not value.strip() or len(value) > 200:
            raise SurveyError(source, f"{field}[{i}]", value, "a value has 1 to 200 characters, not all of them blank")
        if value in seen:
            raise SurveyError(source, f"{field}[{i}]", value, "every value occurs once; remove the second one")
        seen.add(value)
    return values
