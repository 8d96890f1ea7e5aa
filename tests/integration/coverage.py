"""python -m tests.integration.coverage: how often bands hold behind Kafka, worker and Redis, for every method.

Every mechanism answers once per method that it offers: a simulated fleet on mixed rungs sends windows of the past
through a real worker. Of each window one label is looked at, another one in the next window, so that trials are
independent. The long form (`make coverage`) writes its table to docs/coverage.md.

The same answers are also drawn again, counted and estimated by the library alone; what the worker stored must equal
that in every bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, cast

import numpy as np
import tomli_w

from estimators import Drawn, Estimates, Tally, estimator_of, tally_of
from estimators.estimates import Population
from estimators.inference.pooling_result import HOMOGENEITY_ALPHA
from estimators.mechanisms.registry import specification_class
from producers.clock import system_clock
from producers.simulation.fleet import BlockWindow, Plan
from producers.survey.survey import Survey
from streams.local.demo_report import WindowJournal, audit_window, window_entry
from streams.local.fleet import FleetOptions, plans_for
from streams.local.kafka import ApacheKafka
from streams.local.redis import Redis
from streams.local.supervisor import Supervisor
from streams.settings import load_settings
from streams.store.redis import RedisStore
from streams.windows.record import EstimateRecord, decode_estimate
from tests.calibration.judge import LEAST, Hits
from tests.integration.fleets import fleet_through_worker
from tests.support.examples import EXAMPLES, survey_file

DEVICES: Final = 400
SCENARIO: Final = "stoppers"
"""Half of the devices stop at a random rung, so that rungs are mixed; nothing is lost or sent twice."""
CROWD: Final = 300
"""Fewest records of k-randomization: below the devices of a window, so that its windows are published."""
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
BEGIN, END = "<!-- generated: coverage -->\n", "\n<!-- end: coverage -->"
FALSE_ALARM: Final = 1e-3
"""Of the long form: probability that any check fails although every band holds in 93.5 % of windows or more."""
WINDOWS: Final = 275
"""Of each mechanism and method in the long form. 99 of 100 runs see a cell whose bands hold in 81 % of windows instead
of 95 %, a method with 91 %, their sum with 92 %. 400 would see a cell with 83 %, for half as much time again."""
ROUND: Final = 25
"""Windows that the long form sends at a time; progress is told after each."""

Cell = tuple[str, str]
"""A mechanism and a method."""


class UnequalError(AssertionError):
    """The worker stored another number than the library computes from the same answers."""


@dataclass
class Counted:
    """What was counted: hits by mechanism and method, and windows that were compared with the library."""

    hits: dict[Cell, Hits] = field(default_factory=dict)
    undefined: dict[Cell, int] = field(default_factory=dict)
    compared: int = 0

    def add(self, cell: Cell, inside: bool | None) -> None:
        """Count one trial; None where the window has no band."""
        self.hits.setdefault(cell, Hits(0, 0))
        self.undefined.setdefault(cell, 0)
        if inside is None:
            self.undefined[cell] += 1
        else:
            self.hits[cell] += Hits(1, int(inside))

    @property
    def groups(self) -> dict[str, Hits]:
        """Hits of every cell, and summed over mechanisms, over methods and over all."""
        found: dict[str, Hits] = {}
        for (mechanism, method), hits in self.hits.items():
            for name in (f"{mechanism}, {method}", mechanism, method, "all"):
                found[name] = found.get(name, Hits(0, 0)) + hits
        return found

    def below(self, false_alarm: float) -> list[str]:
        """Name the groups that hold too seldom, with the stated chance of naming any although all bands hold."""
        level = false_alarm / len(self.groups)
        return [
            f"{name}: {hits.rate:.3f} of {hits.trials} windows"
            for name, hits in self.groups.items()
            if hits.significantly_below(LEAST, level)
        ]


def write_surveys(folder: Path) -> dict[str, Cell]:
    """Write a survey per mechanism and method; return what each name stands for."""
    cells = {}
    for example in EXAMPLES:
        for method in specification_class(example.name).methods:
            content = survey_file(example)
            content["name"] = f"{example.name}-{method}"
            content["shards"] = 4
            content["window"]["retention"] = "7d"
            content["estimate"] = {"rungs": "any" if method == "stratified" else "independent", "method": method}
            if example.name == "k_randomization":
                content["mechanism"]["least_records"] = CROWD
            (folder / f"{content['name']}.toml").write_text(tomli_w.dumps(content))
            cells[content["name"]] = (example.name, method)
    return cells


def count(
    kafka: str, redis_url: str, prefix: str, folder: Path, *, windows: int, seed: int, compare_every: int = 1
) -> Counted:
    """Send windows of every survey through a worker of its own and count.

    Args:
        kafka: address of the broker.
        redis_url: address of Redis.
        prefix: of topics and keys, fresh.
        folder: an empty one, for survey files and journal.
        windows: of each survey.
        seed: of the fleet.
        compare_every: every so many windows are compared with the library.
    """
    cells, found = write_surveys(folder), Counted()
    behaviour = ["--devices", str(DEVICES), "--scenario", SCENARIO, "--seed", str(seed)]
    arguments = [*behaviour, "--windows", str(windows), "--tick-ms", "60000"]
    store, surveys, journals = fleet_through_worker(kafka, redis_url, prefix, folder, arguments)
    by_id = {survey.id: survey for survey in surveys}
    assert len(journals) == windows * len(cells), f"{len(journals)} journals of {windows} windows"
    files = tuple(str(folder / f"{survey.name}.toml") for survey in surveys)
    options = FleetOptions(load_settings(), files, DEVICES, SCENARIO, seed, windows=windows, live=False)
    plans = {plan.survey.id: plan for plan in plans_for(options, system_clock())}
    numbers: dict[str, int] = {}
    for journal in journals:
        survey = by_id[journal.survey_id]
        number = numbers[survey.id] = numbers.get(survey.id, -1) + 1
        record = _record(store, survey, journal)
        rows = window_entry(record, journal.truth())["estimates"]
        row = rows[number % len(rows)]
        defined = row["truth"] is not None and row["lower"] is not None
        found.add(cells[survey.name], row["inside"] if defined else None)
        if number % compare_every == 0:
            compare(plans[survey.id], record)
            found.compared += 1
    return found


def _record(store: RedisStore, survey: Survey, journal: WindowJournal) -> EstimateRecord:
    audit = audit_window(store, survey, journal)
    assert (audit.lost, audit.double) == (0, 0), survey.id
    payload = store.estimates.read(survey.id, journal.window_ms)
    assert payload is not None, survey.id
    record = decode_estimate(payload)
    assert record.withheld is None, survey.id
    assert record.users == DEVICES * survey.mechanism.copies, survey.id
    return record


def answers_of(plan: Plan, window_ms: int) -> Tally:
    """Draw the fleet's answers of a window again and count them by the library, without wire, worker or store."""
    block = BlockWindow(plan, window_ms, 0)
    rungs = np.full(block.rows, -1, dtype=np.int64)
    np.maximum.at(rungs, block.row, block.rung.astype(np.int64))
    assert rungs.min() >= 0, "every device answers"
    return tally_of(plan.survey.mechanism, Drawn(block.answers, block.groups), rungs)


