"""The whole calibration: what is run, with which false-alarm rate, and what it found."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from tests.calibration import alarms, cells, derived, homogeneity
from tests.calibration.alarms import Alarms, Scenario, run_scenario
from tests.calibration.homogeneity import POWER, SIZES, Case, Rejections, run_case
from tests.calibration.judge import LEAST, LONG, NAMED, NO_TRIALS, SHORT, Hits, Stages
from tests.calibration.kept import Kept
from tests.calibration.run import Outcome, run_setting
from tests.calibration.worlds import World


@dataclass(frozen=True)
class Form:
    """How much is run: the long form for the docs, the short one for every test run."""

    name: str
    stages: Stages
    alarm_windows: int
    rule_windows: int
    homogeneity_windows: int
    false_alarm: float
    """Probability that the suite reports anything although every promise is kept."""


FORMS = {
    "long": Form("long", LONG, 2_000, 400, 600, 1e-3),
    "short": Form("short", SHORT, 300, 12, 40, 1e-6),
}


class NoSuchCellError(ValueError):
    """What was asked for leaves no cell to run."""


FEW_USERS = 100
"""Users up to which the normal law fits least."""
LAST_TO_FAIL = ("lpp", "pckv_ue", "rappor", "urap")

Entry = Outcome | Alarms | Rejections
"""What one cell found."""


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
        entries: list[Entry] = [*self.outcomes, *self.alarms, *alarms.together(self.alarms), *self.rejections]
        for entry in entries:
            said = failure(entry, self.level)
            if said is not None:
                yield said
        for name, hits in self.groups.items():
            if hits.significantly_below(LEAST, self.level):
                yield f"all cells of {name} together: {hits.rate:.4f} of {hits.trials} windows"

    @property
    def groups(self) -> dict[str, Hits]:
        """Coverage over many cells: what no single cell has the windows to show."""
        found: dict[str, Hits] = {}
        for outcome in self.outcomes:
            for name in group_names(outcome):
                found[name] = found.get(name, NO_TRIALS) + outcome.screened
        return found

    def above(self) -> Iterator[str]:
        """Name the cells whose bands are wider than they need to be."""
        return (describe(outcome) for outcome in self.outcomes if outcome.above)

    def close(self) -> Iterator[str]:
        """Name the cells whose coverage came out too low, but not significantly so."""
        for outcome in self.outcomes:
            if outcome.stage > 0 and outcome.too_low(0.935) and not outcome.below(self.level):
                yield describe(outcome)


def group_names(outcome: Outcome) -> tuple[str, ...]:
    """Return the groups of cells that a cell is summed in."""
    layout, users, population = outcome.setting.split(", ")[-3:]
    mechanism, method = outcome.mechanism, outcome.method
    return (
        f"{mechanism}, {method}",
        f"{mechanism}, {method}, {layout}",
        f"{mechanism}, {method}, {population}",
        f"{method}, {layout}, {users}",
    )


def failure(entry: Entry, level: float) -> str | None:
    """Say what does not keep its promise; None if everything does."""
    if isinstance(entry, Outcome):
        return describe(entry) if entry.below(level) else None
    if isinstance(entry, Alarms):
        if not entry.hits.significantly_above(entry.alpha, level):
            return None
        kind = f"{entry.scenario}, {entry.construction} {entry.side}"
        return f"{kind}: {entry.hits.rate:.4f} false alarms at alpha {entry.alpha:g}"
    if keeps_level(entry, level):
        return None
    rates = ", ".join(f"{hits.rate:.4f} at {size:g}" for size, hits in entry.rejected.items())
    agree = "agree" if entry.agree else "differ"
    return f"homogeneity, rungs {agree}, {entry.name}: rejected {rates}; undefined {entry.undefined}"


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


def _checks(world: World) -> int:
    """Return the checks of a cell at one stage: two of every class of values, all at once, what is derived."""
    return 2 * len(world.classes) + 1 + len(derived.names_of(world))


@lru_cache(maxsize=1)
def _scenarios() -> tuple[Scenario, ...]:
    return alarms.scenarios()


@lru_cache(maxsize=1)
def _cases() -> tuple[Case, ...]:
    return tuple(homogeneity.cases())


# Scenarios and cases hold functions, which cannot travel to another process; their numbers can.
def _scenario(number: int, seed: int, windows: int, rule_windows: int) -> list[Alarms]:
    return run_scenario(_scenarios()[number], seed, windows, rule_windows)


def _case(number: int, seed: int, windows: int) -> list[Rejections]:
    return [run_case(_cases()[number], seed, windows)]


def suspicious(setting: cells.Setting) -> bool:
    """Tell whether bands failed last with so few users, or those of this mechanism."""
    return setting.users <= FEW_USERS or setting.world.name in LAST_TO_FAIL


def modules_of(world: World) -> tuple[str, str]:
    """Return the modules of a mechanism and of its estimator: what its bands depend on, with all that they import."""
    mechanism = world.mechanism
    return type(mechanism.specification).__module__, type(mechanism.estimator).__module__


@dataclass(frozen=True)
class Part:
    """A piece of work with a name of its own."""

    name: str
    work: Callable[[], Sequence[Entry]]
    kept: Kept | None

    def __call__(self) -> Sequence[Entry]:
        return self.work() if self.kept is None else self.kept.get(self.name, self.work)


def _do(part: Part) -> Sequence[Entry]:
    return part()


def run(
    form: Form,
    seed: int,
    *,
    only: Collection[str] = (),
    cells_like: str = "",
    processes: int | None = None,
    keep: Callable[..., Kept] | None = None,
    progress: Callable[[int, int, list[str]], None] = lambda _done, _all, _failures: None,
) -> Findings:
    """Run all cells, or some, on all processors; the findings do not depend on how many.

    only names mechanisms, cells_like is a pattern that the names of settings must match somewhere. keep says where
    finished parts of a run with this key are kept.
    progress hears how many parts of all are done, and the failures of the last one.
    """
    long = form.name == "long"
    plan = [*cells.named(only), *cells.settings(only)] if long else list(cells.quick(only))
    closer = {setting.id for setting in cells.named(only)} if long else set()
    # What failed before comes first; then in an order without order, so that the time that is left can be told.
    plan = [setting for setting in plan if re.search(cells_like, setting.id)]
    plan.sort(key=lambda setting: (setting.id not in closer, not suspicious(setting), setting.seed))
    # Coverage of each class and of all values at once, undefined bands, each in all stages; then groups of cells.
    checks = len(form.stages) * sum(len(setting.methods) * _checks(setting.world) for setting in plan)
    checks += len({name for s in plan for m in s.methods for name in group_names(Outcome(s.world.name, s.id, m, 0))})
    scenarios, cases = (0, 0) if only or cells_like else (len(_scenarios()), len(_cases()))
    # Each scenario has at most two constructions with two sides, each case two levels.
    # The rules of all mechanisms together are judged by assumption and side.
    checks += 4 * scenarios + 2 * cases + 4 * bool(scenarios)
    if not checks:
        raise NoSuchCellError("no cell has such a name; names are in docs/calibration.md and in the file of --json")
    # Rounded up, so that one cell more leaves the level, and what is kept, as it is.
    checks = 1 << (checks - 1).bit_length()
    findings = Findings(form.name, seed, checks, form.false_alarm / checks)
    kept = None if keep is None else keep(form, seed, findings.level)
    rest = [Part(f"test {i}", partial(_case, i, seed, form.homogeneity_windows), kept) for i in range(cases)]
    rest += [
        Part(f"alarms {i}", partial(_scenario, i, seed, form.alarm_windows, form.rule_windows), kept)
        for i in range(scenarios)
    ]
    work = []
    for setting in plan:
        stages = NAMED if setting.id in closer else form.stages
        kept = keep and keep(stages, seed, findings.level, modules=modules_of(setting.world))
        work.append(Part(setting.id, partial(run_setting, setting, seed, findings.level, stages), kept))
    work += rest
    for done, found in enumerate(_results(work, processes or os.cpu_count() or 1), start=1):
        for entry in found:
            if isinstance(entry, Outcome):
                findings.outcomes.append(entry)
            elif isinstance(entry, Alarms):
                findings.alarms.append(entry)
            else:
                findings.rejections.append(entry)
        said = (failure(entry, findings.level) for entry in found)
        progress(done, len(work), [line for line in said if line is not None])
    findings.outcomes.sort(key=lambda outcome: outcome.id)
    return findings


def _results(work: list[Part], processes: int) -> Iterator[Sequence[Entry]]:
    if processes == 1:
        yield from map(_do, work)
        return
    # A process that handles SIGTERM in its own way would leave children that no pool can end.
    ends = (signal.SIGTERM, signal.SIG_DFL)
    with multiprocessing.get_context("fork").Pool(processes, signal.signal, ends) as pool:
        yield from pool.imap_unordered(_do, work)
