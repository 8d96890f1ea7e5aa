"""python -m tests.integration.examples: `thaw demo --survey FILE --seconds 30 --json` on every survey file we ship.

stdout has a line per file and ends with `examples N, lost N, double N, inside N of N`; talk goes to stderr. Exit
status 1 unless every report was applied once, every example settled enough windows and rows, and bands hold. Rows
without a band, such as the mean of a key that hardly anybody has, are counted apart.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streams.folders import deploy_folder
from streams.local.demo_surveys import VALUES, WINDOWS
from tests.calibration.judge import LEAST, NO_TRIALS, Hits

SECONDS: Final = 30
FALSE_ALARM: Final = 1e-4
"""Probability that a run names any example, or their sum, although every band holds in 93.5 % of windows or more."""
PATIENCE_SECONDS: Final = 600.0
"""Beyond the time of the demo itself: services start and stop slowly on a busy machine."""


class NoResultError(RuntimeError):
    """A demo ended without its object; the message has the end of its talk."""


@dataclass(frozen=True)
class Found:
    """What a demo counted for one survey.

    windows: those that settled. rows: those with a band, and how many of them have their truth inside. bandless: the
    other rows. trials: one row of each window, another one in the next, so that trials are independent: the shares of
    a window sum to one.
    """

    name: str
    mechanism: str
    windows: int
    rows: Hits
    bandless: int
    trials: Hits

    @classmethod
    def of(cls, name: str, survey: Mapping[str, Any]) -> Found:
        """Count one survey of the demo's object."""
        windows = survey["windows"]
        rows, bandless, trials = NO_TRIALS, 0, NO_TRIALS
        for number, window in enumerate(windows):
            known = [row for row in window["estimates"] if None not in (row["lower"], row["upper"], row["truth"])]
            bandless += len(window["estimates"]) - len(known)
            rows += Hits(len(known), sum(row["inside"] for row in known))
            if known:
                trials += Hits(1, int(known[number * len(known) // len(windows)]["inside"]))
        return cls(name, survey["mechanism"], len(windows), rows, bandless, trials)

    @property
    def line(self) -> str:
        """The line of this survey."""
        text = f"{self.name} ({self.mechanism}): windows {self.windows}, inside {self.rows.held} of {self.rows.trials}"
        return text + (f", without a band {self.bandless}" if self.bandless else "")


@dataclass(frozen=True)
class Run:
    """What one demo ended with."""

    examples: tuple[Found, ...]
    sent: int
    backlog: int
    lost: int
    double: int


def run(files: Sequence[Path], *arguments: str, seconds: int = SECONDS, seed: int | None = None) -> Run:
    """Run the demo on survey files, as a person would.

    Raises:
        NoResultError: it printed no result.
    """
    chosen = [argument for file in files for argument in ("--survey", str(file))]
    seed = secrets.randbits(32) if seed is None else seed
    command = [sys.executable, "-m", "streams.cli", "demo", "--json", "--seconds", str(seconds), "--seed", str(seed)]
    with tempfile.TemporaryFile("w+") as talk:
        done = subprocess.run(
            [*command, *chosen, *arguments],
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
            timeout=seconds + PATIENCE_SECONDS,
            check=False,
        )
        talk.seek(0)
        if not done.stdout.strip():
            raise NoResultError(f"status {done.returncode}: {''.join(talk.readlines()[-8:])}")
    result = json.loads(done.stdout)
    found = [Found.of(file.stem, survey) for file, survey in zip(files, result["surveys"], strict=True)]
    return Run(tuple(found), result["reports"]["sent"], result["backlog"], result["lost"], result["double"])


def faults(
    runs: Sequence[Run], *, false_alarm: float = FALSE_ALARM, windows: int = WINDOWS, rows: int = VALUES
) -> list[str]:
    """Name what is wrong with runs: what was not counted once, examples with too few windows or rows, bands that fail.

    Bands are judged for each example and in their sum, with the stated chance of naming any although all bands hold.
    """
    examples = [one for run in runs for one in run.examples]
    named = [("all examples", sum((one.trials for one in examples), NO_TRIALS))]
    named += [(one.name, one.trials) for one in examples]
    said = [
        f"{' and '.join(one.name for one in run.examples)}: backlog {run.backlog}, lost {run.lost}, double {run.double}"
        for run in runs
        if run.backlog or run.lost or run.double
    ]
    for one in examples:
        if one.windows < windows or one.rows.trials + one.bandless < rows:
            counted = f"{one.windows} windows and {one.rows.trials + one.bandless} rows"
            said.append(f"{one.name}: {counted}; at least {windows} and {rows} must settle")
    return said + [
        f"{name}: {hits.held} of {hits.trials} bands hold, one of each window"
        for name, hits in named
        if hits.significantly_below(LEAST, false_alarm / len(named))
    ]


def closing_line(runs: Sequence[Run]) -> str:
    """Return the line that a run ends with."""
    rows = sum((one.rows for run in runs for one in run.examples), NO_TRIALS)
    lost, double = (sum(getattr(run, name) for run in runs) for name in ("lost", "double"))
    examples = sum(len(run.examples) for run in runs)
    return f"examples {examples}, lost {lost}, double {double}, inside {rows.held} of {rows.trials}"


def main(arguments: Sequence[str]) -> int:
    """Run the demo on one survey file after the other; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.examples")
    parser.add_argument("files", nargs="*", type=Path, help="survey files; default: all of deploy/surveys")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"of each demo (default {SECONDS})")
    parser.add_argument("--seed", type=int, help="of the fleets; a random one is printed if absent")
    chosen = parser.parse_args(arguments)
    files = chosen.files or sorted(deploy_folder("surveys").glob("*.toml"))
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", file=sys.stderr)
    runs, said = [], []
    for number, file in enumerate(files, start=1):
        print(f"{number} of {len(files)}: {file.name}", file=sys.stderr)
        try:
            runs.append(run([file], seconds=chosen.seconds, seed=seed + number))
        except NoResultError as error:
            said.append(f"{file.stem}: {error}")
            print(said[-1], file=sys.stderr)
            continue
        for one in runs[-1].examples:
            print(one.line, flush=True)
    said += faults(runs)
    for line in said:
        print(f"wrong: {line}")
    print(closing_line(runs))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
