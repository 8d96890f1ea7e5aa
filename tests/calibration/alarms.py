"""False alarms of every kind of alert bound, at every look of a window's life.

Alert rules of every mechanism are in rules.py. Here are the two constructions alone, where windows are the columns of
one tally and thousands of them take seconds. Devices arrive in groups and climb rungs as they age; of a group only the
number of answers that name the value is drawn, rung by rung from the top. A window in which a bound passes the truth at
any look is a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.intervals.always_valid import Side, YesNo, log_e
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha
from estimators.tally import Tally
from tests.calibration.cells import POPULATIONS
from tests.calibration.judge import NO_TRIALS, Hits
from tests.calibration.rules import ALPHA, ASSUMPTIONS, PARTS, SIDES, Rules, watched
from tests.calibration.worlds import arguments, example_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Construction = Literal["likelihood", "checkpoints", "alert rule"]

WINDOWS, RULE_WINDOWS = 2_000, 80


@dataclass(frozen=True)
class Group:
    """Devices that arrive together: how many, when, what part has the value, and the rung at each age."""

    tick: int
    users: int
    having: int | None
    """How many of them have the value; None: each with the scenario's share, which differs from window to window."""
    rung: Callable[[int], int]


@dataclass(frozen=True)
class Filling:
    """How a window fills, of a mechanism with so many values whose first one is watched."""

    name: str
    mechanism: str
    values: int
    ladder: tuple[float, ...]
    share: float
    alpha: float
    constructions: tuple[Construction, ...]
    groups: tuple[Group, ...]
    looks: tuple[int, ...]


@dataclass(frozen=True)
class EveryRule:
    """The alert rules of one mechanism, with both assumptions about rungs and both population models."""

    name: str


Scenario = Filling | EveryRule
RUNGS = {assumption: f"rungs {assumption}" for assumption in ASSUMPTIONS}


@dataclass(frozen=True)
class Alarms:
    """How many windows of a scenario alarmed falsely."""

    scenario: str
    construction: Construction
    side: Side
    alpha: float
    hits: Hits


def together(found: Iterable[Alarms]) -> list[Alarms]:
    """Return the false alarms of the rules of all mechanisms, by assumption and side: one rule has too few windows."""
    sums: dict[tuple[str, Side], Hits] = {}
    for one in found:
        if one.construction == "alert rule":
            name = one.scenario.rsplit(", ", 1)[1]
            sums[name, one.side] = sums.get((name, one.side), NO_TRIALS) + one.hits
    return [
        Alarms(f"all mechanisms, {name}", "alert rule", side, ALPHA, hits)
        for (name, side), hits in sorted(sums.items())
    ]


def _stay(rung: int) -> Callable[[int], int]:
    return lambda _: rung


