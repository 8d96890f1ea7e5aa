"""Sun, Yan & Zhou, *Improved Christofides*: tables 1 and 2, figures 1 to 5, and what dealt cards hide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from estimators.channels.decks import Deck
from estimators.channels.rows import channel_matrix
from estimators.papers import yes_no
from estimators.papers.decks import aggregate_delta
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.draws import told_rows
from estimators.reproduction.laboratory import Experiment, Notebook

PAPER = "Sun, Yan & Zhou"
Floats = NDArray[np.float64]
LEVELS = (0.01, 0.05, 0.25, 0.5)
NAMES = ("Warner", "drawn cards", "dealt cards")


def _table_1(notebook: Notebook) -> None:
    marks: list[Mark] = []
    fine = np.linspace(0.01, 2.0, 60)
    for colour, middle in enumerate((0.01, 0.05)):
        lengths = [yes_no.crossings(10_000, level, middle).warner_length for level in LEVELS]
        notebook.hold(f"sun.table1.{middle:g}", lengths, labels=[f"eps = {level:g}" for level in LEVELS])
        curve = [yes_no.crossings(10_000, float(level), middle).warner_length for level in fine]
        marks.append(Curve(f"p2 = {middle:g}", fine, curve, colour=colour))
        printed = notebook.laboratory.published[f"sun.table1.{middle:g}"].value
        marks.append(Curve("" if colour else "printed", LEVELS, printed, style="published", colour=colour))
    small = [yes_no.crossings(10_000, 1e-6, middle).warner_length for middle in (0.01, 0.05, 0.36, 0.5)]
    notebook.hold("sun.table1.limit", small, labels=["p2 = 0.01", "p2 = 0.05", "p2 = 0.36", "p2 = 0.5"])
    chart = Chart("Shares for which Warner beats dealt cards, N = 10,000", "epsilon", "length of the interval", marks)
    notebook.chart(chart)


def _table_2(notebook: Notebook) -> None:
    sizes = [yes_no.sample_sizes(0.1, 0.1, level, 0.01) for level in LEVELS]
    names = [f"eps = {level:g}" for level in LEVELS]
    notebook.hold("sun.table2.warner", [size.warner for size in sizes], labels=names)
    notebook.hold("sun.table2.drawn", [size.drawn_cards for size in sizes], labels=names)
    notebook.hold("sun.table2.dealt", [size.dealt_cards for size in sizes[:3]], labels=names[:3])
    notebook.hold("sun.table2.missing", sizes[3].dealt_cards)
    notebook.hold("sun.table2.half", yes_no.sample_sizes(0.5, 0.1, 0.01, 0.01).dealt_cards)
    fine = np.geomspace(0.01, 2.0, 60)
    wanted = [yes_no.sample_sizes(0.1, 0.1, float(level), 0.01) for level in fine]
    marks: list[Mark] = [
        Curve("Warner, Simmons", fine, [size.warner for size in wanted]),
        Curve("drawn cards", fine, [size.drawn_cards for size in wanted], style="dashed"),
        Curve("dealt cards", fine, [size.dealt_cards for size in wanted]),
    ]
    for number, name in enumerate(("warner", "drawn", "dealt")):
        printed = notebook.laboratory.published[f"sun.table2.{name}"].value
        marks.append(Curve("" if number else "printed", LEVELS[: len(printed)], printed, style="published"))
    title = "People needed for a variance of 0.1, share 0.1"
    notebook.chart(Chart(title, "epsilon", "people", marks, x_log=True, y_log=True))


def _variances(deck: Deck, share: float) -> list[float]:
    """Return the variances of Warner at the deck's level, of cards drawn with its proportions, and of dealt ones."""
    size = deck.size
    warner = yes_no.best_warner_variance(size, deck.single_answer_epsilon)
    return [warner, yes_no.christofides_variance(size, deck.cards), deck.variance(share, size)]


def _simulated(generator: np.random.Generator, deck: Deck, ones: int, runs: int) -> list[Floats]:
    """Return simulated shares for the three mechanisms."""
    size = deck.size
    truth = np.broadcast_to([size - ones, ones], (runs, 2))
    # Warner as the paper has it: the truth is the rarer answer.
    rows = channel_matrix(deck.single_answer_epsilon, 2)[:, ::-1]
    p = yes_no.warner_probability(deck.single_answer_epsilon)
    warner = [yes_no.warner_share(int(told[1]), size, p) for told in told_rows(generator, truth, rows)]
    weights = np.array(deck.counts) / size
    answers = told_rows(generator, truth, np.array([weights, weights[::-1]]))
    drawn = [yes_no.christofides_share(told.tolist(), deck.cards) for told in answers]
    held = generator.multivariate_hypergeometric(list(deck.counts), ones, size=runs)
    dealt = [deck.share(told.tolist()) for told in np.array(deck.counts) - held + held[:, ::-1]]
    return [np.array(warner), np.array(drawn), np.array(dealt)]


