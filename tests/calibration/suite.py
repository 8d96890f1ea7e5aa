"""The whole calibration: what is run, with which false-alarm rate, and what it found."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial

from tests.calibration import alarms, cells, homogeneity
from tests.calibration.alarms import Alarms, Scenario, run_scenario
from tests.calibration.homogeneity import POWER, SIZES, Case, Rejections, run_case
from tests.calibration.judge import LONG, SHORT, Stages
from tests.calibration.run import Outcome, run_setting


@dataclass(frozen=True)
class Form:
    """How much is run: the long form for the docs, the short one for every test run."""

    name: str
    stages: Stages
    alarm_windows: int
    homogeneity_windows: int
    false_alarm: float
    """Probability that the suite reports anything although every promise is kept."""


FORMS = {
    "long": Form("long", LONG, 2_000, 600, 1e-3),
    "short": Form("short", SHORT, 500, 60, 1e-6),
}


@dataclass
class Findings:
    """What a run found, and the level at which each check was judged."""

    form: str
    seed: int
    checks: int
    level: float
    outcomes: list[Outcome] = field(default_factory=list)
    alarms: list[Alarms] = field(default_factory=list)
    rejections: list[Rejections] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return len(self.outcomes) + len(self.alarms) + len(self.rejections)

    def failures(self) -> Iterator[str]:
        """Say what does not keep its promise, one line each."""
        for outcome in self.outcomes:
            if outcome.below(self.level):
                yield describe(outcome)
        for found in self.alarms:
            if found.hits.significantly_above(found.alpha, self.level):
                yield (
                    f"{found.scenario}, {found.construction} {found.side}: {found.hits.rate:.4f} false alarms at alpha "
                    f"{found.alpha:g}"
                )
        for test in self.rejections:
            if not keeps_level(test, self.level):
                rates = ", ".join(f"{hits.rate:.4f} at {size:g}" for size, hits in test.rejected.items())
                agree = "agree" if test.agree else "differ"
                yield f"homogeneity, rungs {agree}, {test.name}: rejected {rates}; undefined {test.undefined}"

    def above(self) -> Iterator[str]:
        """Name the cells whose bands are wider than they need to be."""
        return (describe(outcome) for outcome in self.outcomes if outcome.above(self.level))

    def close(self) -> Iterator[str]:
        """Name the cells whose coverage came out too low, but not significantly so."""
        for outcome in self.outcomes:
            if outcome.stage > 0 and outcome.too_low(0.935) and not outcome.below(self.level):
                yield describe(outcome)


def keeps_level(test: Rejections, level: float) -> bool:
    """Tell whether the homogeneity test rejects as seldom, or as often, as it should."""
    if test.agree:
        return not any(test.rejected[size].significantly_above(most, level) for size, most in SIZES.items())
    return not test.rejected[min(SIZES)].significantly_below(POWER, level)


def describe(outcome: Outcome) -> str:
    """Return one line about a cell."""
    name, worst = outcome.worst
    text = (
        f"{outcome.id}: {name} {worst.hits.rate:.3f}, all at once {outcome.all_hits.rate:.3f}, "
        f"{outcome.windows} windows, half-width {worst.half_width:.4g}, rarest answer {worst.rarest:.2g}"
    )
    if worst.defined < worst.windows:
        text += f", undefined {1 - worst.defined / worst.windows:.3f}"
    if outcome.zero_width:
        text += f", width zero in {outcome.zero_width}"
    if outcome.unexplained:
        text += f", undefined without a note in {outcome.unexplained}"
    return text


@lru_cache(maxsize=1)
def _scenarios() -> tuple[Scenario, ...]:
    return alarms.scenarios()


@lru_cache(maxsize=1)
def _cases() -> tuple[Case, ...]:
    return tuple(homogeneity.cases())


# Scenarios and cases hold functions, which cannot travel to another process; their numbers can.
def _scenario(number: int, seed: int, windows: int) -> list[Alarms]:
    return run_scenario(_scenarios()[number], seed, windows)


def _case(number: int, seed: int, windows: int) -> list[Rejections]:
    return [run_case(_cases()[number], seed, windows)]


Work = Callable[[], list[Outcome] | list[Alarms] | list[Rejections]]


def _do(work: Work) -> list[Outcome] | list[Alarms] | list[Rejections]:
    return work()


def run(
    form: Form,
    seed: int,
    *,
    only: Collection[str] = (),
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Findings:
    """Run all cells, or those of some mechanisms, on all processors; the findings do not depend on how many."""
    long = form.name == "long"
    plan = [*cells.named(only), *cells.settings(only)] if long else list(cells.quick(only))
    checks = len(form.stages) * sum(len(setting.methods) * (len(setting.world.classes) + 1) for setting in plan)
    scenarios, cases = (0, 0) if only else (len(_scenarios()), len(_cases()))
    # Each scenario has at most two constructions with two sides, each case two levels.
    checks += 4 * scenarios + 2 * cases
    findings = Findings(form.name, seed, checks, form.false_alarm / checks)
    work: list[Work] = [partial(_scenario, i, seed, form.alarm_windows) for i in range(scenarios)]
    work += [partial(_case, i, seed, form.homogeneity_windows) for i in range(cases)]
    work += [partial(run_setting, setting, seed, findings.level, form.stages) for setting in plan]
    for done, found in enumerate(_results(work, processes or os.cpu_count() or 1), start=1):
        for entry in found:
            if isinstance(entry, Outcome):
                findings.outcomes.append(entry)
            elif isinstance(entry, Alarms):
                findings.alarms.append(entry)
            else:
                findings.rejections.append(entry)
        progress(done, len(work))
    findings.outcomes.sort(key=lambda outcome: outcome.id)
    return findings


def _results(work: list[Work], processes: int) -> Iterator[list[Outcome] | list[Alarms] | list[Rejections]]:
    if processes == 1:
        yield from map(_do, work)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(_do, work)
