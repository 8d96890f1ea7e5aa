"""False alarms of every kind of alert bound, at every look of a window's life.

The windows of a scenario are the columns of one tally. Devices arrive in groups and climb rungs as they age; of a group
only the number of answers that name the value is drawn, rung by rung from the top, by the exact channel and kernels. A
window in which a bound passes the truth at any look is a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.intervals.always_valid import Side, YesNo, log_e
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha
from tests.calibration.judge import Hits

Ints = NDArray[np.int64]
Construction = Literal["likelihood", "checkpoints"]

WINDOWS = 2_000
SIDES: tuple[Side, ...] = ("above", "below")


@dataclass(frozen=True)
class Group:
    """Devices that arrive together: how many, when, what part has the value, and the rung at each age."""

    tick: int
    users: int
    having: int | None
    """How many of them have the value; None: each with the scenario's share, which differs from window to window."""
    rung: Callable[[int], int]


@dataclass(frozen=True)
class Scenario:
    """How a window fills."""

    name: str
    values: int
    ladder: tuple[float, ...]
    share: float
    alpha: float
    constructions: tuple[Construction, ...]
    groups: tuple[Group, ...]
    looks: tuple[int, ...]


@dataclass(frozen=True)
class Alarms:
    """How many windows of a scenario alarmed falsely."""

    scenario: str
    construction: Construction
    side: Side
    alpha: float
    hits: Hits


def _stay(rung: int) -> Callable[[int], int]:
    return lambda _: rung


def _climb(ticks: int, highest: int) -> Callable[[int], int]:
    return lambda age: min(age // ticks, highest)


def _leaning(values: int, ladder: tuple[float, ...], share: float, users: int, *, low: bool = True) -> Scenario:
    having = round(users * share)
    rungs = (0, len(ladder) - 1) if low else (len(ladder) - 1, 0)
    groups = [
        group
        for tick in range(60)
        for group in (
            Group(tick, having, having, _stay(rungs[0])),
            Group(tick, users - having, 0, _stay(rungs[1])),
        )
    ]
    levels = "/".join(f"{level:g}" for level in ladder)
    name = f"value on the {'lowest' if low else 'top'} rung, others on the {'top' if low else 'lowest'}"
    return Scenario(
        f"{name}: {values} values, {levels}, share {share:g}, {users} users a look",
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
        Scenario("homogeneous, climbing", 2, four, 0.3, 0.05, ("likelihood",), climbing, tuple(range(0, 150, 3))),
        Scenario("homogeneous, the same share at every look", 2, four, 0.3, 0.05, both, level, tuple(range(0, 150, 3))),
        Scenario("ones first, then zeros", 2, (1.0, 4.0), 0.3, 0.05, ("checkpoints",), first, tuple(range(60))),
        Scenario("newcomers on a low rung", 2, (0.25, 2.0), 0.3, 0.05, ("checkpoints",), newcomers, tuple(range(41))),
        Scenario("a rare value, from the first user on", 10, (2.0,), 0.02, 0.05, ("likelihood",), rare, few),
        _leaning(50, (1.0, 6.0), 0.2, 100),
        _leaning(50, (1.0, 6.0), 0.05, 100),
        _leaning(200, (2.0, 8.0), 0.1, 100),
        _leaning(8, (0.5, 4.0), 0.2, 100),
        _leaning(50, (1.0, 6.0), 0.2, 100, low=False),
    )


def looks(scenario: Scenario, windows: int, rng: np.random.Generator) -> Iterator[tuple[YesNo, float | None]]:
    """Yield at every look the tally, and the true share of those present where all windows have the same."""
    chain = Chain.retention(scenario.ladder, scenario.values)
    channels, kernels = chain.retention_channels, [k for k in chain.kernels if isinstance(k, RetentionChannel)]
    named = [_named(group, scenario.share, channels[-1], kernels, windows, rng) for group in scenario.groups]
    truth, lie = [channel.truth for channel in channels], [channel.lie for channel in channels]
    for tick in scenario.looks:
        ones, users = np.zeros((len(channels), windows), dtype=np.int64), np.zeros(len(channels), dtype=np.int64)
        having: int | None = 0
        for group, counts in zip(scenario.groups, named, strict=True):
            if group.tick <= tick:
                rung = group.rung(tick - group.tick)
                ones[rung] += counts[rung]
                users[rung] += group.users
                having = None if having is None or group.having is None else having + group.having
        yield YesNo.of(truth, lie, ones, users), None if having is None else having / int(users.sum())


def _named(
    group: Group,
    share: float,
    top: RetentionChannel,
    kernels: list[RetentionChannel],
    windows: int,
    rng: np.random.Generator,
) -> Ints:
    """Return how many of a group's answers name the value, [rung, window]."""
    having = rng.binomial(group.users, share, windows) if group.having is None else np.full(windows, group.having)
    rows = [rng.binomial(having, top.truth) + rng.binomial(group.users - having, top.lie)]
    for kernel in reversed(kernels):
        rows.append(rng.binomial(rows[-1], kernel.truth) + rng.binomial(group.users - rows[-1], kernel.lie))
    return np.stack(rows[::-1])


def run_scenario(scenario: Scenario, seed: int, windows: int = WINDOWS) -> list[Alarms]:
    """Return the false alarms of every construction and side."""
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
            state = advance(state, tally, threshold=scenario.share, alpha_at=spend)
            lower, upper = bounds_now(state, int(tally.users[:, 0].sum()))
            wrong["checkpoints", "above"] |= lower > share + 1e-12
            wrong["checkpoints", "below"] |= upper < share - 1e-12
    return [
        Alarms(scenario.name, kind, side, scenario.alpha, Hits(windows, int(alarmed.sum())))
        for (kind, side), alarmed in wrong.items()
    ]
