"""Murakami & Kawamoto, *Utility-Optimized LDP*: figures 5 to 7 (total variation) and 10 to 12 (squared error)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.response import REAL
from estimators.exact.randomness import SeededBits
from estimators.inference.em_bits import reports_mle
from estimators.inference.inversion import bit_estimates
from estimators.inference.likelihood import water_fill
from estimators.inference.views import keep_significant, significance_threshold, simplex_projection, zero_deviation
from estimators.mechanisms.uldp import urap_chain
from estimators.planning import losses
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.draws import people, told_bits, told_symbols
from estimators.reproduction.laboratory import Experiment, Laboratory, Notebook

PAPER = "Murakami & Kawamoto"
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
MECHANISMS = ("RR", "RAP", "uRR", "uRAP")


@dataclass(frozen=True)
class World:
    """A distribution over values of which the first `sensitive` are sensitive, and how many people answer."""

    name: str
    shares: Floats
    sensitive: int
    users: int

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.shares)

    def pool(self, mechanism: str) -> int:
        """Return how many values a mechanism protects: RR and RAPPOR all of them."""
        return self.sensitive if mechanism.startswith("u") else self.size


def zipf(size: int) -> Floats:
    """Return the synthetic distribution: Zipf's law in an order that is always the same."""
    shares = 1 / np.arange(1.0, size + 1)
    shares /= shares.sum()
    np.random.default_rng(1).shuffle(shares)
    return shares


CHECK_INS = World("Foursquare size", zipf(625), 15, 179_527)
CENSUS = World("census size", zipf(400), 76, 1_229_143)


def is_bits(mechanism: str) -> bool:
    """Tell whether answers are bit vectors."""
    return mechanism.endswith("RAP")


def told(generator: np.random.Generator, truth: Counts, mechanism: str, epsilon: float, pool: int) -> Counts:
    """Return counts of answers, or of set bits, for counts of true values [run, value]."""
    draw = told_bits if is_bits(mechanism) else told_symbols
    return draw(generator, truth, epsilon, pool)


def responses(mechanism: str, epsilon: float, pool: int, size: int) -> tuple[Floats, Floats]:
    """Return Pr(answer names the value) if it is the person's, and if it is not, per value."""
    truth, lie = np.empty(size), np.zeros(size)
    if is_bits(mechanism):
        bits = REAL.urap(epsilon)
        truth[:pool], truth[pool:], lie[:pool] = bits.sensitive.truth, bits.other.truth, bits.sensitive.lie
    else:
        chance = REAL.grr(epsilon, pool)
        truth[:pool], truth[pool:], lie[:pool] = chance.truth, chance.slope, chance.lie
    return truth, lie


def estimate_all(counts: Counts, users: int, mechanism: str, epsilon: float, pool: int) -> dict[str, Floats]:
    """Return per estimator the shares [run, value].

    `emp` is linear, `emp+thr` keeps what is significant, `MLE` is the limit of EM in closed form. Counts of bits have
    no likelihood; `projection` is the nearest distribution.
    """
    size = counts.shape[1]
    truth, lie = responses(mechanism, epsilon, pool, size)
    linear = bit_estimates(truth, lie, counts, users)[0]
    threshold = significance_threshold(zero_deviation(truth - lie, lie, users), 0.05, size)
    kept = np.array([keep_significant(row, threshold).shares for row in linear])
    if is_bits(mechanism):
        return {"emp": linear, "emp+thr": kept, "projection": np.array([simplex_projection(row) for row in linear])}
    floor = lie / (truth - lie)
    return {"emp": linear, "emp+thr": kept, "MLE": np.array([water_fill(row.astype(float), floor) for row in counts])}


@dataclass(frozen=True)
class Errors:
    """Mean total variation and mean squared error over runs."""

    variation: float
    squared: float
    runs: int
    spread: float
    """Standard deviation of the total variation between runs."""


def errors_of(shares: Floats, truth: Floats) -> Errors:
    """Return the errors of estimated shares [run, value]."""
    variation = np.abs(shares - truth).sum(axis=1) / 2
    squared = float(((shares - truth) ** 2).sum(axis=1).mean())
    return Errors(float(variation.mean()), squared, len(shares), float(variation.std(ddof=1)))


