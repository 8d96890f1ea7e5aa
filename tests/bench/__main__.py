"""python -m tests.bench [PART ...]: measure against the goals; one line per goal at the end.

Parts are the modules named in PARTS; without an argument all of them run, and what they measured is written to
deploy/performance.json, from which docs/performance.md is made. Ratios are taken within one run on one machine;
absolute numbers say nothing about another one. Exit status 0 when all parts ran, met or missed.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence

from deploy.performance import FILE, write
from tests.bench.goals import Measured, Result, Series, Spent, table
from tests.bench.machine import machine

PARTS = (
    "pipeline",
    "latency",
    "memory",
    "windows",
    "bitwise",
    "recompute",
    "exporter",
    "fleet",
    "start",
    "fold",
    "keys",
    "mathematics",
    "gateway",
)


def measure(
    parts: Sequence[str], note: Callable[[list[Measured], list[str]], None]
) -> tuple[list[Measured], list[str]]:
    """Run the parts one after the other; return what was measured, and the parts that failed.

    `note` gets both after every part: a run takes long, and may be ended.
    """
    found: list[Measured] = []
    failed = []
    for part in parts:
        try:
            for result in importlib.import_module(f"tests.bench.{part}").results():
                print(f"measured {result.name}", file=sys.stderr)
                found.append(result)
        except Exception:
            # The others are worth their minutes all the same.
            traceback.print_exc()
            failed.append(part)
        note(found, failed)
    return found, failed


def as_json(found: Sequence[Measured], about: dict[str, str], failed: Sequence[str] = ()) -> str:
    """Return what was measured as the text of a file."""
    document = {
        "machine": about,
        "results": [one.as_json() for one in found if isinstance(one, Result)],
        "series": [
            {"name": one.name, "label": one.label, "points": [list(point) for point in one.points]}
            for one in found
            if isinstance(one, Series)
        ],
        "failed": list(failed),
        "spent": [{"name": one.name, "parts": dict(one.parts)} for one in found if isinstance(one, Spent)],
    }
    return json.dumps(document, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts."""
    unknown = [part for part in arguments if part not in PARTS]
    if unknown:
        print(f"parts are {', '.join(PARTS)}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    about = machine()

    def note(found: list[Measured], failed: list[str]) -> None:
        if not arguments:
            left = PARTS[len(noted) + 1 :]
            noted.append(len(found))
            FILE.write_text(as_json(found, about, [*failed, *left]))

    noted: list[int] = []
    found, failed = measure(arguments or PARTS, note)
    results = [one for one in found if isinstance(one, Result)]
    print(table(results))
    print()
    for what, text in about.items():
        print(f"{what}: {text}")
    print()
    if not arguments:
        from deploy.docs import write_blocks  # a benchmark of one part needs no command line

        write()
        write_blocks()
    for part in failed:
        print(f"{part} failed: its goals were not measured")
    for result in results:
        if result.verdict is not None:
            print(result.verdict)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
