"""Murakami & Kawamoto, *Utility-Optimized LDP*: personal sets (Fig. 8, 13, Table 1), worked numbers, real stand-ins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from estimators.channels.response import REAL
from estimators.inference.inversion import bit_estimates
from estimators.papers.utility_optimized import personal_error_bound, personal_estimates, personal_shares
from estimators.planning import losses
from estimators.planning.odds import highest_suspicion
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.draws import people, told_bits, told_symbols
from estimators.reproduction.laboratory import Experiment, Laboratory, Notebook
from estimators.reproduction.sensitive_sets import (
    CENSUS,
    CHECK_INS,
    MECHANISMS,
    PAPER,
    World,
    errors_of,
    estimate_all,
    expected_variation,
    responses,
    told,
    zipf,
)

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, math.log(625), 8.0)
KNOWLEDGE = ("I", "II", "III")


@dataclass(frozen=True)
class PersonalWorld:
    """Shares over (sensitive, tags, other values), and how each tag is spread over the other values."""

    combined: Floats
    sensitive: int
    spread: tuple[Floats, ...]
    users: int

    @property
    def shares(self) -> Floats:
        """True shares of (sensitive, other) values."""
        return personal_shares(self.combined, self.sensitive, len(self.spread), list(self.spread))

    def backgrounds(self, knowledge: str) -> list[Floats | None]:
        """Return what the server knows of each tag: I nothing, II half of the truth mixed with even shares, III it."""
        if knowledge == "I":
            return [None] * len(self.spread)
        mixed = 0.5 if knowledge == "II" else 1.0
        return [mixed * law + (1 - mixed) / len(law) for law in self.spread]


def _tagged(laboratory: Laboratory) -> tuple[float, float]:
    """Return the shares of check-ins at home and at work."""
    home, work, all_of_them = laboratory.published["mk.table1.tags"].value
    return home / all_of_them, work / all_of_them


def _synthetic(laboratory: Laboratory) -> PersonalWorld:
    """Return a world of the size of Table 1: 625 places, 15 of them sensitive, and its shares of home and work."""
    home, work = _tagged(laboratory)
    rest = CHECK_INS.shares * (1 - home - work)
    places = zipf(610)
    spread = (np.roll(places, 100), np.roll(places, 300))
    combined = np.concatenate([rest[:15], [home, work], rest[15:]])
    return PersonalWorld(combined, 15, spread, 179_527)


@dataclass(frozen=True)
class Personal:
    """Mean over runs: l1 error, both terms of Theorem 1, squared error; and how often the theorem held."""

    error: float
    first: float
    second: float
    squared: float
    held: float


def _personal(laboratory: Laboratory, world: PersonalWorld, mechanism: str, knowledge: str, level: float) -> Personal:
    """Simulate the personalised mechanism and spread the tags with what the server knows."""
    tags, runs = len(world.spread), laboratory.runs(100, 20)
    protected = world.sensitive + tags
    generator = laboratory.generator(f"mk-pum-{len(world.combined)}-{mechanism}-{level:.4f}")
    truth = people(generator, world.combined, world.users, runs)
    known, shares = world.backgrounds(knowledge), world.shares
    rows = []
    if mechanism == "uRR":
        counts = told_symbols(generator, truth, level, protected)
        found = [personal_estimates(row, world.sensitive, tags, known, level)[1].combined for row in counts]
    else:
        bits = told_bits(generator, truth, level, protected)
        linear = bit_estimates(*responses(mechanism, level, protected, len(world.combined)), bits, world.users)[0]
        found = list(linear)
    for combined in found:
        spread = personal_shares(combined, world.sensitive, tags, known)
        first = float(np.abs(combined - world.combined).sum())
        second = _second_term(world, combined, known)
        error = np.abs(spread - shares)
        rows.append((error.sum(), first, second, (error**2).sum(), error.sum() <= first + second + 1e-12))
    return Personal(*(float(column) for column in np.mean(np.array(rows, dtype=np.float64), axis=0)))


def _second_term(world: PersonalWorld, combined: Floats, known: list[Floats | None]) -> float:
    """Return what wrong knowledge of the tags can add at most (Theorem 1, with absolute values)."""
    others = combined[world.sensitive + len(world.spread) :]
    total = 0.0
    for tag, (truth, assumed) in enumerate(zip(world.spread, known, strict=True)):
        law = others / others.sum() if assumed is None else assumed
        total += abs(float(combined[world.sensitive + tag])) * float(np.abs(law - truth).sum())
    return total


def _figure_8(notebook: Notebook, *, squared: bool = False) -> None:
    """Show the error by level and knowledge; `squared`: Fig. 13."""
    world = _synthetic(notebook.laboratory)
    notebook.note(
        "synthetic places; knowledge II is half of the truth mixed with even shares, a stand-in for points of interest"
    )
    for mechanism in ("uRR", "uRAP"):
        marks: list[Mark] = []
        for knowledge in KNOWLEDGE:
            found = [
                notebook.laboratory.once(
                    f"mk-8-{mechanism}-{knowledge}-{level}",
                    partial(_personal, notebook.laboratory, world, mechanism, knowledge, level),
                )
                for level in LEVELS
            ]
            for level, one in zip(LEVELS, found, strict=True):
                value = one.squared if squared else one.error / 2
                what = "squared error" if squared else "total variation"
                notebook.alone(f"{mechanism}, knowledge {knowledge}, eps = {level:.4g}: {what}", value)
            y = [one.squared if squared else one.error / 2 for one in found]
            marks.append(Curve(f"knowledge {knowledge}", LEVELS, y))
            if not squared:
                held = all(one.held == 1 for one in found)
                notebook.hold("mk.table1.bound", held, labels=[f"{mechanism}, knowledge {knowledge}, every run"])
        title, y_label = f"{mechanism} with personal sets", "squared error" if squared else "total variation"
        notebook.chart(Chart(title, "epsilon", y_label, marks, x_log=True, y_log=True))


def _table_1(notebook: Notebook) -> None:
    world, level = _synthetic(notebook.laboratory), math.log(625)
    labels = ["l1", "first term", "second term"]
    notebook.note("published: check-ins in Manhattan, half of them drawn without replacement; ours: synthetic places")
    for mechanism in ("uRR", "uRAP"):
        found = {k: _personal(notebook.laboratory, world, mechanism, k, level) for k in KNOWLEDGE}
        for knowledge, one in found.items():
            ours = [100 * one.error, 100 * one.first, 100 * one.second]
            notebook.beside(f"mk.table1.{mechanism}.{knowledge}", ours, labels)
        for whose, rows in (
            ("printed", [notebook.laboratory.published[f"mk.table1.{mechanism}.{k}"].value for k in KNOWLEDGE]),
            ("ours", [[one.error, one.first, one.second] for one in found.values()]),
        ):
            bounded = all(error <= first + second for error, first, second in rows)
            notebook.hold("mk.table1.bound", bounded, labels=[f"{mechanism}, {whose}"])
            notebook.hold("mk.table1.order", rows[2][0] < rows[1][0] < rows[0][0], labels=[f"{mechanism}, {whose}"])
        marks: list[Mark] = [
            Curve("error, ours", [1, 2, 3], [100 * one.error for one in found.values()]),
            Curve("both terms, ours", [1, 2, 3], [100 * (one.first + one.second) for one in found.values()], "dashed"),
            Curve(
                "error, printed (other data)",
                [1, 2, 3],
                [notebook.laboratory.published[f"mk.table1.{mechanism}.{k}"].value[0] for k in KNOWLEDGE],
                style="published",
            ),
        ]
        notebook.chart(Chart(f"{mechanism}, eps = ln 625", "knowledge I, II, III", "l1 error, hundredths", marks))


def _worked(notebook: Notebook) -> None:
    bound = personal_error_bound([0.5, 0.5, 0.0], [0.52, 0.52, -0.04], [1.0, 0.0], [0.0, 1.0])
    notebook.hold("mk.thm1", bound.bound)
    notebook.hold("mk.thm1.holds", bound.error <= bound.printed)
    users, even = CHECK_INS.users, np.full(625, 1 / 625)
    loss = losses.l1_urap(even, 625, math.log(625), users).approximate / losses.l1_without_privacy(625, users)
    notebook.hold("mk.sec43", loss)
    crude = [
        losses.l1_urr_high_privacy(15, 0.1, users) / losses.l1_urr_worst(625, 15, 0.1, users),
        losses.l1_urap_high_privacy(15, 0.1, users) / losses.l1_urap_worst(625, 15, 0.1, users),
    ]
    notebook.hold("mk.eq16", crude, labels=["uRR", "uRAP"])
    single = World("one sensitive value", CHECK_INS.shares, 1, users)
    notebook.hold("mk.few", expected_variation(single, "uRAP", 0.1) < expected_variation(single, "uRR", 0.1))
    gains, levels = [], (2.0, 4.0, math.log(400))
    for level in levels:
        best = losses.best_theta(CENSUS.shares, CENSUS.sensitive, level, CENSUS.users)
        tuned = losses.l1_urap(CENSUS.shares, CENSUS.sensitive, level, CENSUS.users, theta=best).approximate
        gains.append(2 * expected_variation(CENSUS, "uRAP", level) / tuned - 1)
    notebook.hold("mk.theta", gains[-1] < 0.01)
    notebook.hold("mk.theta.gain", gains, labels=[f"eps = {level:.4g}" for level in levels])
    home, _ = _tagged(notebook.laboratory)
    notebook.hold("mk.posterior", highest_suspicion(home, math.log(625)))
    notebook.hold("mk.posterior.little", highest_suspicion(home, math.log(625)) < 2 * home)
    thetas = np.linspace(0.05, 0.95, 60)
    marks: list[Mark] = []
    for level in (0.5, 2.0, 4.0):
        y = [losses.l1_urap(CENSUS.shares, 76, level, CENSUS.users, theta=float(t)).total_variation for t in thetas]
        marks.append(Curve(f"eps = {level:g}", thetas, y, colour=len(marks) // 2))
        default = REAL.urap(level).sensitive.truth
        at = expected_variation(CENSUS, "uRAP", level)
        marks.append(
            Curve("" if level > 0.5 else "default theta", [default], [at], "published", colour=len(marks) // 2)
        )
    notebook.chart(Chart("uRAP's theta, census size", "theta", "total variation", marks, y_log=True))


def _half_sampled(notebook: Notebook, name: str, counts: NDArray[np.int64], sensitive: int, title: str) -> None:
    """Repeat Fig. 5 with real counts: half of the people answer, drawn without replacement, as in the paper."""
    population = int(counts.sum())
    world = World(name, counts / population, sensitive, population // 2)
    runs, levels = notebook.laboratory.runs(100, 20), (0.1, 0.5, 1.0, 2.0, 4.0, math.log(world.size), 8.0)
    generator = notebook.laboratory.generator(name)
    truth = generator.multivariate_hypergeometric(counts, world.users, size=runs, method="marginals")
    sampled = errors_of(truth / world.users, world.shares).variation
    exact = losses.l1_urr(world.shares, world.size, 40.0, world.users).exact / 2
    notebook.hold("mk.half", sampled / exact, labels=[title])
    notebook.alone(f"{title}: total variation without privacy", sampled)
    marks: list[Mark] = []
    variations: dict[tuple[str, float], float] = {}
    for colour, mechanism in enumerate(MECHANISMS):
        curves: dict[str, list[float]] = {"emp": [], "emp+thr": []}
        for level in levels:
            seen = told(generator, truth, mechanism, level, world.pool(mechanism))
            shares = estimate_all(seen, world.users, mechanism, level, world.pool(mechanism))
            for way, found in curves.items():
                found.append(errors_of(shares[way], world.shares).variation)
            variations[mechanism, level] = curves["emp"][-1]
            notebook.alone(f"{mechanism}, eps = {level:.4g}: emp", curves["emp"][-1])
            notebook.alone(f"{mechanism}, eps = {level:.4g}: emp+thr", curves["emp+thr"][-1])
        marks.append(Curve(mechanism, levels, curves["emp"], colour=colour))
        marks.append(Curve(f"{mechanism}, emp+thr", levels, curves["emp+thr"], style="dashed", colour=colour))
    better = max(variations["uRR", 0.1], variations["uRAP", 0.1]) < variations["RAP", 0.1]
    notebook.hold("mk.fig5.orders", better, labels=[title])
    notebook.hold("mk.fig5.urap", variations["uRAP", 0.1] < variations["uRR", 0.1], labels=[f"{title}, eps = 0.1"])
    marks.append(Level("no privacy", sampled))
    panel = f"{title}: {world.size} values, {sensitive} sensitive"
    notebook.chart(Chart(panel, "epsilon", "total variation", marks, x_log=True, y_log=True))


def _sensitive_first(counts: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate([counts[chosen], counts[~chosen]])


def _adult(notebook: Notebook) -> None:
    sample = notebook.sample("adult")
    if sample is not None:
        chosen = np.asarray(sample.columns["sensitive"])
        notebook.note("sensitive: the cells of divorced people")
        counts = _sensitive_first(np.asarray(sample.columns["counts"]), chosen)
        _half_sampled(notebook, "mk-adult", counts, int(chosen.sum()), "UCI Adult")


def _stops(notebook: Notebook) -> None:
    sample = notebook.sample("MplsStops")
    if sample is not None:
        chosen = np.zeros(625, dtype=bool)
        chosen[np.argsort(-np.asarray(sample.columns["searches"]), kind="stable")[:15]] = True
        notebook.note("sensitive: the 15 cells with the most searches of persons")
        counts = _sensitive_first(np.asarray(sample.columns["cells"]), chosen)
        _half_sampled(notebook, "mk-stops", counts, 15, "Minneapolis stops")


def _flights(notebook: Notebook) -> None:
    sample = notebook.sample("flights")
    if sample is None:
        return
    places, plane = np.asarray(sample.columns["place"]), np.asarray(sample.columns["plane"])
    size = int(places.max()) + 1
    visits = np.bincount(places, minlength=size)
    order = np.argsort(visits, kind="stable")
    rank = np.empty(size, dtype=np.int64)
    rank[order] = np.arange(size)
    sensitive = 5
    notebook.note(
        "a plane stands for a person, its commonest destination for home, the next for work; sensitive: the five rarest"
    )
    at = rank[places]
    tags = [at == rank[np.asarray(sample.columns[tag])[plane]] for tag in ("home", "work")]
    tags = [(tag & (at >= sensitive)) for tag in tags]
    plain = ~(tags[0] | tags[1])
    spread = [np.bincount(at[tag] - sensitive, minlength=size - sensitive) for tag in tags]
    rest = np.bincount(at[plain], minlength=size)
    combined = np.concatenate([rest[:sensitive], [law.sum() for law in spread], rest[sensitive:]]) / len(places)
    world = PersonalWorld(combined, sensitive, tuple(law / law.sum() for law in spread), len(places) // 2)
    marks: list[Mark] = []
    levels = (0.5, 1.0, 2.0, 4.0, math.log(size))
    last = {}
    for knowledge in KNOWLEDGE:
        found = [_personal(notebook.laboratory, world, "uRR", knowledge, level) for level in levels]
        marks.append(Curve(f"knowledge {knowledge}", levels, [one.error / 2 for one in found]))
        last[knowledge] = found[-1].error
        held = all(one.held == 1 for one in found)
        notebook.hold("mk.table1.bound", held, labels=[f"flights, knowledge {knowledge}, every run"])
        notebook.alone(f"knowledge {knowledge}, eps = ln {size}: total variation", found[-1].error / 2)
    notebook.hold("mk.table1.order", last["III"] < last["II"] < last["I"], labels=["flights"])
    title = f"Destinations of planes: {size} places, uRR"
    notebook.chart(Chart(title, "epsilon", "total variation", marks, x_log=True, y_log=True))


EXPERIMENTS = (
    Experiment("mk-fig-8", PAPER, "Fig. 8: personal sets, total variation by knowledge", _figure_8),
    Experiment("mk-fig-13", PAPER, "Fig. 13: personal sets, squared error", lambda n: _figure_8(n, squared=True)),
    Experiment("mk-table-1", PAPER, "Table 1: both terms of Theorem 1", _table_1),
    Experiment("mk-worked", PAPER, "Worked numbers and claims", _worked),
    Experiment("mk-adult", PAPER, "Fig. 5 with UCI Adult", _adult),
    Experiment("mk-stops", PAPER, "Fig. 5 with police stops in Minneapolis", _stops),
    Experiment("mk-flights", PAPER, "Fig. 8 with the destinations of planes", _flights),
)
