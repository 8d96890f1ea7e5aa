"""Estimates as one table for other programs: a row for each survey, window and value.

The same columns in CSV, JSON and Parquet; those that the page's files have too have the same names there. New columns
come last.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from estimators.estimates import ViewName
from estimators.mechanism import Quantity
from producers.survey.file import RungAssumption
from producers.survey.survey import Survey
from streams.windows.record import EstimateRecord
from streams.windows.settled import window_state


class EstimateRow(msgspec.Struct, frozen=True):
    """One value of one window of one survey. Estimates, bounds and variances are in the unit of their quantity."""

    survey: str
    window_start_ms: int
    window_end_ms: int
    users: int
    method: str
    value: str
    estimate: float | None
    variance: float | None
    lower: float | None
    upper: float | None
    simultaneous_lower: float | None
    simultaneous_upper: float | None
    always_valid_lower: float | None
    always_valid_upper: float | None
    window_start: datetime
    window_end: datetime
    state: str
    """open, releasing, waiting or settled."""
    quantity: str
    """share or mean."""
    unit: str
    alpha: float
    population: str
    assumption: RungAssumption
    contradicted: bool
    homogeneity_p: float | None
    users_per_rung: list[int]
    epsilons: list[float | None]
    computed_ms: int
    view: str = ""
    """The view that was asked for with --view, where the window has it; else empty."""
    view_share: float | None = None
    """The share of this value in that view: biased, without a band."""


COLUMNS = EstimateRow.__struct_fields__


def rows_of(
    survey: Survey,
    records: Iterable[EstimateRecord],
    now_ms: int,
    counted_ms: int | None,
    view: ViewName | None = None,
) -> Iterator[EstimateRow]:
    """Yield the rows of stored estimates, with the shares of a view if one is named.

    The times are those of `window_state`.
    """
    quantities = {quantity.label: quantity for quantity in survey.mechanism.quantities}
    for record in records:
        state = window_state(survey, record, now_ms, counted_ms)
        seen = next((one for one in record.views if one.name == view), None)
        shares = [None] * len(record.values) if seen is None else seen.shares
        for found, share in zip(record.values, shares, strict=True):
            quantity = quantities.get(found.value, Quantity(found.value))
            yield EstimateRow(
                survey=record.survey,
                window_start_ms=record.window_start_ms,
                window_end_ms=record.window_end_ms,
                users=record.users,
                method=record.method,
                **msgspec.structs.asdict(found),
                window_start=_time(record.window_start_ms),
                window_end=_time(record.window_end_ms),
                state=state,
                quantity=quantity.kind,
                unit=quantity.unit,
                alpha=record.alpha,
                population=record.population,
                assumption=record.assumption,
                contradicted=record.contradicted,
                homogeneity_p=record.homogeneity_p,
                users_per_rung=record.users_per_rung,
                epsilons=record.epsilons,
                computed_ms=record.computed_ms,
                view="" if seen is None else seen.name,
                view_share=share,
            )


def csv_text(rows: Iterable[EstimateRow], *, head: bool = True) -> str:
    """Return one line per row after a head line; lists are separated by spaces, what is not known is empty."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    if head:
        writer.writerow(COLUMNS)
    writer.writerows([_cell(entry) for entry in msgspec.structs.astuple(row)] for row in rows)
    return output.getvalue()


def parquet_available() -> bool:
    """Tell whether the package that writes Parquet is installed: it is an extra of its own."""
    try:
        importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        return False
    return True


def parquet_bytes(rows: Sequence[EstimateRow]) -> bytes:
    """Return a Parquet file; times are typed, lists stay lists. Without rows it has all columns."""
    # Half a second and 150 MB on disk, for those who ask for it: optional.
    import pyarrow
    import pyarrow.parquet

    types = {
        "str": pyarrow.string(),
        "RungAssumption": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "float | None": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "datetime": pyarrow.timestamp("ms", tz="UTC"),
        "list[int]": pyarrow.list_(pyarrow.int64()),
        "list[float | None]": pyarrow.list_(pyarrow.float64()),
    }
    schema = pyarrow.schema([(name, types[EstimateRow.__annotations__[name]]) for name in COLUMNS])
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    output = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), output)
    return output.getvalue()


def _time(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1_000, UTC)


def _cell(entry: object) -> object:
    if entry is None:
        return ""
    if isinstance(entry, bool):
        return str(entry).lower()
    if isinstance(entry, datetime):
        return entry.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")
    if isinstance(entry, list):
        # The only lists with null are privacy levels without a bound.
        return " ".join("inf" if part is None else str(part) for part in entry)
    return entry
