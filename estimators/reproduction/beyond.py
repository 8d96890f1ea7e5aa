"""What the papers do not show: splitting a budget, gradual release in every family, and averaging the levels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.noisy_sampling import sampling_ladder
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.inference.inversion import dense_inverse
from estimators.intervals.one_look import two_sided_z
from estimators.mechanism import Specification
from estimators.mechanisms.perturbation import perturb
from estimators.mechanisms.registry import build
from estimators.papers import splitting
from estimators.papers.pitfalls import adaptive_expectation, averaging_rounds
from estimators.reproduction.charts import Bars, Chart, Curve, Level, Mark
from estimators.reproduction.draws import told_rows
from estimators.reproduction.laboratory import Experiment, Laboratory, Notebook
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import tally_of

PAPER = "beyond the papers"
Floats = NDArray[np.float64]


def _splitting(notebook: Notebook) -> None:
    looks, sizes = 3, (2, 3, 4, 6, 8, 12, 16)
    marks: list[Mark] = []
    for budget in (0.5, 1.0, 2.0, 4.0):
        ratios = [splitting.final_ratio(budget, looks, size) for size in sizes]
        marks.append(Curve(f"total epsilon {budget:g}", sizes, ratios))
        notebook.hold("new.splitting.range", min(ratios) > 1, labels=[f"total epsilon {budget:g}"])
    two = [splitting.final_ratio(2.0, looks, size) for size in sizes]
    notebook.hold("new.splitting.two", all(3.5 <= ratio <= 10 for ratio in two))
    for size, ratio in zip(sizes, two, strict=True):
        notebook.alone(f"split over gradual, total epsilon 2, {size} values", ratio)
    size, people, runs = 4, 10_000, notebook.laboratory.runs(2_000, 500)
    truth = np.full((runs, size), people // size)
    for look in range(1, looks + 1):
        for name, channel in (
            ("split", splitting.split_channel(2.0, looks, look, size)),
            ("gradual", splitting.split_channel(2.0 * look / looks, 1, 1, size)),
        ):
            generator = notebook.laboratory.generator(f"splitting-{name}-{look}")
            inverse = dense_inverse(channel)
            assert inverse is not None  # levels are positive
            shares = told_rows(generator, truth, channel) / people @ inverse
            expected = splitting.even_variance(channel) / people
            error = expected * math.sqrt(2 / (runs - 1))
            ours = float(shares[:, 0].var(ddof=1))
            notebook.theory(f"{name}, four values, look {look}: variance, simulated", ours, expected, error=error)
    z = 100 * two_sided_z(0.05)
    widths = {
        "split": [z * math.sqrt(splitting.split_variance(2.0, looks, look, 6) / people) for look in (1, 2, 3)],
        "gradual": [z * math.sqrt(splitting.gradual_variance(2.0, looks, look, 6) / people) for look in (1, 2, 3)],
    }
    bars = Bars(["look 1", "look 2", "look 3"], widths)
    notebook.chart(Chart("95 % band, six values, 10,000 people", "total epsilon 2", "± percentage points", [bars]))
    notebook.chart(
        Chart(
            "Final variance, split over gradual",
            "number of values",
            "ratio after three looks",
            [*marks, Level("equal", 1.0)],
        )
    )


LADDER = (0.5, 1.0, 2.0)
_LETTERS = ("a", "b", "c", "d")
FAMILIES: dict[str, dict[str, tuple[tuple[str, ...], tuple[float, ...], Mapping[str, Any]]]] = {
    "categories": {
        "grr": (_LETTERS, LADDER, {}),
        "ewrr": (_LETTERS, LADDER, {}),
        "sue": (_LETTERS, LADDER, {}),
        "oue": (_LETTERS, LADDER, {}),
        "urr": (_LETTERS, LADDER, {"sensitive": ["a", "c"]}),
        "urap": (_LETTERS, LADDER, {"sensitive": ["a", "c"]}),
        "pum": (_LETTERS, LADDER, {"sensitive": ["a"], "tags": ["home", "work"]}),
    },
    "yes or no, three elements": {
        "warner": (("no", "yes"), LADDER, {}),
        "simmons": (("no", "yes"), LADDER, {}),
        "christofides": (("no", "yes"), LADDER, {}),
        "mangat": (("yes", "no"), LADDER, {}),
        "rr3_dagger": (("none", "plus", "minus"), LADDER, {}),
        "rr3_ddagger": (("none", "plus", "minus"), LADDER, {}),
        "rr3_club": (("none", "plus", "minus"), LADDER, {}),
    },
    "strings, numbers, key-value pairs": {
        "rappor": (("apple", "pear", "plum"), (2.0, 4.0, 8.0), {"bits": 32, "cohorts": 4}),
        "mean": (("age",), LADDER, {"low": 0.0, "high": 100.0}),
        "lpp": (("bread", "milk"), LADDER, {}),
        "pckv_ue": (("bread", "milk"), LADDER, {}),
    },
}
"""All families with a ladder; improved Christofides and k-randomization have one level only."""


def _rounds(laboratory: Laboratory, specification: Specification, runs: int, people: int) -> tuple[Floats, Floats]:
    """Return estimates and their variances [run, rung, quantity] of one fleet; its chains are drawn in every run."""
    simulator, estimator = simulator_of(specification), estimator_of(specification)
    picks = np.arange(people, dtype=np.int64) % simulator.kinds
    values = simulator.simulate(picks, SeededBits(laboratory.seed, "families", "values").words(people))
    shape = (runs, specification.rungs, len(specification.quantities))
    found, variances = np.empty(shape), np.empty(shape)
    for run in range(runs):
        bits = SeededBits(laboratory.seed, "families", specification.name, run)
        drawn = perturb(specification, values, bits)
        for rung in range(specification.rungs):
            estimate = estimator.estimate(tally_of(specification, drawn, rung), method="stratified")
            found[run, rung], variances[run, rung] = estimate.value, estimate.variance
    return found, variances


_VISIBLE = ("line", "dashed", "points")
"""Style of a curve by the number of those below it: all are seen."""


def _families(notebook: Notebook) -> None:
    """Hold for every family: the last answer has all the information, and each rung is sharper than the one below."""
    runs, people = notebook.laboratory.runs(200, 50), 4_000
    for kind, families in FAMILIES.items():
        marks: list[Curve] = []
        for name, (labels, ladder, parameters) in families.items():
            specification = build(name, labels, ladder, **parameters)
            found, variances = _rounds(notebook.laboratory, specification, runs, people)
            width = specification.quantities[0].high - specification.quantities[0].low
            deviation = np.sqrt(np.nanmean(variances[:, :, 0], axis=0)) / width
            alike = sum(_coincide(earlier, ladder, 100 * deviation) for earlier in marks)
            marks.append(Curve(name, ladder, 100 * deviation, style=_VISIBLE[alike]))
            notebook.hold("new.families.sharper", bool(np.all(np.diff(deviation) < 0)), labels=[name])
            for rung, level in enumerate(ladder):
                mine = float(np.std(found[:, rung, 0], ddof=1)) / width
                noise = float(deviation[rung]) / math.sqrt(2 * (runs - 1))
                what = f"{name}, eps = {level:g}: deviation of the first quantity, simulated"
                notebook.theory(
                    what, mine, float(deviation[rung]), error=noise, tolerance=0.05 * float(deviation[rung])
                )
            slope, error = _slope(found[:, 0], found[:, -1])
            notebook.theory(f"{name}: regression of the first on the last answer", slope, 1.0, error=error)
        title = f"One chain, {people:,} people: {kind}"
        notebook.chart(Chart(title, "epsilon of the rung", "deviation, % of the range", marks, x_log=True, y_log=True))


def _coincide(earlier: Curve, ladder: Sequence[float], deviation: Floats) -> bool:
    """Tell whether a curve would hide an earlier one."""
    return len(ladder) == np.size(earlier.x) and np.allclose(earlier.y, deviation, rtol=0.05)


def _slope(early: Floats, late: Floats) -> tuple[float, float]:
    """Return slope and standard error of early on late estimates, over all quantities: 1 if late ones suffice."""
    usable = np.isfinite(early).all(axis=0) & np.isfinite(late).all(axis=0)
    x, y = (part[:, usable] - part[:, usable].mean(axis=0) for part in (late, early))
    # Quantities have different units: each weighs by its own precision.
    weight = 1 / np.maximum((y - x).var(axis=0), 1e-300)
    total = float((weight * (x * x).sum(axis=0)).sum())
    return float((weight * (x * y).sum(axis=0)).sum()) / total, 1.3 / math.sqrt(total)


def _averaging(notebook: Notebook) -> None:
    ladder, people, ones = sampling_ladder(1.0, 0.5, 10), 1_000, 600
    theory = averaging_rounds(ladder, people)
    rows = {
        "last answer": (theory.last, theory.last),
        "equal average": (theory.equal_true, theory.equal_claimed),
        "weighted average": (theory.weighted_true, theory.weighted_claimed),
    }
    notebook.hold("new.averaging", [value for pair in rows.values() for value in pair], labels=_AVERAGES)
    runs = notebook.laboratory.runs(4_000, 1_000)
    chain = Chain.retention(ladder, 2)
    values = np.repeat([0, 1], [people - ones, ones])
    found = np.empty((runs, len(ladder)))
    for run in range(runs):
        answers = chain.draw(values, SeededBits(notebook.laboratory.seed, "averaging", run))
        found[run] = [
            c.unbias(np.bincount(row, minlength=2), people)[1]
            for c, row in zip(chain.retention_channels, answers, strict=True)
        ]
    variances = np.diag(theory.covariance)
    weights = {
        "last answer": np.eye(len(ladder))[-1],
        "equal average": np.full(len(ladder), 1 / len(ladder)),
        "weighted average": (1 / variances) / np.sum(1 / variances),
    }
    covered = {}
    for name, (true, claimed) in rows.items():
        mine = found @ weights[name]
        noise = true * math.sqrt(2 / (runs - 1))
        notebook.theory(f"{name}: variance, simulated", float(mine.var(ddof=1)), true, error=noise)
        covered[name] = float(np.mean(np.abs(mine - ones / people) <= 2 * math.sqrt(claimed)))
    errors = [math.sqrt(rate * (1 - rate) / runs) for rate in covered.values()]
    notebook.hold("new.averaging.coverage", list(covered.values()), labels=list(covered), error=errors)
    notebook.hold("new.adaptive", adaptive_expectation(0.3, 0.5, 2.0))
    bars = Bars(list(rows), {"true": [t for t, _ in rows.values()], "claimed": [c for _, c in rows.values()]})
    notebook.chart(Chart("Ten answers of each of 1,000 people", "", "variance", [bars]))
    share = Bars(list(covered), {"covered": [100 * rate for rate in covered.values()]})
    notebook.chart(Chart("How often two deviations cover the truth", "", "%", [share, Level("promised", 95.45)]))


_AVERAGES = [
    f"{name}, {what}" for name in ("last answer", "equal average", "weighted average") for what in ("true", "claimed")
]

EXPERIMENTS = (
    Experiment("new-splitting", PAPER, "Early and exact against splitting the budget", _splitting),
    Experiment("new-families", PAPER, "Gradual release in every family", _families),
    Experiment("new-averaging", PAPER, "The damage of averaging levels", _averaging),
)
