"""python -m tests.bench [PART ...]: measure against the goals; one line per goal at the end.

Parts are the modules named in PARTS; without an argument all of them run. Ratios are taken within one run on one
machine; absolute numbers say nothing about another one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

from tests.bench.goals import Result, table

PARTS = ("mathematics", "fold", "pipeline")


def measure(parts: list[str]) -> Iterator[Result]:
    """Run the parts one after the other and say what is being measured."""
    for part in parts:
        for result in importlib.import_module(f"tests.bench.{part}").results():
            print(f"measured {result.name}", file=sys.stderr)
            yield result


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts."""
    unknown = [part for part in arguments if part not in PARTS]
    if unknown:
        print(f"parts are {', '.join(PARTS)}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    found = list(measure(arguments or list(PARTS)))
    print(table(found))
    print()
    for result in found:
        if result.verdict is not None:
            print(result.verdict)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