def compare(plan: Plan, record: EstimateRecord) -> None:
    """Compare a stored estimate with that of the library from the same answers, bit for bit.

    Raises:
        UnequalError: some number differs.
    """
    survey = plan.survey
    tally = answers_of(plan, record.window_start_ms)
    population = cast(Population, survey.population)
    estimate_by = partial(estimator_of(survey.mechanism).estimate, tally, population=population, alpha=survey.alpha)
    estimates = estimate_by(method=survey.method)
    p = estimates.homogeneity_p
    if estimates.method == "mle" and (p is None or p < HOMOGENEITY_ALPHA) and record.method == "stratified":
        # The survey's assumption is contradicted, or cannot be checked: the worker then assumes nothing.
        estimates = replace(estimate_by(method="stratified"), homogeneity_p=p)
    expected, stored = dict(_numbers(estimates)), dict(_stored(record))
    if expected != stored:
        different = [name for name in expected if expected[name] != stored.get(name)]
        raise UnequalError(f"{survey.id}, window {record.window_start_ms}: {different}: {expected} is not {stored}")


def _numbers(found: Estimates) -> Iterator[tuple[str, list[float | None] | str | float | None]]:
    yield "method", found.method
    yield "homogeneity_p", found.homogeneity_p
    for name in ("value", "variance", "lower", "upper", "simultaneous_lower", "simultaneous_upper"):
        yield name, [float(number) if np.isfinite(number) else None for number in getattr(found, name)]
    yield "derived", [one.value if np.isfinite(one.value) else None for one in found.derived]


