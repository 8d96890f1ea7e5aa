"""python -m tests.vectors [FILE]: run reference vectors; the last line is "N passed, N failed"."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.vectors import load_functions
from tests.vectors.runner import run


def main(arguments: list[str]) -> int:
    """Run the vectors of one file and print what failed."""
    path = Path(arguments[0]) if arguments else Path(__file__).with_name("reference.json")
    vectors = json.loads(path.read_text(encoding="utf-8"))
    failures = run(vectors, load_functions())
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{len(vectors) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