def _compare(notebook: Notebook, name: str, decks: Sequence[Deck], ones: int) -> list[list[float]]:
    """Compare simulated variances with the closed forms for several decks, and return the simulated ones."""
    generator, runs = notebook.laboratory.generator(name), notebook.laboratory.runs(10_000, 3_000)
    found = []
    for deck in decks:
        share = ones / deck.size
        theory, simulated = _variances(deck, share), _simulated(generator, deck, ones, runs)
        found.append([float(shares.var(ddof=1)) for shares in simulated])
        for label, expected, shares in zip(NAMES, theory, simulated, strict=True):
            what = f"{label}, deck {deck.counts}"
            spread = float(((shares - shares.mean()) ** 2).std() / math.sqrt(runs))
            notebook.theory(f"{what}: variance, simulated", float(shares.var(ddof=1)), expected, error=spread)
            error = math.sqrt(expected / runs)
            notebook.theory(f"{what}: mean estimate", float(shares.mean()), share, error=error)
    return found


def _figure_1(notebook: Notebook) -> None:
    decks = [Deck((low, 50, 50 - low)) for low in (22, 19, 13, 10, 5)]
    for number, deck in enumerate(decks, 1):
        notebook.hold(f"sun.fig1.deck{number}", _variances(deck, 0.1), labels=NAMES)
    found = _compare(notebook, "sun-fig-1", decks, 10)

    def lead(epsilon: float) -> float:
        return yes_no.dealt_minus_warner(0.1, 100, epsilon, 0.5)

    notebook.hold("sun.fig1.crossing", float(brentq(lead, 0.5, 2.5)))
    levels = np.linspace(0.2, 2.3, 60)
    marks = _curves(levels, 0.1, 100, 0.5)
    for colour in range(3):
        places = [deck.single_answer_epsilon for deck in decks]
        marks.append(
            Curve(f"{NAMES[colour]}, simulated", places, [row[colour] for row in found], "points", colour=colour)
        )
    notebook.chart(Chart("Share 0.1 of 100 people, p2 = 0.5", "epsilon", "variance", marks, y_log=True))


def _curves(levels: Floats, share: float, people: int, middle: float) -> list[Mark]:
    warner = [yes_no.best_warner_variance(people, float(level)) for level in levels]
    drawn = [yes_no.three_card_variance(people, float(level), middle) for level in levels]
    dealt = [yes_no.dealt_card_variance(share, people, float(level), middle) for level in levels]
    # Drawn cards lie on Warner's curve where few cards are in the middle.
    styles = ("line", "dashed", "line")
    curves = zip(NAMES, (warner, drawn, dealt), styles, strict=True)
    return [Curve(name, levels, y, style, colour=c) for c, (name, y, style) in enumerate(curves)]


def _small_figure(number: int, ones: int, order: Sequence[int]) -> Experiment:
    """Return the experiment of one of figures 2 to 4: nine people, two decks that can really be dealt."""

    def run(notebook: Notebook) -> None:
        decks = [Deck((2, 3, 4)), Deck((1, 3, 5))]
        for deck, key in zip(decks, ("ln2", "ln5"), strict=True):
            variances = _variances(deck, ones / 9)
            notebook.hold(f"sun.fig{number}.{key}", variances, labels=NAMES)
            notebook.alone(f"deck {deck.counts}: order of Theorem 6.1 holds", _rises([variances[i] for i in order]))
        claimed = [_variances(decks[0], ones / 9)[i] for i in order]
        notebook.hold(f"sun.fig{number}.order", _rises(claimed))
        if number == 4:
            drawn_is_best = min(_variances(decks[0], ones / 9)) == _variances(decks[0], ones / 9)[1]
            notebook.hold("sun.fig4.text", drawn_is_best)
        found = _compare(notebook, f"sun-fig-{number}", decks, ones)
        marks = _curves(np.linspace(0.4, 2.0, 60), ones / 9, 9, 0.36)
        for colour in range(3):
            places = [deck.single_answer_epsilon for deck in decks]
            y = [row[colour] for row in found]
            marks.append(Curve(f"{NAMES[colour]}, simulated decks", places, y, "points", colour=colour))
        notebook.chart(Chart(f"{ones} of 9 people, p2 = 0.36", "epsilon", "variance", marks, y_log=True))
        notebook.note(
            "3.24 middle cards cannot be dealt: curves are the formula, points are the decks (2, 3, 4) and (1, 3, 5)"
        )

    return Experiment(f"sun-fig-{number}", PAPER, f"Fig. {number}: nine people, share {ones}/9", run)


def _rises(numbers: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(numbers))