def _stored(record: EstimateRecord) -> Iterator[tuple[str, list[float | None] | str | float | None]]:
    yield "method", record.method
    yield "homogeneity_p", record.homogeneity_p
    yield "value", [row.estimate for row in record.values]
    for name in ("variance", "lower", "upper", "simultaneous_lower", "simultaneous_upper"):
        yield name, [getattr(row, name) for row in record.values]
    yield "derived", [one.estimate for one in record.derived]


def table(found: Counted, seed: int) -> str:
    """Return the table of the long form: a row per mechanism, a column per method."""
    groups, methods = found.groups, ("pooled", "stratified", "mle")
    said = f"{groups['all'].trials:,} windows with {DEVICES} devices each, seed {seed}. "
    said += f"{found.compared:,} estimates equal those of the library. {closing_line(found)}."
    lines = [said, "", f"| mechanism | {' | '.join(methods)} | no band |", "|---|---|---|---|---|"]
    for mechanism in sorted({mechanism for mechanism, _ in found.hits}):
        cells = [_cell(found.hits.get((mechanism, method))) for method in methods]
        undefined = sum(number for (name, _), number in found.undefined.items() if name == mechanism)
        lines.append(f"| `{mechanism}` | {' | '.join(cells)} | {undefined or ''} |")
    lines.append(f"| all | {' | '.join(groups[method].text for method in methods)} | |")
    return "\n".join(lines)


def _cell(hits: Hits | None) -> str:
    return "" if hits is None else f"{hits.text} of {hits.trials}"


def closing_line(found: Counted, false_alarm: float = FALSE_ALARM) -> str:
    """Return the line that a run ends with."""
    return f"cells {len(found.hits)}, below {len(found.below(false_alarm))}"


def merged(parts: Iterable[Counted]) -> Counted:
    """Add what was counted in several rounds."""
    total = Counted()
    for part in parts:
        for cell, hits in part.hits.items():
            total.hits[cell] = total.hits.get(cell, Hits(0, 0)) + hits
            total.undefined[cell] = total.undefined.get(cell, 0) + part.undefined[cell]
        total.compared += part.compared
    return total


def main(arguments: Sequence[str]) -> int:
    """Run the long form on services of its own; the status is 1 if some bands hold too seldom."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.coverage")
    parser.add_argument(
        "--windows", type=int, default=WINDOWS, help=f"windows of every mechanism and method; default {WINDOWS}"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other answers; default 1")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.name}")
    chosen = parser.parse_args(arguments)
    parts: list[Counted] = []
    found = Counted()
    with Supervisor() as supervisor:
        kafka = supervisor.add(ApacheKafka(folder=supervisor.folder / "kafka"))
        redis = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        for first in range(0, chosen.windows, ROUND):
            windows = min(ROUND, chosen.windows - first)
            with tempfile.TemporaryDirectory(dir=supervisor.folder) as folder:
                prefix, seed = f"round-{first}.", 1_000 * chosen.seed + first
                parts.append(count(kafka.address, redis.url, prefix, Path(folder), windows=windows, seed=seed))
            found = merged(parts)
            print(f"{first + windows} of {chosen.windows} windows: {closing_line(found)}", file=sys.stderr)
            if chosen.write:
                write(found, chosen.seed)
    print(table(found, chosen.seed))
    for line in found.below(FALSE_ALARM):
        print(f"below: {line}")
    print(closing_line(found))
    return 1 if found.below(FALSE_ALARM) else 0


def write(found: Counted, seed: int, page: Path = PAGE) -> None:
    """Write the table into the page."""
    before, rest = page.read_text().split(BEGIN, 1)
    page.write_text(before + BEGIN + table(found, seed) + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
