"""Pan, *Gradual Release*: tables 1 to 3, figures 1a to 1c and the worked numbers, all in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from estimators.channels.moments import binary_variance
from estimators.channels.noisy_sampling import sampling_ladder
from estimators.channels.response import REAL
from estimators.papers import noisy_sampling
from estimators.papers.closed_forms import mean_estimate
from estimators.papers.gradual_release import Step, step, step_guarantee
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.laboratory import Experiment, Notebook

PAPER = "Pan"
PAIRS = ((0.1, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, 10.0))
SIZES = range(3, 11)
PERMANENT, SAMPLE = 1.0, 0.5
"""Levels of the permanent bit and of one noisy sample in the paper's figures and in its first experiment."""


def _table(number: int, symbol: str, entry: Callable[[Step], float | None]) -> Experiment:
    """Return the experiment of one of tables 1 to 3."""

    def run(notebook: Notebook) -> None:
        ours = {(m, pair): float(entry(step(*pair, m)) or 0.0) for m in SIZES for pair in PAIRS}
        labels = [f"{lower:g} -> {upper:g}" for lower, upper in PAIRS]
        marks: list[Mark] = []
        for m in SIZES:
            row, key = [ours[m, pair] for pair in PAIRS], f"pan.table{number}.m{m}"
            names = [f"m = {m}, {label}" for label in labels]
            if key in notebook.laboratory.published:
                notebook.hold(key, row, labels=names)
            else:
                for name, value in zip(names, row, strict=True):
                    notebook.alone(f"{symbol}, {name}", value)
        for colour, (pair, label) in enumerate(zip(PAIRS, labels, strict=True)):
            marks.append(Curve(label, list(SIZES), [ours[m, pair] for m in SIZES], colour=colour))
            known = [m for m in SIZES if f"pan.table{number}.m{m}" in notebook.laboratory.published]
            printed = [notebook.laboratory.published[f"pan.table{number}.m{m}"].value[colour] for m in known]
            marks.append(Curve("" if colour else "printed", known, printed, style="published", colour=colour))
        notebook.chart(Chart(f"{symbol} by number of values", "number of values m", "probability", marks))

    return Experiment(f"pan-table-{number}", PAPER, f"Table {number}: {symbol} for four pairs of levels", run)


def _figure_1a(notebook: Notebook) -> None:
    rounds = np.arange(1, 21)
    marks: list[Mark] = [Level("level of the permanent bit", PERMANENT)]
    for sample in (0.1, 0.2, 0.5, 1.0):
        levels = sampling_ladder(PERMANENT, sample, len(rounds))
        marks.append(Curve(f"samples at {sample:g}", rounds, levels))
        notebook.alone(f"level after 20 samples at {sample:g}", levels[-1])
    ladder = sampling_ladder(PERMANENT, SAMPLE, 10)
    notebook.hold("pan.exp1.levels", ladder, labels=[f"K = {k}" for k in range(1, 11)])
    notebook.hold("pan.fig1a.limit", max(sampling_ladder(PERMANENT, 1.0, 20)) < PERMANENT)
    notebook.chart(Chart("Level that K noisy samples cost", "samples K", "epsilon", marks))


def _figure_1b(notebook: Notebook) -> None:
    rounds = np.arange(1, 21)
    marks: list[Mark] = []
    for colour, sample in enumerate((0.1, 0.5, 1.0)):
        curve = noisy_sampling.sampling_curve(PERMANENT, sample, len(rounds))
        marks += [
            Curve(f"noisy sampling, samples at {sample:g}", rounds, curve.sampling, style="dashed", colour=colour),
            Curve(f"relaxation, samples at {sample:g}", rounds, curve.relaxation, colour=colour),
        ]
        better = [ours < theirs for ours, theirs in zip(curve.relaxation[1:], curve.sampling[1:], strict=True)]
        notebook.hold("pan.fig1b.better", all(better), labels=[f"samples at {sample:g}, K = 2 to 20"])
        first = curve.relaxation[0] < curve.sampling[0] * (1 - 1e-12)
        notebook.hold("pan.fig1b.first", first, labels=[f"samples at {sample:g}, K = 1"])
    ten = noisy_sampling.compare_sampling(PERMANENT, SAMPLE, 10, 1, 0.5)
    notebook.hold("pan.fig1b.ten", [ten.relaxation, ten.linear, ten.weighted, ten.majority], labels=_DECODERS)
    notebook.hold("pan.appendix-f", noisy_sampling.sampling_variance(PERMANENT, SAMPLE, 1, 1))
    chart = Chart("Variance for one person at equal epsilon", "samples K", "variance, N = 1", marks, y_log=True)
    notebook.chart(chart)