def noise(world: World, mechanism: str, epsilon: float, runs: int) -> tuple[float, float]:
    """Return the standard errors of both mean errors of the linear estimate.

    From the variances of the cells, each nearly normal and nearly independent: a few runs say too little about them.
    """
    truth, lie = responses(mechanism, epsilon, world.pool(mechanism), world.size)
    expected = world.users * (lie + (truth - lie) * world.shares)
    variances = bit_estimates(truth, lie, expected, world.users)[1]
    variation = 0.5 * math.sqrt((1 - 2 / math.pi) * float(variances.sum()) / runs)
    return variation, math.sqrt(2 * float((variances**2).sum()) / runs)


Found = dict[tuple[str, float, str], Errors]


def simulate(laboratory: Laboratory, world: World, levels: Sequence[float], runs: int) -> Found:
    """Return the errors of every mechanism, level and estimator in a world."""

    def make() -> Found:
        found: Found = {}
        for mechanism in MECHANISMS:
            for level in levels:
                generator = laboratory.generator(f"{world.name}-{mechanism}-{level:.6f}")
                truth = people(generator, world.shares, world.users, runs)
                counts = told(generator, truth, mechanism, level, world.pool(mechanism))
                shares = estimate_all(counts, world.users, mechanism, level, world.pool(mechanism))
                found |= {(mechanism, level, way): errors_of(rows, world.shares) for way, rows in shares.items()}
        return found

    return laboratory.once(f"mk-{world.name}-{world.size}", make)


def expected_variation(world: World, mechanism: str, epsilon: float, *, exact: bool = False) -> float:
    """Return the expected total variation of the linear estimate: Eq. 12 and 17, or exactly."""
    loss = losses.l1_urap if is_bits(mechanism) else losses.l1_urr
    found = loss(world.shares, world.pool(mechanism), epsilon, world.users)
    return found.exact / 2 if exact else found.total_variation


def expected_squared(world: World, mechanism: str, epsilon: float) -> float:
    """Return the expected squared error of the linear estimate: Eq. 46 and 48."""
    loss = losses.l2_urap if is_bits(mechanism) else losses.l2_urr
    return loss(world.shares, world.pool(mechanism), epsilon, world.users)


def without_privacy(world: World) -> float:
    """Return the expected total variation of plain counting: randomized response that never lies."""
    return losses.l1_urr(world.shares, world.size, math.inf, world.users).total_variation


def _levels(world: World) -> list[float]:
    return [0.1, 0.5, 1.0, 2.0, 4.0, math.log(world.size), 8.0, 10.0]


def _figure_5(notebook: Notebook) -> None:
    for world, key in ((CHECK_INS, "foursquare"), (CENSUS, "census")):
        levels, runs = _levels(world), notebook.laboratory.runs(200, 40)
        found = simulate(notebook.laboratory, world, levels, runs)
        names = [f"{world.name}, eps = {level:.4g}" for level in levels]
        for mechanism in MECHANISMS:
            formula = [expected_variation(world, mechanism, level) for level in levels]
            notebook.hold(f"mk.fig5.{key}.{mechanism}", formula, labels=names)
            for level, name in zip(levels, names, strict=True):
                ours = found[mechanism, level, "emp"]
                exact = expected_variation(world, mechanism, level, exact=True)
                error = noise(world, mechanism, level, ours.runs)[0]
                notebook.theory(f"{mechanism}, {name}: simulated", ours.variation, exact, error=error)
        notebook.hold(f"mk.fig5.{key}.none", without_privacy(world))
        small, large = (
            {mechanism: expected_variation(world, mechanism, level) for mechanism in MECHANISMS}
            for level in (0.1, math.log(world.size))
        )
        notebook.hold("mk.fig5.orders", max(small["uRR"], small["uRAP"]) < small["RAP"], labels=[world.name])
        notebook.hold("mk.fig5.urap", small["uRAP"] < small["uRR"], labels=[f"{world.name}, eps = 0.1"])
        notebook.hold("mk.fig5.urr", large["uRR"] < large["uRAP"], labels=[f"{world.name}, eps = ln k"])
        notebook.chart(_error_chart(world, levels, found, squared=False))
    close = expected_variation(CHECK_INS, "uRR", math.log(625)) / without_privacy(CHECK_INS) < 1.05
    notebook.hold("mk.fig5.none", close)
    _estimators(notebook)


def _estimators(notebook: Notebook) -> None:
    """Hold the three estimators against an independent simulation; add the full likelihood of uRAP."""
    found = simulate(notebook.laboratory, CHECK_INS, _levels(CHECK_INS), notebook.laboratory.runs(200, 40))
    for level, key in ((0.1, "0.1"), (1.0, "1"), (math.log(625), "ln-k")):
        for mechanism in MECHANISMS:
            ways = ["emp", "emp+thr", "projection" if is_bits(mechanism) else "MLE"]
            ours = [found[mechanism, level, way] for way in ways]
            labels = [f"{mechanism}, {way}" for way in ways]
            # The numbers that ours are held against are means of 20 runs.
            errors = [one.spread * math.sqrt(1 / one.runs + 1 / 20) for one in ours]
            notebook.hold(f"mk.fig5.{mechanism}.{key}", [one.variation for one in ours], labels=labels, error=errors)
        full = _full_likelihood(notebook.laboratory, level)
        notebook.hold(f"mk.fig5.full.{key}", full)


