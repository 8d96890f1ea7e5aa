"""The cells of the calibration: a world, users on rungs, a population model; each is estimated by every method."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Method, Population
from estimators.mechanisms.improved_christofides import ImprovedChristofides
from tests.calibration import derived
from tests.calibration.worlds import LADDERS, SIZES, World, worlds

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Layout = Literal["top rung", "mixed", "laggards", "early", "lean", "apart", "few"]

USERS = (20, 100, 1_000, 10_000, 100_000)
LAYOUTS: tuple[Layout, ...] = ("top rung", "mixed", "laggards", "early", "lean", "apart")
POPULATIONS: tuple[Population, ...] = get_args(Population)
THIN = 0.01
"""Part of the users on the thin rung of `laggards` (lowest rung) and `early` (top rung)."""
LEANS: dict[str, float] = {"lean": 0.8, "apart": 1.0}
"""Layouts whose rungs depend on the value: the part of the people of every second kind that stays on the lower rungs;
of the others this part is on the top."""
FEW = 1 / 11
"""Part of the users on the lowest rung of `few`, a layout of named cells only."""
SINGLE_DEVICES = 10_000
"""Most users where every device is drawn on its own."""

NAMED: tuple[tuple[str, int, tuple[float, ...], str, Layout, int, Population], ...] = (
    ("grr", 50, (1.0, 4.0), "uneven", "laggards", 10_000, "fleet"),
    ("grr", 50, (1.0, 4.0), "uneven", "laggards", 10_000, "sampling"),
    ("grr", 50, (1.0, 4.0), "uneven", "mixed", 100, "fleet"),
    ("grr", 50, (1.0, 4.0), "uneven", "few", 330, "fleet"),
    ("grr", 50, (1.0, 4.0), "uneven", "few", 11_000, "fleet"),
    ("grr", 50, (1.0, 4.0), "equal", "few", 1_100, "sampling"),
    ("grr", 5, (1.0, 4.0), "uneven", "lean", 1_000, "fleet"),
    ("grr", 5, (1.0, 4.0), "equal", "lean", 1_000, "sampling"),
    ("grr", 50, (1.0, 4.0), "uneven", "apart", 1_000, "fleet"),
    ("grr", 2, (1.0, 4.0), "equal", "apart", 10_000, "sampling"),
    ("grr", 2, (0.1, 6.0), "uneven", "early", 2_000, "fleet"),
    ("grr", 2, (0.1, 6.0), "uneven", "early", 2_000, "sampling"),
    ("grr", 2, (0.1, 6.0), "uneven", "top rung", 20, "sampling"),
    ("grr", 2, (0.1, 6.0), "single", "top rung", 1_000, "fleet"),
    ("urap", 5, (1.0, 4.0), "uneven", "top rung", 100, "fleet"),
    ("urr", 5, (1.0, 4.0), "single", "laggards", 1_000, "fleet"),
    ("pum", 5, (1.0, 4.0), "uneven", "top rung", 1_000, "sampling"),
    ("improved_christofides", 2, (1.0,), "single", "top rung", 100, "sampling"),
    ("lpp", 2, (0.1, 6.0), "means", "top rung", 150, "fleet"),
    ("lpp", 2, (0.1, 6.0), "other means", "top rung", 1_000, "sampling"),
    ("pckv_ue", 2, (0.1, 6.0), "means", "top rung", 150, "fleet"),
    ("pckv_ue", 5, (1.0, 4.0), "means", "mixed", 1_000, "fleet"),
    ("urr", 5, (0.1, 6.0), "uneven", "laggards", 20, "sampling"),
    ("urap", 5, (1.0, 4.0), "equal", "early", 20, "sampling"),
    ("lpp", 5, (0.1, 6.0), "means", "mixed", 20, "sampling"),
    ("lpp", 5, (0.1, 6.0), "two keys", "laggards", 1_000, "fleet"),
    ("urap", 5, (0.5, 1.0, 2.0), "equal", "mixed", 20, "fleet"),
    ("lpp", 50, (0.1, 6.0), "rare keys", "early", 10_000, "fleet"),
    ("rappor", 5, (1.0, 4.0), "equal", "mixed", 100, "sampling"),
)
"""Where plain bands, or earlier ones of ours, were seen to fail: mechanism, values, ladder, people, layout, users,
population model."""


@dataclass(frozen=True)
class Setting:
    """Users of a world on rungs, under one population model."""

    world: World
    layout: Layout
    users: int
    population: Population

    @property
    def id(self) -> str:
        """A name that stays the same from run to run."""
        world = self.world
        levels = "/".join(f"{level:g}" for level in world.ladder)
        kind = f"{world.name} variant" if world.variant else world.name
        return f"{kind} m={world.size} {levels} {world.people.name}, {self.layout}, n={self.users}, {self.population}"

    @property
    def seed(self) -> int:
        """A number made from the name."""
        return crc32(self.id.encode())

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that promise something here: where rungs lean with the value, only the stratified one does."""
        known: tuple[Method, ...] = get_args(Method)
        offered = tuple(method for method in known if method in self.world.mechanism.specification.methods)
        if self.layout in LEANS:
            return tuple(method for method in offered if method == "stratified")
        # One rung: pooled and stratified are the same.
        return tuple(m for m in offered if self.layout != "top rung" or m != "stratified" or "pooled" not in offered)

    def rung_sizes(self) -> Ints:
        """Return the users of every rung."""
        rungs = len(self.world.ladder)
        sizes = np.zeros(rungs, dtype=np.int64)
        thin = max(round(THIN * self.users), 1)
        if self.layout == "mixed":
            sizes += self.users // rungs
        elif self.layout == "laggards":
            sizes[0] = thin
        elif self.layout == "few":
            sizes[0] = round(FEW * self.users)
        elif self.layout == "early":
            sizes[-1] = thin
            sizes[0] = self.users - thin
        sizes[-1] += self.users - sizes.sum()
        return sizes

    def people(self, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Return people [rung, kind] of one window, and the true quantities that its bands are about."""
        weights = np.array(self.world.people.weights)
        if self.layout in LEANS:
            return self._leaning(weights, rng)
        sizes = self.rung_sizes()
        if self.population == "sampling":
            return rng.multinomial(sizes, weights), self.world.truth(weights)
        left = whole_numbers(weights, self.users)
        truth = self.world.truth(left.astype(np.float64))
        rows = []
        for size in sizes[:-1]:
            rows.append(rng.multivariate_hypergeometric(left, size))
            left = left - rows[-1]
        return np.stack([*rows, left]), truth

    def true_derived(self, people: Ints) -> dict[str, float]:
        """Return the true numbers that follow from all values together, of one window with these people."""
        counts = people.sum(axis=0).astype(np.float64)
        if self.population == "sampling":
            counts = np.array(self.world.people.weights) * self.users
        return derived.truths(self.world, counts)

    def _leaning(self, weights: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        rungs, kinds = len(self.world.ladder), len(weights)
        lean = LEANS[self.layout]
        low = np.where(np.arange(kinds) % 2, 1.0 - lean, lean)
        law = np.concatenate([np.repeat((low / (rungs - 1))[None], rungs - 1, axis=0), (1.0 - low)[None]]) * weights
        if self.population == "sampling":
            return rng.multinomial(self.users, law.ravel()).reshape(law.shape), self.world.truth(weights)
        people = whole_numbers(law.ravel(), self.users).reshape(law.shape)
        return people, self.world.truth(people.sum(axis=0).astype(np.float64))


def whole_numbers(weights: Floats, total: int) -> Ints:
    """Return whole numbers near weights * total that sum to total: largest remainders are rounded up."""
    exact = weights / weights.sum() * total
    found = np.floor(exact + 1e-9).astype(np.int64)
    found[np.argsort(found - exact, kind="stable")[: total - found.sum()]] += 1
    return np.asarray(found)


def settings(only: Collection[str] = ()) -> Iterator[Setting]:
    """Yield the settings of the long form, of all mechanisms or of some.

    Not all combinations: in every world each layout meets one number of users, on a diagonal that turns from world to
    world, under one population model; worlds with many values have one ladder each.
    """
    for number, world in enumerate(worlds(only)):
        single = len(world.ladder) == 1
        alone = np.count_nonzero(world.people.weights) < 2
        if world.size == max(SIZES) and not single and number % len(LADDERS) != number // len(LADDERS) % len(LADDERS):
            continue
        for (i, layout), (j, users) in itertools.product(enumerate(LAYOUTS), enumerate(USERS)):
            if (single and layout != "top rung") or (layout in LEANS and alone):
                continue
            if single or (i + j + number) % len(USERS) == 0:
                # The decks of improved Christofides are dealt one card after the other.
                if users > SINGLE_DEVICES and isinstance(world.mechanism.specification, ImprovedChristofides):
                    continue
                yield Setting(world, layout, users, POPULATIONS[(i + number // len(USERS)) % 2])


def quick(only: Collection[str] = ()) -> Iterator[Setting]:
    """Yield the settings of the short form: the named ones, and two of every mechanism."""
    yield from named(only)
    for _, group in itertools.groupby(settings(only), key=lambda setting: setting.world.name):
        small = sorted((s for s in group if s.world.size < max(SIZES)), key=lambda setting: setting.seed)
        # One in which all methods promise something, and any other.
        every = next((s for s in small if s.layout in ("mixed", "laggards", "early")), small[0])
        yield every
        if not every.world.variant:
            yield next(s for s in small if s is not every)


def named(only: Collection[str] = ()) -> Iterator[Setting]:
    """Yield settings in which plain bands were seen to fail."""
    for name, size, ladder, people, layout, users, population in NAMED:
        if only and name not in only:
            continue
        found = next(w for w in worlds([name], sizes=[size]) if w.ladder == ladder and w.people.name == people)
        yield Setting(found, layout, users, population)
