"""Draw windows, estimate them with every method, and count which bands hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.intervals.one_look import two_sided_z
from estimators.tally import Tally
from tests.calibration import derived
from tests.calibration.cells import Setting
from tests.calibration.counts import drawer
from tests.calibration.judge import LEAST, LEAST_ALL, LONG, MOST, NO_TRIALS, TOO_WIDE_LEVEL, Hits, Stages
from tests.calibration.wald import wald_band
from tests.calibration.worlds import World

Floats = NDArray[np.float64]

ALPHA = 0.05
MOST_UNDEFINED = 0.5
EXPLAINED = r"no estimate|not estimable|no information|has no users"
"""What a note says that explains an undefined band."""
_REMEMBERED = 20_000
"""Estimates of one setting that are kept in memory."""
Found = tuple[Estimates, tuple[Floats, Floats], dict[str, tuple[float, float]]]
"""An estimate, the plain band of the same tally, and the bands of what is derived."""
_SAME = 1e-9
"""Ends of a band that equal the truth up to rounding hold it."""


@dataclass
class ClassCount:
    """What was seen of one class of values."""

    windows: int = 0
    defined: int = 0
    held: int = 0
    width: float = 0.0
    rarest: float = 0.0
    """Mean count of the rarest answer that tells about these values."""
    wald_windows: int = 0
    wald_held: int = 0
    wald_width: float = 0.0

    @property
    def hits(self) -> Hits:
        return Hits(self.defined, self.held)

    @property
    def half_width(self) -> float:
        return self.width / self.defined if self.defined else float("nan")


@dataclass
class Outcome:
    """What was seen of one cell, a setting with a method, up to one stage."""

    mechanism: str
    setting: str
    method: Method
    stage: int
    classes: dict[str, ClassCount] = field(default_factory=dict)
    windows: int = 0
    all_defined: int = 0
    all_held: int = 0
    zero_width: int = 0
    unexplained: int = 0
    """Windows with an undefined band and no note that says why."""
    screened: Hits = NO_TRIALS
    """One class of each window of the first stage, another one in the next: trials that may be summed over cells."""

    @property
    def id(self) -> str:
        return f"{self.setting}, {self.method}"

    @property
    def all_hits(self) -> Hits:
        return Hits(self.all_defined, self.all_held)

    @property
    def worst(self) -> tuple[str, ClassCount]:
        """The class whose bands hold least often."""
        return min(self.classes.items(), key=lambda item: (item[1].hits.rate, -item[1].defined))

    @property
    def checks(self) -> int:
        return len(self.classes) + 1

    def too_low(self, margin: float) -> bool:
        """Tell whether more windows are needed to say that the cell is right."""
        mostly = any(part.rarest >= 1.0 and part.defined < part.windows / 2 for part in self.classes.values())
        low = any(part.hits.rate < margin for part in self.classes.values())
        return mostly or low or self.all_hits.rate < margin + LEAST_ALL - LEAST

    def below(self, level: float) -> bool:
        return (
            any(part.hits.significantly_below(LEAST, level) for part in self.classes.values())
            or self.all_hits.significantly_below(LEAST_ALL, level)
            or self.broken
            or self.silent(level)
        )

    def silent(self, level: float) -> bool:
        """Tell whether bands are mostly undefined although the rarest answer that matters is expected."""
        return any(
            part.rarest >= 1.0
            and Hits(part.windows, part.windows - part.defined).significantly_above(MOST_UNDEFINED, level)
            for part in self.classes.values()
        )

    @property
    def broken(self) -> bool:
        """A band of width zero, or an undefined one without a word about it."""
        return self.zero_width > 0 or self.unexplained > 0

    def too_high(self, margin: float) -> bool:
        """Tell whether more windows are needed to say that bands are not too wide where nothing is rare."""
        return any(part.rarest >= 1.0 and part.hits.rate > margin for part in self.classes.values())

    @property
    def above(self) -> bool:
        """Bands hold too often where the rarest answer that matters is expected at least once."""
        return any(p.rarest >= 1.0 and p.hits.significantly_above(MOST, TOO_WIDE_LEVEL) for p in self.classes.values())


def run_setting(
    setting: Setting, seed: int, level: float, stages: Stages = LONG, estimate: Callable[..., Estimates] | None = None
) -> list[Outcome]:
    """Return the last stage of every method: a verdict, or the stage after which nothing looked wrong any more."""
    estimate = estimate or setting.world.mechanism.estimator.estimate
    return list(_last_stages(setting, seed, level, stages, estimate))


def _last_stages(
    setting: Setting, seed: int, level: float, stages: Stages, estimate: Callable[..., Estimates]
) -> Iterator[Outcome]:
    draw, _ = drawer(setting.world)
    found_before: dict[tuple[Method, bytes], Found] = {}
    going_on = {method: Outcome(setting.world.name, setting.id, method, 0) for method in setting.methods}
    before = 0
    for number, (windows, low, high) in enumerate(stages):
        rng = np.random.default_rng([seed, setting.seed, number])
        for outcome in going_on.values():
            outcome.stage = number
        for window in range(before, windows):
            people, truth = setting.people(rng)
            tally = draw(people, rng)
            seen = tally.counts.tobytes() + tally.users.tobytes()
            for method, outcome in going_on.items():
                told = found_before.get((method, seen))
                if told is None:
                    found = estimate(tally, method=method, population=setting.population, alpha=ALPHA)
                    told = found, plain_band(setting, tally, found), derived.bands(setting.world, tally, found)
                    # Few users, few tallies: most come again.
                    if len(found_before) < _REMEMBERED:
                        found_before[method, seen] = told
                count(outcome, setting.world, window, tally, truth, told[0])
                count_derived(outcome, setting.true_derived(people), told)
                compare(outcome, setting.world, window, truth, told[1])
        before = windows
        for method, outcome in list(going_on.items()):
            doubtful = outcome.too_low(low) or (outcome.too_high(high) and not outcome.above)
            if number + 1 == len(stages) or outcome.below(level) or not doubtful:
                yield going_on.pop(method)
        if not going_on:
            return


def count(outcome: Outcome, world: World, window: int, tally: Tally, truth: Floats, found: Estimates) -> None:
    """Add one window to a cell."""
    lower, upper = found.lower, found.upper
    defined = np.isfinite(lower) & np.isfinite(upper)
    slack = _SAME * np.maximum(1.0, np.abs(truth))
    held = defined & (lower <= truth + slack) & (truth <= upper + slack)
    known = np.isfinite(truth)
    outcome.windows += 1
    flat = bool(np.any(defined & (upper <= lower)))
    silent = bool(np.any(known & ~defined))
    outcome.unexplained += silent and not any(re.search(EXPLAINED, note) for note in found.notes)
    for number, (name, places) in enumerate(world.classes.items()):
        place = places[window % len(places)]
        part = outcome.classes.setdefault(name, ClassCount())
        if not known[place]:
            # Nobody of this fleet has the key: its mean is no number, and no band is asked for.
            continue
        if outcome.stage == 0 and number == window % len(world.classes) and defined[place]:
            outcome.screened += Hits(1, int(held[place]))
        part.rarest += (rarest_answer(world, tally, int(place)) - part.rarest) / (part.windows + 1)
        part.windows += 1
        if defined[place]:
            part.defined += 1
            part.held += bool(held[place])
            part.width += float(upper[place] - lower[place]) / 2.0
    if found.simultaneous_lower is not None and found.simultaneous_upper is not None:
        low, high = found.simultaneous_lower, found.simultaneous_upper
        shown = np.isfinite(low) & np.isfinite(high) & known
        flat |= bool(np.any(shown & (high <= low)))
        if shown.any():
            outcome.all_defined += 1
            outcome.all_held += bool(np.all((low <= truth + slack)[shown] & (truth <= high + slack)[shown]))
    outcome.zero_width += flat


def count_derived(outcome: Outcome, truths: dict[str, float], told: Found) -> None:
    """Add what is derived in one window, each number as a class of its own."""
    found, _, bands = told
    for name, truth in truths.items():
        part, (lower, upper) = outcome.classes.setdefault(name, ClassCount()), bands.get(name, (np.nan, np.nan))
        if not np.isfinite(truth):
            continue
        part.windows += 1
        if not np.isfinite(lower + upper):
            outcome.unexplained += not any(re.search(EXPLAINED, note) for note in found.notes)
            continue
        slack = _SAME * max(1.0, abs(truth))
        part.defined += 1
        part.held += bool(lower <= truth + slack and truth <= upper + slack)
        part.width += (upper - lower) / 2.0
        outcome.zero_width += upper <= lower


def compare(outcome: Outcome, world: World, window: int, truth: Floats, plain: tuple[Floats, Floats]) -> None:
    """Add the plain Wald bands of the same window."""
    lower, upper = plain
    slack = _SAME * np.maximum(1.0, np.abs(truth))
    for name, places in world.classes.items():
        place, part = places[window % len(places)], outcome.classes[name]
        if not (np.isfinite(lower[place]) and np.isfinite(truth[place])):
            continue
        part.wald_windows += 1
        part.wald_held += bool(lower[place] <= truth[place] + slack[place] <= upper[place] + 2 * slack[place])
        part.wald_width += float(upper[place] - lower[place]) / 2.0


def plain_band(setting: Setting, tally: Tally, found: Estimates) -> tuple[Floats, Floats]:
    """Return the Wald band of every label: of its yes/no question where it has one, else from the stated variance."""
    mechanism = setting.world.mechanism
    questions = mechanism.estimator.yes_no(tally)
    if questions is None:
        half = two_sided_z(ALPHA) * np.sqrt(found.variance)
        return found.value - half, found.value + half
    quantities = mechanism.specification.quantities
    low = np.array([quantity.low for quantity in quantities])
    range_ = np.array([quantity.high for quantity in quantities]) - low
    population: Population = "sampling" if quantities[0].kind == "mean" else setting.population
    ends = wald_band(questions, stratified=found.method == "stratified", population=population, alpha=ALPHA)
    return low + range_ * ends[0], low + range_ * ends[1]


def rarest_answer(world: World, tally: Tally, label: int) -> float:
    """Return the smallest count, over rungs with users, of the answers that tell about a label, and of the others."""
    cells = world.cells[label]
    counts = tally.counts.sum(axis=1)[:, cells]
    users = tally.users.sum(axis=1)[:, None]
    used = users[:, 0] > 0
    return float(np.minimum(counts, users - counts)[used].min())