def _full_likelihood(laboratory: Laboratory, level: float) -> float:
    """Return the total variation of uRAP's maximum likelihood from whole reports of one fleet."""
    world = CHECK_INS
    values = laboratory.generator(f"mk-full-{level}").choice(world.size, world.users, p=world.shares)
    chain = urap_chain([level], world.sensitive, world.size - world.sensitive)
    answers = chain.draw_one_hot(values, SeededBits(laboratory.seed, "mk-full", repr(level)))
    found = reports_mle(chain.channels, answers[0], np.zeros(world.users, dtype=np.int64), sensitive=world.sensitive)
    assert found is not None  # people answered
    return float(np.abs(found.shares - world.shares).sum() / 2)


def _error_chart(world: World, levels: Sequence[float], found: Found, *, squared: bool) -> Chart:
    marks: list[Mark] = []
    fine = np.geomspace(0.1, 10, 40)
    for colour, mechanism in enumerate(MECHANISMS):
        expected = expected_squared if squared else expected_variation
        curve = [expected(world, mechanism, float(level)) for level in fine]
        marks.append(Curve(f"{mechanism}, emp", fine, curve, colour=colour))
        for way, style in (("emp", "points"), ("emp+thr", "dashed")):
            ours = [found[mechanism, level, way] for level in levels]
            y = [one.squared if squared else one.variation for one in ours]
            order = np.argsort(levels)
            label = f"{mechanism}, emp+thr" if way == "emp+thr" else ""
            marks.append(Curve(label, np.array(levels)[order], np.array(y)[order], style=style, colour=colour))
    if not squared:
        marks.append(Level("no privacy", without_privacy(world)))
    what = "squared error" if squared else "total variation"
    title = f"{world.name}: {world.size} values, {world.sensitive} sensitive"
    return Chart(title, "epsilon", what, marks, x_log=True, y_log=True)


def _figure_10(notebook: Notebook) -> None:
    for world in (CHECK_INS, CENSUS):
        levels, runs = _levels(world), notebook.laboratory.runs(200, 40)
        found = simulate(notebook.laboratory, world, levels, runs)
        for mechanism in MECHANISMS:
            for level in levels:
                ours, expected = found[mechanism, level, "emp"], expected_squared(world, mechanism, level)
                what = f"{mechanism}, {world.name}, eps = {level:.4g}: squared error"
                notebook.theory(what, ours.squared, expected, error=noise(world, mechanism, level, ours.runs)[1])
        notebook.chart(_error_chart(world, levels, found, squared=True))


_SIZES = (1, 5, 20, 50, 100, 200, 625)


def _sets(laboratory: Laboratory, epsilon: float, size: int) -> tuple[World, dict[str, Errors]]:
    """Return a world of Fig. 6 with `size` sensitive values, and simulated errors of uRR and uRAP."""
    world = World(f"set of {size}", CHECK_INS.shares, size, CHECK_INS.users)

    def make() -> dict[str, Errors]:
        found, runs = {}, laboratory.runs(200, 40)
        for mechanism in ("uRR", "uRAP"):
            generator = laboratory.generator(f"mk-6-{mechanism}-{size}-{epsilon:.4f}")
            truth = people(generator, world.shares, world.users, runs)
            counts = told(generator, truth, mechanism, epsilon, size)
            shares = bit_estimates(*responses(mechanism, epsilon, size, world.size), counts, world.users)[0]
            found[mechanism] = errors_of(shares, world.shares)
        return found

    return world, laboratory.once(f"mk-6-{size}-{epsilon}", make)


