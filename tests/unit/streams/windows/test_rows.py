"""One table of estimates, the same in CSV, JSON and Parquet; the page's files use its names."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime

import msgspec
import numpy as np
import pyarrow.parquet
import pytest
import tomli_w

from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.perturbation import perturb
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import tally_of
from producers.survey.survey import Survey, parse_survey
from streams.exporter.server import PAGE
from streams.windows.record import EstimateRecord, ValueEstimate, make_record
from streams.windows.rows import COLUMNS, EstimateRow, csv_text, parquet_bytes, rows_of
from streams.windows.settled import settles_ms
from tests.support.checks import Example
from tests.support.examples import EXAMPLES, survey_file
from tests.support.paths import ROOT
from tests.support.surveys import WEEK, survey

PEOPLE = 300


def estimated(known: Survey) -> EstimateRecord:
    """Return the estimate of a simulated fleet in one window."""
    mechanism = known.mechanism
    simulator = simulator_of(mechanism)
    picks = np.arange(PEOPLE, dtype=np.int64) % simulator.kinds
    people = simulator.simulate(picks, SeededBits(1, "values").words(PEOPLE))
    tally = tally_of(mechanism, perturb(mechanism, people, SeededBits(1)))
    found = estimator_of(mechanism).estimate(tally)
    return make_record(known, WEEK, tally, found, read_ms=WEEK + 1, computed_ms=WEEK + 2)


def table(known: Survey, record: EstimateRecord, now_ms: int = WEEK) -> list[EstimateRow]:
    return list(rows_of(known, [record], now_ms, None))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_all_forms_say_the_same_for_every_mechanism(example: Example) -> None:
    known = parse_survey(tomli_w.dumps(survey_file(example)))
    record = estimated(known)
    rows = table(known, record)
    assert [row.value for row in rows] == list(known.mechanism.labels)
    assert [row.quantity for row in rows] == [quantity.kind for quantity in known.mechanism.quantities]
    assert [row.unit for row in rows] == [quantity.unit for quantity in known.mechanism.quantities]

    from_json = json.loads(msgspec.json.encode(rows))
    assert all(list(row) == list(COLUMNS) for row in from_json)
    assert [row["estimate"] for row in from_json] == [found.estimate for found in record.values]

    from_parquet = pyarrow.parquet.read_table(io.BytesIO(parquet_bytes(rows)))
    assert from_parquet.column_names == list(COLUMNS)
    assert [EstimateRow(**row) for row in from_parquet.to_pylist()] == rows

    from_csv = list(csv.DictReader(io.StringIO(csv_text(rows))))
    for row, text in zip(rows, from_csv, strict=True):
        assert text["estimate"] == ("" if row.estimate is None else repr(row.estimate))
        assert [int(users) for users in text["users_per_rung"].split()] == record.users_per_rung
        levels = [float(level) for level in text["epsilons"].split()]
        assert levels == [float("inf") if level is None else level for level in record.epsilons]


def test_a_line_of_csv_has_what_scripts_read_at_its_place_and_nothing_for_null() -> None:
    known = survey(values='values = [\'say "hi"\', "green", "blue"]')
    record = msgspec.structs.replace(
        estimated(known), method="pooled", values=[ValueEstimate('say "hi"', 0.5, 0.25, None, 1.5)]
    )
    head, line = csv_text(table(known, record)).splitlines()
    assert head.startswith(
        "survey,window_start_ms,window_end_ms,users,method,value,estimate,variance,lower,upper,simultaneous_lower,"
        "simultaneous_upper,always_valid_lower,always_valid_upper,window_start,"
    )
    assert line.startswith(f'{known.id},{WEEK},{WEEK + 60_000},300,pooled,"say ""hi""",0.5,0.25,,1.5,,,,,2026-')
    assert line.endswith(f"open,share,,0.05,fleet,any,false,,0 0 300,0.5 1.0 2.0,{WEEK + 2},,")


def test_times_are_times_and_states_those_of_the_window() -> None:
    known = survey()
    record = estimated(known)
    states = [
        table(known, record, now_ms)[0].state for now_ms in (WEEK, WEEK + 60_000, settles_ms(known, WEEK), WEEK + 10**9)
    ]
    assert states == ["open", "releasing", "waiting", "waiting"]
    counted = next(rows_of(known, [record], settles_ms(known, WEEK), settles_ms(known, WEEK)))
    assert counted.state == "settled"
    parquet = pyarrow.parquet.read_table(io.BytesIO(parquet_bytes([counted]))).to_pylist()
    assert parquet[0]["window_start"] == datetime.fromtimestamp(WEEK / 1_000, UTC)


def test_no_rows_are_a_table_with_all_columns() -> None:
    assert csv_text([]) == ",".join(COLUMNS) + "\n"
    assert pyarrow.parquet.read_table(io.BytesIO(parquet_bytes([]))).column_names == list(COLUMNS)


def test_the_files_of_the_page_use_the_same_names() -> None:
    script = (PAGE / "exportrows.js").read_text()
    heads = re.findall(r"const (?:BAND|WINDOW_HEAD|VALUE_HEAD) = \[(.*?)\];", script)
    assert len(heads) == 3
    names = {name for head in heads for name in re.findall(r'"(\w+)"', head)}
    assert {"survey", "window_start", "state", "quantity", "unit", "estimate", "alpha"} <= names
    assert names - {"truth"} <= set(COLUMNS), "the truth of simulated devices is known to the page alone"


def test_the_library_uses_the_same_names() -> None:
    mechanism = survey().mechanism
    tally = tally_of(mechanism, perturb(mechanism, ["red"] * 9, SeededBits(1)))
    names = tuple(estimator_of(mechanism).estimate(tally).table())
    assert ValueEstimate.__struct_fields__[: len(names)] == names


def test_every_column_is_explained() -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text().partition("## Estimates as a table")[2]
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert explained == set(COLUMNS)
