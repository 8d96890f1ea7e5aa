"""The test that all rungs see the same shares: how often it rejects when they do, and when they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.tally import Tally
from tests.calibration.cells import Setting
from tests.calibration.counts import drawer
from tests.calibration.judge import Hits
from tests.calibration.worlds import People, World, worlds

Ints = NDArray[np.int64]

SIZES = {0.05: 0.065, 0.001: 0.004}
"""Levels of the test, and the largest rate of rejections that counts as keeping them: the chi-square law is a limit."""
POWER = 0.9
"""Least rate of rejections at .001 where rungs differ as they do here."""
WINDOWS = 300


@dataclass(frozen=True)
class Case:
    """Windows whose rungs agree, or do not."""

    name: str
    world: World
    tally: Callable[[np.random.Generator], Tally]
    agree: bool


@dataclass(frozen=True)
class Rejections:
    """How often the test rejected at each level, out of the windows where it could tell anything."""

    name: str
    agree: bool
    windows: int
    undefined: int
    rejected: dict[float, Hits]


def run_case(case: Case, seed: int, windows: int = WINDOWS) -> Rejections:
    """Return the rejections of one case."""
    rng = np.random.default_rng([seed, 11])
    estimate = case.world.mechanism.estimator.estimate
    found = [estimate(case.tally(rng), method="stratified").homogeneity_p for _ in range(windows)]
    told = np.array([p for p in found if p is not None])
    # Where rungs differ, a test that says nothing has not found it.
    trials = len(told) if case.agree else windows
    rejected = {level: Hits(trials, int((told < level).sum())) for level in SIZES}
    return Rejections(case.name, case.agree, windows, windows - len(told), rejected)


def cases() -> Iterator[Case]:
    """Yield every mechanism with rungs that agree; GRR with absent values, thin rungs, leans and lying devices."""
    seen = set()
    for world in worlds():
        offered = "stratified" in world.mechanism.specification.methods
        if world.name not in seen and len(world.ladder) > 1 and offered:
            seen.add(world.name)
            setting = Setting(world, "mixed", 3_000, "sampling")
            yield Case(f"{world.name}, {world.size} values, {world.people.name}", world, _agreeing(setting), True)
    for values, present in ((3, 3), (6, 3), (50, 6), (50, 1)):
        for ladder, sizes in (((0.5, 1.0, 2.0), (1_600, 1_600, 12_800)), ((1.0, 6.0), (100, 10_000))):
            shares = np.zeros(values)
            shares[:present] = 1.0 / present
            yield _grr(f"{values - present} of {values} values absent, users {sizes}", ladder, sizes, [shares] * 3)
    yield from leaning()
    honest = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])
    for attackers in (50, 200, 400):
        name = f"{attackers} lying devices on the top rung among 10,000 honest devices on the lowest"
        yield _grr(name, (0.5, 2.0), (10_000, 0), [honest, honest], agree=False, attackers=attackers)


def leaning() -> Iterator[Case]:
    """Yield rungs whose shares differ, with more and more values that nobody has."""
    for absent in (0, 1, 2, 4, 8):
        base = np.zeros(3 + absent)
        base[:3] = 0.4, 0.4, 0.2
        low = np.zeros(3 + absent)
        low[:3] = 0.7, 0.3, 0.5
        laws = [part / part.sum() for part in (base * low, base * (1.0 - low))]
        sizes = tuple(round(20_000 * part.sum()) for part in (base * low, base * (1.0 - low)))
        yield _grr(f"rungs that lean, {absent} absent values", (0.5, 3.0), sizes, laws, agree=False)


def _agreeing(setting: Setting) -> Callable[[np.random.Generator], Tally]:
    draw, _ = drawer(setting.world)
    return lambda rng: draw(setting.people(rng)[0], rng)


def _grr(
    name: str,
    ladder: tuple[float, ...],
    sizes: tuple[int, ...],
    laws: list[NDArray[np.float64]],
    *,
    agree: bool = True,
    attackers: int = 0,
) -> Case:
    values = tuple(f"v{i}" for i in range(len(laws[0])))
    world = World("grr", ladder, len(values), People(name, _names(len(values)), tuple(laws[0].tolist())))
    draw, _ = drawer(world)

    def tally(rng: np.random.Generator) -> Tally:
        people = np.stack([rng.multinomial(size, law) for size, law in zip(sizes, laws, strict=False)])
        found = draw(people, rng)
        found.counts[-1, 0, len(values) - 2] += attackers
        found.users[-1, 0] += attackers
        return found

    return Case(f"grr {'/'.join(f'{level:g}' for level in ladder)}: {name}", world, tally, agree)


def _names(size: int) -> tuple[str, ...]:
    return World("grr", (1.0,), size, People("", (), ())).mechanism.labels
