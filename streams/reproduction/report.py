"""The results of experiments as rows of a table, CSV, JSON and counts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from estimators.reproduction.laboratory import Experiment
from estimators.reproduction.results import Line, Result, Scalar, Verdict

COLUMNS = ("experiment", "number", "against", "published", "ours", "error", "verdict", "erratum", "place")


@dataclass(frozen=True)
class Finding:
    """An experiment with its result and the seconds that it took."""

    experiment: Experiment
    result: Result
    seconds: float


def number_text(value: Scalar | None) -> str:
    """Return a number as it is shown.

    >>> number_text(0.27203430), number_text(True), number_text(None), number_text(101010.0)
    ('0.272034', 'yes', '', '101010')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}"


def against_text(line: Line) -> str:
    """Return the number that ours is held against, with what it is where the paper does not print it."""
    if line.published is None:
        return "no published number at hand"
    mark = {"printed": "", "formula": " (formula as printed)"}.get(line.against, f" ({line.against})")
    return number_text(line.published) + mark


def ours_text(line: Line) -> str:
    """Return our number, with its standard error if it is simulated."""
    return number_text(line.ours) + (f" ± {line.error:.2g}" if line.error else "")


def verdict_text(line: Line) -> str:
    """Return the verdict, with the erratum that explains it; nothing where there was nothing to compare."""
    if line.verdict is Verdict.UNPUBLISHED:
        return ""
    return f"{line.verdict} ({line.erratum})" if line.erratum else str(line.verdict)


def csv_text(findings: Iterable[Finding]) -> str:
    """Return one row per number, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for finding in findings:
        for line in finding.result.lines:
            numbers = (_exact(line.published), _exact(line.ours), _exact(line.error))
            verdict = (str(line.verdict), line.erratum or "", line.place)
            writer.writerow((finding.experiment.name, line.what, line.against, *numbers, *verdict))
    return text.getvalue()


def _exact(value: Scalar | None) -> str:
    return number_text(value) if value is None or isinstance(value, bool) else repr(float(value))


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Return how many numbers have each verdict."""
    return {verdict.name.lower(): sum(f.result.count(verdict) for f in findings) for verdict in Verdict}


def closing_line(findings: Sequence[Finding]) -> str:
    """Return the last line of the command."""
    found = counts(findings)
    return (
        f"experiments {len(findings)}, reproduced {found['reproduced']}, explained {found['explained']}, "
        f"agrees {found['agrees']}, differs {found['differs']}, other data {found['other_data']}, "
        f"without a published number {found['unpublished']}"
    )


def as_json(findings: Sequence[Finding], *, seed: int, quick: bool) -> dict[str, Any]:
    """Return all of it as an object for JSON; infinite numbers are strings."""
    return {
        "seed": seed,
        "quick": quick,
        "experiments": [
            {
                "name": finding.experiment.name,
                "paper": finding.experiment.paper,
                "title": finding.experiment.title,
                "seconds": round(finding.seconds, 3),
                "notes": list(finding.result.notes),
                "numbers": [_line(line) for line in finding.result.lines],
            }
            for finding in findings
        ],
        "counts": counts(findings),
    }


def _line(line: Line) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(line).items()}


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