def _climb(ticks: int, highest: int) -> Callable[[int], int]:
    return lambda age: min(age // ticks, highest)


def _leaning(
    mechanism: str, values: int, ladder: tuple[float, ...], share: float, users: int, *, others: int = -1, low: int = 0
) -> Filling:
    """Those who have the value stay on one rung, all others on another one, at 60 looks."""
    having = round(users * share)
    words = {0: "lowest", -1: "top"}
    groups = [
        group
        for tick in range(60)
        for group in (
            Group(tick, having, having, _stay(low % len(ladder))),
            Group(tick, users - having, 0, _stay(others % len(ladder))),
        )
    ]
    levels = "/".join(f"{level:g}" for level in ladder)
    name = f"value on the {words[low]} rung, others on the {words[others]}"
    return Filling(
        f"{name}: {mechanism}, {values} values, {levels}, share {share:g}, {users} users a look",
        mechanism,
        values,
        ladder,
        share,
        0.01,
        ("checkpoints",),
        tuple(groups),
        tuple(range(60)),
    )


def scenarios() -> tuple[Scenario, ...]:
    """Return all ways in which windows fill."""
    four = (0.25, 0.5, 1.0, 2.0)
    both: tuple[Construction, ...] = ("likelihood", "checkpoints")
    climbing = tuple(Group(tick, 10, None, _climb(30, 3)) for tick in range(150))
    level = tuple(Group(tick, 10, 3, _climb(30, 3)) for tick in range(150))
    first = tuple(Group(tick, 100, 100 if tick < 20 else 0, _climb(1, 1)) for tick in range(60))
    newcomers = (Group(0, 1000, 500, _stay(1)), *(Group(tick, 100, 10, _stay(0)) for tick in range(1, 41)))
    rare, few = tuple(Group(tick, 1, None, _stay(0)) for tick in range(60)), (0, 1, 4, 14, 29, 59)
    return (
        Filling("homogeneous, climbing", "grr", 2, four, 0.3, 0.05, ("likelihood",), climbing, tuple(range(0, 150, 3))),
        Filling(
            "homogeneous, the same share at every look", "grr", 2, four, 0.3, 0.05, both, level, tuple(range(0, 150, 3))
        ),
        Filling("ones first, then zeros", "grr", 2, (1.0, 4.0), 0.3, 0.05, ("checkpoints",), first, tuple(range(60))),
        Filling(
            "newcomers on a low rung", "grr", 2, (0.25, 2.0), 0.3, 0.05, ("checkpoints",), newcomers, tuple(range(41))
        ),
        Filling("a rare value, from the first user on", "grr", 10, (2.0,), 0.02, 0.05, ("likelihood",), rare, few),
        *leaning(),
        *(EveryRule(name) for name in watched()),
    )


def leaning() -> tuple[Filling, ...]:
    """Return windows whose rungs go with the values: there, checkpoints with one share for all rungs fail."""
    return (
        _leaning("grr", 50, (1.0, 6.0), 0.2, 100),
        _leaning("grr", 50, (1.0, 6.0), 0.05, 100),
        _leaning("grr", 200, (2.0, 8.0), 0.1, 100),
        _leaning("grr", 200, (2.0, 8.0), 0.1, 1_000),
        _leaning("grr", 8, (0.5, 4.0), 0.2, 100),
        _leaning("oue", 50, (2.0, 6.0), 0.1, 100),
        _leaning("mangat", 2, (0.5, 5.0), 0.2, 100),
        _leaning("grr", 50, (1.0, 6.0), 0.2, 100, low=-1, others=0),
        _leaning("grr", 50, (1.0, 6.0), 0.2, 100, low=0, others=0),
    )


def looks(scenario: Filling, windows: int, rng: np.random.Generator) -> Iterator[tuple[YesNo, float | None]]:
    """Yield at every look the tally, and the true share of those present where all windows have the same."""
    example = example_of(scenario.mechanism)
    mechanism = example.build(**arguments(example, scenario.values, scenario.ladder))
    question = mechanism.yes_no(Tally.empty(mechanism.rungs, 1, mechanism.answer.cells))
    assert question is not None
    truth, lie = question.truth[:, 0], question.lie[:, 0]
    named = [_named(group, scenario.share, truth, lie, windows, rng) for group in scenario.groups]
    for tick in scenario.looks:
        ones, users = np.zeros((len(truth), windows), dtype=np.int64), np.zeros(len(truth), dtype=np.int64)
        having: int | None = 0
        for group, counts in zip(scenario.groups, named, strict=True):
            if group.tick <= tick:
                rung = group.rung(tick - group.tick)
                ones[rung] += counts[rung]
                users[rung] += group.users
                having = None if having is None or group.having is None else having + group.having
        yield YesNo.of(truth, lie, ones, users), None if having is None else having / int(users.sum())


def _named(group: Group, share: float, truth: Floats, lie: Floats, windows: int, rng: np.random.Generator) -> Ints:
    """Return how many of a group's answers name the value, [rung, window].

    An answer that names it on one rung names it on the rung below with a probability that follows from both channels.
    """
    having = rng.binomial(group.users, share, windows) if group.having is None else np.full(windows, group.having)
    rows = [rng.binomial(having, truth[-1]) + rng.binomial(group.users - having, lie[-1])]
    for rung in range(len(truth) - 2, -1, -1):
        kept = (truth[rung] - lie[rung]) / (truth[rung + 1] - lie[rung + 1])
        new = truth[rung] - kept * truth[rung + 1]
        rows.append(rng.binomial(rows[-1], kept + new) + rng.binomial(group.users - rows[-1], new))
    return np.stack(rows[::-1])


def run_scenario(
    scenario: Scenario, seed: int, windows: int = WINDOWS, rule_windows: int = RULE_WINDOWS
) -> list[Alarms]:
    """Return the false alarms of every construction, or rule, and side: at most four entries."""
    return _filled(scenario, seed, windows) if isinstance(scenario, Filling) else _ruled(scenario, seed, rule_windows)


def _ruled(scenario: EveryRule, seed: int, windows: int) -> list[Alarms]:
    found = []
    for assumption in ASSUMPTIONS:
        hits = dict.fromkeys(SIDES, Hits(0, 0))
        for population in POPULATIONS:
            trials = max(windows // PARTS[assumption], 1)
            fired = Rules(scenario.name, assumption, population).fired(seed, trials)
            hits = {side: hits[side] + Hits(trials, fired[side]) for side in SIDES}
        name = f"{scenario.name}, {RUNGS[assumption]}"
        found += [Alarms(name, "alert rule", side, ALPHA, hits[side]) for side in SIDES]
    return found


def _filled(scenario: Filling, seed: int, windows: int) -> list[Alarms]:
    wrong = {(kind, side): np.zeros(windows, dtype=bool) for kind in scenario.constructions for side in SIDES}
    state = Checkpoint.beginning(windows)
    for tally, truth in looks(scenario, windows, np.random.default_rng([seed, 7])):
        share = scenario.share if truth is None else truth
        if "likelihood" in scenario.constructions:
            for side in SIDES:
                # The e-process is about the share behind the arrivals, and so holds for the scenario's share alone.
                evidence = log_e(tally, scenario.share, side=side)
                wrong["likelihood", side] |= evidence >= math.log(1.0 / scenario.alpha)
        if "checkpoints" in scenario.constructions:
            spend = partial(checkpoint_alpha, scenario.alpha)
            state = advance(state, tally, threshold=scenario.share, alpha_at=spend, population="fleet")
            lower, upper = bounds_now(state, int(tally.users[:, 0].sum()))
            wrong["checkpoints", "above"] |= lower > share + 1e-12
            wrong["checkpoints", "below"] |= upper < share - 1e-12
    return [
        Alarms(scenario.name, kind, side, scenario.alpha, Hits(windows, int(alarmed.sum())))
        for (kind, side), alarmed in wrong.items()
    ]