def _figure_6(notebook: Notebook, *, squared: bool = False) -> None:
    """Show errors by the number of sensitive values; `squared`: Fig. 11."""
    for epsilon, key in ((0.1, "0.1"), (math.log(625), "ln-k")):
        marks: list[Mark] = []
        for colour, mechanism in enumerate(("uRR", "uRAP")):
            theory, simulated = [], []
            for size in _SIZES:
                world, found = _sets(notebook.laboratory, epsilon, size)
                ours = found[mechanism]
                errors = noise(world, mechanism, epsilon, ours.runs)
                what = f"{mechanism}, eps = {epsilon:.4g}, {size} sensitive values"
                if squared:
                    theory.append(expected_squared(world, mechanism, epsilon))
                    simulated.append(ours.squared)
                    notebook.theory(what, ours.squared, theory[-1], error=errors[1])
                else:
                    theory.append(expected_variation(world, mechanism, epsilon))
                    simulated.append(ours.variation)
                    exact = expected_variation(world, mechanism, epsilon, exact=True)
                    notebook.theory(f"{what}: simulated", ours.variation, exact, error=errors[0])
            if not squared:
                _hold_sets(notebook, mechanism, key, theory)
            marks.append(Curve(mechanism, _SIZES, theory, colour=colour))
            marks.append(Curve("", _SIZES, simulated, style="points", colour=colour))
        what = "squared error" if squared else "total variation"
        title = f"625 values, eps = {'ln 625' if epsilon > 1 else '0.1'}"
        notebook.chart(Chart(title, "sensitive values", what, marks, x_log=True, y_log=True))


def _hold_sets(notebook: Notebook, mechanism: str, key: str, theory: list[float]) -> None:
    notebook.hold("mk.fig6.rises", bool(np.all(np.diff(theory) > 0)), labels=[f"{mechanism}, eps = {key}"])
    labels = [f"{size} sensitive" for size in _SIZES]
    if key == "0.1":
        notebook.hold(f"mk.fig6.{mechanism}", theory, labels=labels)
    else:
        notebook.hold(f"mk.fig6.{mechanism}.ends", [theory[0], theory[-1]], labels=[labels[0], labels[-1]])


def _attributes(laboratory: Laboratory, attributes: int) -> tuple[World, Found]:
    double = 2 ** (attributes - 4)
    world = World(f"{attributes} attributes", zipf(400 * double), 76 * double, 240_000)
    return world, simulate(laboratory, world, (0.1, 1.0, 6.0), laboratory.runs(20, 5))


def _figure_7(notebook: Notebook, *, squared: bool = False) -> None:
    """Show errors by the number of attributes, 400 to 12,800 values; `squared`: Fig. 12."""
    counts = range(4, 10)
    worlds = [_attributes(notebook.laboratory, attributes) for attributes in counts]
    for level in (0.1, 1.0, 6.0):
        marks: list[Mark] = []
        for colour, mechanism in enumerate(MECHANISMS):
            rows = [found[mechanism, level, "emp"] for _, found in worlds]
            for (world, _), ours in zip(worlds, rows, strict=True):
                errors = noise(world, mechanism, level, ours.runs)
                what = f"{mechanism}, eps = {level:g}, {world.size} values"
                if squared:
                    expected = expected_squared(world, mechanism, level)
                    notebook.theory(what, ours.squared, expected, error=errors[1])
                else:
                    expected = expected_variation(world, mechanism, level, exact=True)
                    notebook.theory(what, ours.variation, expected, error=errors[0])
            y = [one.squared if squared else one.variation for one in rows]
            marks.append(Curve(mechanism, counts, y, colour=colour))
            if not squared:
                kept = [found[mechanism, level, "emp+thr"].variation for _, found in worlds]
                marks.append(Curve(f"{mechanism}, emp+thr", counts, kept, style="dashed", colour=colour))
        what = "squared error" if squared else "total variation"
        notebook.chart(Chart(f"eps = {level:g}, 240,000 people", "attributes", what, marks, y_log=True))
    if not squared:
        least, most = notebook.laboratory.published["mk.fig7.em"].value
        notebook.note(
            f"the paper's EM took {least:,} to {most:,} seconds at 9 attributes and eps = 6; here the maximum has a "
            "closed form"
        )


EXPERIMENTS = (
    Experiment("mk-fig-5", PAPER, "Fig. 5: total variation by epsilon", _figure_5),
    Experiment("mk-fig-6", PAPER, "Fig. 6: total variation by number of sensitive values", _figure_6),
    Experiment("mk-fig-7", PAPER, "Fig. 7: total variation by number of attributes", _figure_7),
    Experiment("mk-fig-10", PAPER, "Fig. 10: squared error by epsilon", _figure_10),
    Experiment(
        "mk-fig-11", PAPER, "Fig. 11: squared error by number of sensitive values", lambda n: _figure_6(n, squared=True)
    ),
    Experiment(
        "mk-fig-12", PAPER, "Fig. 12: squared error by number of attributes", lambda n: _figure_7(n, squared=True)
    ),
)
