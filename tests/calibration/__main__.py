"""python -m tests.calibration: count how often bands, alert bounds and the homogeneity test keep their promise.

The long form runs about 4,200 cells on all processors and writes the table and the picture of
docs/calibration.md. Its finished parts are kept in .cache/calibration: an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.calibration import report
from tests.calibration.kept import Kept
from tests.calibration.suite import FORMS, NoSuchCellError, run

_SECONDS_BETWEEN_LINES = 60.0
"""How often progress is told where it cannot replace itself."""


def main(arguments: list[str]) -> int:
    """Run, print what fails, end with one line; the status is 1 if anything is below its promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.calibration", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="the short form: the cells that `make test` runs")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other windows; default 1")
    parser.add_argument("--only", nargs="+", default=[], metavar="MECHANISM", help="the bands of these mechanisms only")
    parser.add_argument(
        "--cells", default="", metavar="PATTERN", help="the bands of cells whose name matches this only"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="processes at once; default: one per processor")
    parser.add_argument("--fresh", action="store_true", help="use no finished part of an earlier run of the same code")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every count to this file")
    parser.add_argument("--write", action="store_true", help="write table and picture of the short form too")
    chosen = parser.parse_args(arguments)
    begun, terminal = time.monotonic(), sys.stderr.isatty()
    said = begun

    def progress(done: int, total: int, failures: list[str]) -> None:
        nonlocal said
        for line in failures:
            print(f"below: {line}", flush=True)
        now = time.monotonic()
        if terminal or now - said > _SECONDS_BETWEEN_LINES:
            said = now
            text = f"{done} of {total} parts, {(now - begun) * (total / done - 1) / 60:.0f} minutes left"
            print(f"\r{text} " if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)

    try:
        findings = run(
            FORMS["short" if chosen.quick else "long"],
            chosen.seed,
            only=chosen.only,
            cells_like=chosen.cells,
            processes=chosen.processes,
            keep=None if chosen.quick or chosen.fresh else Kept.of,
            progress=progress,
        )
    except NoSuchCellError as error:
        parser.error(str(error))
    if terminal:
        print(file=sys.stderr)
    for kind, lines in (("close", findings.close()), ("above", findings.above())):
        for line in lines:
            print(f"{kind}: {line}")
    if chosen.json:
        chosen.json.write_text(report.as_json(findings), encoding="utf-8")
    if chosen.write or not (chosen.quick or chosen.only or chosen.cells):
        report.write(findings)
    print(report.statement(findings))
    print(report.closing_line(findings))
    return 1 if any(findings.failures()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
