"""Ma & Wang, *Bounds and Applications*: the corollaries, variances by simulation, and errors of key-value data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.channels.rows import club_rows, loss_of_rows
from estimators.inference.key_value import (
    KeyValueEstimate,
    KeyValueParameters,
    estimate_key_values,
    graph_averages,
    lpp_loss,
)
from estimators.inference.likelihood import water_fill
from estimators.papers import key_value, three_element
from estimators.planning.accounting import key_value_cost
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.draws import told_rows
from estimators.reproduction.laboratory import Experiment, Notebook, Sample

PAPER = "Ma & Wang"
Floats = NDArray[np.float64]
SHARES = np.array([0.5, 0.3, 0.2])
MEMBERS: dict[str, Callable[[float], Floats]] = {
    "EWRR3": lambda epsilon: three_element.equal_weights_rows(three_element.equal_weights_probability(3, epsilon)),
    "RR3 dagger": lambda epsilon: _dagger(epsilon),
    "RR3 double dagger": lambda epsilon: key_value.lpp_parameters(*key_value.lpp_split(epsilon)).rows,
}
"""Channels by level; of RR3-dagger the one midway between EWRR3 and the one that cannot tell two values apart."""


def _dagger(epsilon: float) -> Floats:
    p2 = (1 / 3 + three_element.equal_weights_probability(3, epsilon)) / 2
    return three_element.dagger_rows(three_element.dagger_partner(epsilon, p2), p2)


def _estimates(notebook: Notebook, name: str, rows: Floats, people: int, runs: int) -> Floats:
    """Return simulated linear estimates [run, value] of independent people."""
    generator = notebook.laboratory.generator(name)
    truth = generator.multinomial(people, SHARES, size=runs)
    told = told_rows(generator, truth, rows)
    return np.array([three_element.linear_estimate(rows, counts.tolist()).shares for counts in told])


def _corollaries(notebook: Notebook) -> None:
    notebook.hold("mw.eq27", three_element.equal_weights_variance(4, 0.45, 0.35, 1))
    runs = notebook.laboratory.runs(4_000, 1_000)
    for key, rows in (
        ("mw.eq28", three_element.dagger_rows(0.6, 0.8)),
        ("mw.eq30", three_element.ddagger_rows(0.8, 0.7)),
    ):
        mine = _estimates(notebook, key, rows, 10_000, runs)[:, 1]
        notebook.hold(key, float(mine.mean()), error=float(mine.std(ddof=1) / math.sqrt(runs)))
    rows = club_rows(0.8, 0.7, 0.75)
    expected = float(three_element.linear_covariances(rows, SHARES, 1).sampling[1, 1])
    notebook.hold("mw.sec32", expected)
    mine = 10_000 * _estimates(notebook, "mw.sec32", rows, 10_000, runs)[:, 1].var(ddof=1)
    notebook.theory("the same, simulated", float(mine), expected, error=expected * math.sqrt(2 / (runs - 1)))
    notebook.hold("mw.thm1", _mean_of_maximum(three_element.equal_weights_rows(0.5), np.array([0.0, 0.5, 0.5]), 10)[0])
    notebook.hold("mw.thm4", loss_of_rows(three_element.dagger_rows(0.35, 0.7667).tolist()))
    notebook.hold("mw.eq6", graph_averages(4, [2, 3, 2], [0.5, -0.25, 1.0]).degree)
    for key, levels in (("mw.lemma2.a", (0.1, 2.0)), ("mw.lemma2.b", (0.69, 3.0)), ("mw.lemma2.c", (0.2, 3.0))):
        notebook.hold(key, lpp_loss(*levels))
    a, b, p = 0.5, key_value.other_convention(0.8), 0.7
    notebook.hold("mw.eq56", key_value_cost(*key_value.pckv_losses(a, b, p)))
    notebook.hold("mw.eq56.matrix", key_value.pckv_position_loss(a, b, p))
    gradient = three_element.dagger_gradient(0.6, 0.45, 0.5, 1)
    notebook.hold("mw.eq40", list(gradient), labels=["by p1", "by p2"])
    marks: list[Mark] = []
    fine = np.linspace(0.2, 4, 60)
    for size in (3, 5, 10):
        high, low = (
            [three_element.equal_weights_variance(size, choose(size, float(level)), 0.2, 1) for level in fine]
            for choose in (three_element.equal_weights_probability, three_element.unlikely_truth_probability)
        )
        notebook.hold("mw.eq34", bool(np.all(np.subtract(low, high) >= 0)), labels=[f"{size} values"])
        marks.append(Curve(f"n = {size}, truth likeliest", fine, high, colour=len(marks) // 2))
        marks.append(Curve(f"n = {size}, truth rarest", fine, low, style="dashed", colour=len(marks) // 2))
    notebook.chart(
        Chart("EWRR_n: both solutions of Eq. 34 to 38", "epsilon", "variance, one person", marks, y_log=True)
    )


def _mean_of_maximum(rows: Floats, shares: Floats, people: int) -> Floats:
    """Return the exact expectation of the maximum-likelihood shares of three values, by all possible counts."""
    answers = shares @ rows
    floor = np.full(3, rows[0, 1] / (rows[0, 0] - rows[0, 1]))
    mean = np.zeros(3)
    for first in range(people + 1):
        for second in range(people + 1 - first):
            counts = np.array([first, second, people - first - second], dtype=np.float64)
            ways = math.comb(people, first) * math.comb(people - first, second)
            found = water_fill(counts, floor)
            assert found is not None  # people answered
            mean += ways * float(np.prod(answers**counts)) * found
    return mean


def _figure_2(notebook: Notebook) -> None:
    notebook.note("what Fig. 2 of the paper plots is not in the notes at hand; this is the variance of three members")
    levels, people = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0]), 1_000
    runs = notebook.laboratory.runs(2_000, 400)
    panels: dict[int, list[Mark]] = {0: [], 1: []}
    for colour, (name, channel) in enumerate(MEMBERS.items()):
        theory = np.array([three_element.linear_covariances(channel(e), SHARES, people).sampling for e in levels])
        found = [_estimates(notebook, f"mw-2-{name}-{e}", channel(float(e)), people, runs) for e in levels]
        for value, marks in panels.items():
            expected = theory[:, value, value]
            mine = np.array([shares[:, value].var(ddof=1) for shares in found])
            for level, ours, other in zip(levels, mine, expected, strict=True):
                error = other * math.sqrt(2 / (runs - 1))
                notebook.theory(
                    f"{name}, eps = {level:g}: variance of share {value}", float(ours), float(other), error=error
                )
            marks.append(Curve(name, levels, expected, colour=colour))
            marks.append(Curve("", levels, mine, style="points", colour=colour))
    for value, marks in panels.items():
        what = "no key" if value == 0 else "+1"
        notebook.chart(Chart(f'Share of "{what}", 1,000 people', "epsilon", "variance", marks, y_log=True))


def _key_value(notebook: Notebook) -> None:
    """Table of errors: 100,000 people, ten keys, each person with three of them, values with mean 0.4."""
    people, keys, held, mean = 100_000, 10, 3, 0.4
    share = held / keys
    runs = notebook.laboratory.runs(1_000, 200)
    curves: dict[str, list[tuple[float, float]]] = {}
    levels = (0.5, 1.0, 2.0, 4.0)
    for epsilon in levels:
        half = key_value.lpp_parameters(epsilon / 2, epsilon / 2)
        ways = {
            "LPP, halves": (half, people // keys, 1),
            "LPP, best split": (key_value.lpp_parameters(*key_value.lpp_split(epsilon)), people // keys, 1),
            "PCKV-UE": (key_value.pckv_parameters(*key_value.pckv_allocation(epsilon)), people, held),
        }
        for name, (parameters, asked, padding) in ways.items():
            theory = key_value.key_value_theory(share / padding, share * mean / padding, asked, parameters).scaled(
                padding
            )
            found = _told(notebook, f"mw-kv-{name}-{epsilon}", parameters, asked, share / padding, mean, runs).scaled(
                padding
            )
            expected = (math.sqrt(float(theory.share_variance)), math.sqrt(float(theory.mean_variance)))
            curves.setdefault(name, []).append(expected)
            _compare_errors(notebook, f"{name}, eps = {epsilon:g}", found, share, expected, runs)
        gain = (curves["LPP, halves"][-1][1] / curves["LPP, best split"][-1][1]) ** 2
        notebook.alone(f"eps = {epsilon:g}: variance of the mean, halves over best split", gain)
        if epsilon in (0.5, 1.0):
            notebook.hold("mw.split", 3.0 <= gain <= 4.0, labels=[f"eps = {epsilon:g}"])
    for place, what in enumerate(("share of a key", "mean of its values")):
        marks: list[Mark] = [Curve(name, levels, [pair[place] for pair in pairs]) for name, pairs in curves.items()]
        notebook.chart(Chart(f"Error of the {what}", "epsilon", "standard deviation", marks, y_log=True))


def _told(
    notebook: Notebook, name: str, parameters: KeyValueParameters, asked: int, share: float, mean: float, runs: int
) -> KeyValueEstimate:
    generator = notebook.laboratory.generator(name)
    signs = [1 - share, share * (1 + mean) / 2, share * (1 - mean) / 2]
    told = told_rows(generator, generator.multinomial(asked, signs, size=runs), parameters.rows)
    return estimate_key_values(np.full(runs, asked), told[:, 1], told[:, 2], parameters)


def _compare_errors(
    notebook: Notebook,
    what: str,
    found: KeyValueEstimate,
    share: float,
    expected: tuple[float, float],
    runs: int,
) -> None:
    noise = 1 / math.sqrt(2 * (runs - 1))
    mine = float(np.std(found.share, ddof=1))
    notebook.theory(f"{what}: error of the share", mine, expected[0], error=noise * expected[0])
    # A ratio of estimates has heavy tails where the share is not far from 0: compare where the delta method holds.
    if expected[0] < share / 8:
        spread = float(np.nanstd(found.mean, ddof=1))
        notebook.theory(
            f"{what}: error of the mean", spread, expected[1], error=noise * expected[1], tolerance=0.05 * expected[1]
        )
    else:
        notebook.alone(f"{what}: error of the mean (share too uncertain for the delta method)", expected[1])
    notebook.theory(
        f"{what}: mean estimated share", float(np.mean(found.share)), share, error=expected[0] / math.sqrt(runs)
    )


def _films(notebook: Notebook) -> None:
    sample = notebook.sample("movielens")
    if sample is None:
        return
    shares, means = _most_rated(sample, 20)
    people, runs = 100_000, notebook.laboratory.runs(400, 100)
    asked = people // len(shares)
    notebook.note(f"the people who rated stand for {people:,} devices; each is asked about one of {len(shares)} films")
    panels: list[Mark] = [Curve("truth", np.arange(1, 21), shares, style="dashed", colour=7)]
    mean_marks: list[Mark] = [Curve("truth", np.arange(1, 21), means, style="dashed", colour=7)]
    for colour, epsilon in enumerate((1.0, 4.0)):
        parameters = key_value.lpp_parameters(*key_value.lpp_split(epsilon))
        found = [
            _told(notebook, f"mw-films-{epsilon}-{film}", parameters, asked, float(f), float(mu), runs)
            for film, (f, mu) in enumerate(zip(shares, means, strict=True))
        ]
        theory = key_value.key_value_theory(shares, shares * means, asked, parameters)
        error = np.sqrt(theory.share_variance)
        mine = float(np.mean([one.share.std(ddof=1) for one in found]))
        noise = float(error.mean()) / math.sqrt(2 * (runs - 1) * len(shares))
        notebook.theory(f"eps = {epsilon:g}: error of a film's share", mine, float(error.mean()), error=noise)
        spread = np.sqrt(theory.mean_variance)
        notebook.alone(f"eps = {epsilon:g}: error of a film's mean rating, in [-1, 1]", float(spread.mean()))
        x = np.arange(1, 21) + 0.25 * (colour - 0.5)
        one_run = [float(one.share[0]) for one in found]
        panels.append(Curve(f"one run, eps = {epsilon:g}", x, one_run, "points", error=2 * error, colour=colour))
        if epsilon > 1:
            rated = [float(one.mean[0]) for one in found]
            mean_marks.append(Curve(f"one run, eps = {epsilon:g}", x, rated, "points", error=2 * spread, colour=colour))
    notebook.chart(Chart("Who has rated the film", "film, most rated first", "share", panels))
    notebook.chart(
        Chart("How they rated it", "film, most rated first", "mean rating", [*mean_marks, Level("middle", 0.0)])
    )


def _most_rated(sample: Sample, films: int) -> tuple[Floats, Floats]:
    """Return share of raters and mean rating of the most rated films."""
    item, rating = sample.columns["item"], sample.columns["rating"]
    counts = np.bincount(item)
    most = np.argsort(-counts, kind="stable")[:films]
    totals = np.bincount(item, weights=rating)
    return counts[most] / sample.columns["users"], totals[most] / counts[most]


EXPERIMENTS = (
    Experiment("mw-corollaries", PAPER, "Theorems, corollaries and lemmas, held against corrected forms", _corollaries),
    Experiment("mw-fig-2", PAPER, "Fig. 2: variances of the family, simulated", _figure_2),
    Experiment("mw-key-value", PAPER, "Errors of shares and means of key-value data", _key_value),
    Experiment("mw-films", PAPER, "Key-value data: film ratings", _films),
)