def _figure_5(notebook: Notebook) -> None:
    published, middle = notebook.laboratory.published, 0.01
    share, people = published["sun.fig5.share"].value, published["sun.fig5.people"].value
    notebook.hold("sun.fig5.ratio", yes_no.dealt_to_drawn_ratio(share, people))
    levels = np.linspace(0.05, 0.5, 30)
    title = f"HCOVANY: {100 * share:.2f} % of {people:,}"
    notebook.chart(Chart(title, "epsilon", "variance", _curves(levels, share, people, middle), y_log=True))
    deck = Deck.for_epsilon(people, 0.5, middle=middle)
    generator, runs = notebook.laboratory.generator("sun-fig-5"), notebook.laboratory.runs(4_000, 1_000)
    ones = round(share * people)
    simulated, theory = _simulated(generator, deck, ones, runs), _variances(deck, ones / people)
    for label, expected, shares in zip(NAMES, theory, simulated, strict=True):
        error = expected * math.sqrt(2 / (runs - 1))
        notebook.theory(f"{label}, eps = 0.5: variance, simulated", float(shares.var(ddof=1)), expected, error=error)
    sample = notebook.sample("HealthInsurance")
    if sample is None:
        return
    share, people = float(sample.columns["uninsured"]), int(sample.columns["people"])
    notebook.alone("stand-in: share without insurance", share)
    notebook.alone("stand-in: variance of dealt over drawn cards", yes_no.dealt_to_drawn_ratio(share, people))
    decks = [Deck.for_epsilon(people, float(level), middle=middle) for level in (0.1, 0.25, 0.5)]
    found = _compare(notebook, "sun-fig-5-stand-in", decks, round(share * people))
    marks = _curves(levels, share, people, middle)
    for colour in range(3):
        y = [row[colour] for row in found]
        places = [deck.single_answer_epsilon for deck in decks]
        marks.append(Curve(f"{NAMES[colour]}, simulated", places, y, "points", colour=colour))
    title = f"HealthInsurance (stand-in): {share:.1%} of {people:,}"
    notebook.chart(Chart(title, "epsilon", "variance", marks, y_log=True))


def _worked(notebook: Notebook) -> None:
    notebook.hold("sun.eq2", yes_no.simmons_variance(0.1, 100, 0.6, 0.3))
    p = yes_no.simmons_probability(0.5, 0.8)
    notebook.hold("sun.appendix-c", yes_no.simmons_variance(0.1, 1, p, 0.8))
    notebook.hold("sun.thm61", yes_no.dealt_minus_warner(0.1, 100, 1.0, 0.5))
    generator, runs = notebook.laboratory.generator("sun-worked"), notebook.laboratory.runs(4_000, 1_000)
    deck, printed = Deck((374, 10, 616)), notebook.laboratory.published["sun.alg1"]
    warner, drawn, _ = _simulated(generator, deck, round(printed.right * deck.size), runs)
    for key, shares in (("sun.alg1", warner), ("sun.alg3", drawn)):
        notebook.hold(key, float(shares.mean()), error=float(shares.std(ddof=1) / math.sqrt(runs)))
    marks: list[Mark] = [
        Curve("Warner", np.arange(200), np.sort(warner[:200]), "points"),
        Curve("drawn cards", np.arange(200), np.sort(drawn[:200]), "points"),
        Level("truth", printed.right),
        Level("algorithms 1 and 3 as printed", printed.value),
    ]
    notebook.chart(Chart("200 of 1,000 people, 200 runs in order", "run", "estimated share", marks))


def _privacy(notebook: Notebook) -> None:
    deck = Deck((374, 10, 616))
    notebook.hold("sun.thm56", deck.informed_epsilon(deck.size))
    notebook.hold("sun.thm56.single", deck.single_answer_epsilon)
    notebook.hold("sun.thm56.delta", deck.informed_delta)
    known = np.arange(0, 374)
    small = Deck((4, 1, 7))
    colluders = [small.collusion_epsilon(m) for m in range(4)]
    notebook.hold("sun.collusion", colluders, labels=[f"{m} colluders" for m in range(4)])
    totals = (0, 10, 100)
    notebook.hold(
        "sun.aggregate", [aggregate_delta(deck, ones) for ones in totals], labels=[f"{t} ones" for t in totals]
    )
    marks: list[Mark] = [
        Curve("single answer and so many known cards", known, [deck.collusion_epsilon(int(m)) for m in known]),
        Level("claimed", deck.single_answer_epsilon),
    ]
    notebook.chart(Chart("Dealt cards, deck (374, 10, 616)", "cards known to the attacker", "epsilon", marks))


EXPERIMENTS = (
    Experiment("sun-table-1", PAPER, "Table 1: where Warner beats dealt cards", _table_1),
    Experiment("sun-table-2", PAPER, "Table 2: people needed", _table_2),
    Experiment("sun-fig-1", PAPER, "Fig. 1: variances by epsilon, 100 people", _figure_1),
    _small_figure(2, 1, (2, 0, 1)),
    _small_figure(3, 2, (0, 2, 1)),
    _small_figure(4, 4, (0, 1, 2)),
    Experiment("sun-fig-5", PAPER, "Fig. 5: health insurance", _figure_5),
    Experiment("sun-worked", PAPER, "Misprinted formulas and algorithms", _worked),
    Experiment("sun-privacy", PAPER, "Theorem 5.6: what dealt cards hide", _privacy),
)
