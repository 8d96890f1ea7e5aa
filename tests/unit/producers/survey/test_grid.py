"""Surveys whose values are cells of a map."""

from __future__ import annotations

import pytest

from estimators.mechanism import ParameterError
from producers.survey.check import explain
from producers.survey.grid import Grid
from producers.survey.messages import SurveyError
from producers.survey.survey import Survey, parse_survey
from tests.support.surveys import survey_text

GRID = "south = 44.0, north = 46.0, west = -94.0, east = -91.0, rows = 2, columns = 3"


def placed(grid: str = GRID, mechanism: str = 'name = "grr"') -> Survey:
    text = survey_text(values=f"values = {{grid = {{{grid}}}}}").replace('name = "grr"', mechanism)
    return parse_survey(text, "test.toml")


def test_the_cells_are_the_values_and_a_place_has_the_cell_that_contains_it() -> None:
    known = placed(GRID + ', outside = "elsewhere"')
    assert known.mechanism.labels == ("A1", "B1", "C1", "A2", "B2", "C2", "elsewhere")
    assert known.grid is not None
    assert known.grid.cell(45.9, -93.9) == "A1"
    assert known.grid.cell(44.0, -91.0) == "C2", "the outer edges belong to the outermost cells"
    assert known.grid.cell(46.0, -94.0) == "A1"
    assert known.grid.cell(45.0, -92.5) == "B2", "a cell begins at its northern and western edge"
    assert known.grid.cell(43.99, -93.0) == "elsewhere"
    assert "each 111.20 km by 78.63 km; every other place is 'elsewhere'" in explain(known).sentences[0]


def test_every_place_inside_has_exactly_one_cell() -> None:
    grid = Grid(0.0, 1.0, 0.0, 1.0, 30, 40)
    assert len(set(grid.cells)) == 1_200
    found = {grid.cell((i + 0.5) / 30, (j + 0.5) / 40) for i in range(30) for j in range(40)}
    assert found == set(grid.cells)
    assert grid.cells[26] == "AA1"


def test_without_a_value_for_other_places_they_are_refused_and_so_is_no_place() -> None:
    grid = placed().grid
    assert grid is not None
    for place in ((43.0, -93.0), (45.0, 0.0), (float("nan"), -93.0)):
        with pytest.raises(ParameterError):
            grid.cell(*place)


def test_the_edges_are_part_of_the_id_and_a_listed_survey_keeps_its_own() -> None:
    ids = {placed().id, placed(GRID.replace("46.0", "45.9")).id, placed(GRID.replace("rows = 2", "rows = 3")).id}
    assert len(ids) == 3
    assert parse_survey(survey_text(), "test.toml").grid is None


@pytest.mark.parametrize(
    ("grid", "field"),
    [
        (GRID.replace("46.0", "44.0"), "values.grid.north"),
        (GRID.replace("-91.0", "-191.0"), "values.grid.east"),
        (GRID.replace("-94.0", "-181.0"), "values.grid.west"),
        (GRID.replace("46.0", "inf"), "values.grid.north"),
        (GRID.replace("rows = 2", "rows = 0"), "values.grid.rows"),
        (GRID.replace("rows = 2", "rows = 5000"), "values.grid.rows"),
        (GRID + ', outside = "B2"', "values.grid.outside"),
        (GRID + ', unit = "miles"', "values.grid.unit"),
        (GRID + ", height = 2", "values.grid.height"),
        (GRID.replace("south = 44.0, ", ""), "values.grid.south"),
    ],
)
def test_a_wrong_grid_is_refused_with_its_field(grid: str, field: str) -> None:
    with pytest.raises(SurveyError) as refused:
        placed(grid)
    assert refused.value.field == field, refused.value


def test_numbers_other_than_degrees_may_be_large_and_keys_are_no_cells() -> None:
    assert placed(GRID.replace("46.0", "4600.0") + ', unit = "other"').grid is not None
    with pytest.raises(SurveyError, match="needs a mechanism that estimates the share of every cell"):
        placed(mechanism='name = "lpp"')