_DECODERS = ["relaxation", "linear decoder", "best weights", "majority"]


def _figure_1c(notebook: Notebook) -> None:
    marks: list[Mark] = []
    for rounds in (2, 5, 10, 20):
        ladder = noisy_sampling.linear_ladder(rounds)
        variances = [binary_variance(level, 1) for level in ladder]
        marks.append(Curve(f"{rounds} rounds", np.arange(1, rounds + 1), variances))
        notebook.alone(f"variance after round 1 of {rounds}", variances[0])
    five = [binary_variance(level, 1) for level in noisy_sampling.linear_ladder(5)]
    notebook.hold("pan.fig1c.five", five, labels=[f"round {j}" for j in range(1, 6)])
    notebook.note("the levels of this figure are read as 0.1 + 0.9 (j - 1) / (K - 1)")
    notebook.chart(Chart("Linear schedules from 0.1 to 1", "round", "variance, N = 1", marks, y_log=True))


def _worked(notebook: Notebook) -> None:
    notebook.hold("pan.sec41", math.exp(step_guarantee(1.0, 2.0, 2)))
    notebook.hold("pan.sec42", [REAL.grr(1.0, 2).slope, REAL.grr(2.0, 2).slope], labels=["eps = 1", "eps = 2"])
    notebook.hold("pan.sec42.three", [REAL.grr(1.0, 3).slope, REAL.grr(2.0, 3).slope], labels=["eps = 1", "eps = 2"])
    notebook.hold("pan.intro", binary_variance(1.0, 1) / 2 > binary_variance(2.0, 1))
    notebook.hold("pan.intro.variances", [binary_variance(1.0, 1) / 2, binary_variance(2.0, 1)], labels=["split", "RR"])
    ladder = sampling_ladder(PERMANENT, SAMPLE, 10)
    notebook.hold("pan.eq67", math.sqrt(binary_variance(ladder[-1], 1000)))
    users, epsilon, low, high = 100_000, 1.0, 2.0, 5.0
    generator, runs = notebook.laboratory.generator("pan-worked"), notebook.laboratory.runs(400, 100)
    printed = notebook.laboratory.published["pan.eq70"]
    rounded = round(users * (printed.right - low) / (high - low))
    bit = REAL.grr(epsilon, 2)
    told = generator.binomial(rounded, bit.truth, size=runs) + generator.binomial(users - rounded, bit.lie, size=runs)
    means = np.array([mean_estimate(int(count), users, epsilon, low, high) or math.nan for count in told])
    notebook.hold("pan.eq70", float(means.mean()), error=float(means.std(ddof=1) / math.sqrt(runs)))
    marks: list[Mark] = [
        Curve("each run", np.arange(100), means[:100], style="points"),
        Level("truth", printed.right),
        Level("Eq. 70", printed.value),
    ]
    notebook.chart(Chart("A mean on [2, 5], 100,000 people, eps = 1", "run", "estimated mean", marks))


EXPERIMENTS = (
    _table(1, "Pr(o2 = x | o1 = x)", lambda moves: moves.truth_to_truth),
    _table(2, "Pr(o2 = b | o1 = b)", lambda moves: moves.lie_to_same),
    _table(3, "Pr(o2 = x | o1 = b)", lambda moves: moves.lie_to_truth),
    Experiment("pan-fig-1a", PAPER, "Fig. 1a: what K noisy samples cost", _figure_1a),
    Experiment("pan-fig-1b", PAPER, "Fig. 1b: relaxation against noisy sampling at equal epsilon", _figure_1b),
    Experiment("pan-fig-1c", PAPER, "Fig. 1c: variance along linear schedules", _figure_1c),
    Experiment("pan-worked", PAPER, "Sections 1, 4, 5, 6: worked numbers and misprinted formulas", _worked),
)
