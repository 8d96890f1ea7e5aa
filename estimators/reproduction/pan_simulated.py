"""Pan, *Gradual Release*: both experiments of section 6, simulated with the chains that devices draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import count_ones, pack
from estimators.channels.chain import Chain
from estimators.channels.noisy_sampling import sampling_ladder
from estimators.channels.rows import channel_matrix
from estimators.exact.randomness import SeededBits
from estimators.papers import attacks, noisy_sampling
from estimators.papers.gradual_release import Step, step
from estimators.papers.permanent_response import PermanentResponse
from estimators.reproduction.charts import Band, Bars, Chart, Curve, Level, Mark
from estimators.reproduction.laboratory import Experiment, Laboratory, Notebook
from estimators.reproduction.pan_closed import PAPER, PERMANENT, SAMPLE

Floats = NDArray[np.float64]
Answers = NDArray[np.int64]

FIRST_COUNTS = (400, 600)
"""People with 0 and with 1 in the first experiment."""
SECOND_COUNTS = (100, 200, 300, 400, 500)
SECOND_LADDER = tuple(round(0.1 * i, 1) for i in range(1, 11))
ATTACKED = {2: 400, 5: 100}
"""People per value whose answers are attacked."""


@dataclass(frozen=True)
class Simulation:
    """Estimates [run, rung, value] and error rates of attacks [run] by name."""

    ladder: tuple[float, ...]
    estimates: Floats
    errors: dict[str, Floats]


def simulate(laboratory: Laboratory, name: str, counts: Sequence[int], ladder: Sequence[float]) -> Simulation:
    """Draw whole chains, estimate the shares after every round and attack the sequences of a balanced part."""
    size, runs = len(counts), laboratory.runs(400, 100)
    chain = Chain.retention(ladder, size)
    channels = chain.retention_channels
    values = np.repeat(np.arange(size), counts)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    balanced = np.concatenate([np.arange(start, start + ATTACKED[size]) for start in starts])
    estimates, errors = (
        np.empty((runs, len(ladder), size)),
        {rule: np.empty(runs) for rule in ("LO", "MLE", "HF", "WHF")},
    )
    generator = laboratory.generator(name)
    for run in range(runs):
        answers = chain.draw(values, SeededBits(laboratory.seed, name, run))
        for rung, channel in enumerate(channels):
            told = np.bincount(answers[rung], minlength=size)
            estimates[run, rung] = channel.unbias(told, len(values))
        for rule, guess in _guesses(answers[:, balanced], ladder, size, generator).items():
            errors[rule][run] = np.mean(guess != values[balanced])
    return Simulation(tuple(ladder), estimates, errors)


def _guesses(
    answers: Answers, ladder: Sequence[float], size: int, generator: np.random.Generator
) -> dict[str, Answers]:
    """Return the guess of every attack from whole sequences of answers, [rung, person]."""
    return {
        "LO": answers[-1],
        "MLE": _likeliest(answers, ladder, size),
        "HF": _heaviest(answers, np.ones(len(ladder)), size, generator),
        "WHF": _heaviest(answers, np.asarray(ladder), size, generator),
    }


def _likeliest(answers: Answers, ladder: Sequence[float], size: int) -> Answers:
    """Guess the value under which the whole sequence is most likely, from the forward steps."""
    logs = np.log(channel_matrix(ladder[0], size))[:, answers[0]]
    for rung, levels in enumerate(pairwise(ladder)):
        logs = logs + np.log(_forward(step(*levels, size), size))[:, answers[rung], answers[rung + 1]]
    return np.asarray(np.argmax(logs, axis=0), dtype=np.int64)


def _forward(moves: Step, size: int) -> Floats:
    """Return Pr(next answer | value, answer), [value, answer, next]."""
    forward = np.full((size, size, size), moves.lie_to_other or 1.0)
    every = np.arange(size)
    forward[:, every, every] = moves.lie_to_same
    for value in range(size):
        forward[value, :, value] = moves.lie_to_truth
        forward[value, value, :] = moves.truth_to_lie
        forward[value, value, value] = moves.truth_to_truth
    return forward


def _heaviest(answers: Answers, weights: Floats, size: int, generator: np.random.Generator) -> Answers:
    """Guess the value with the largest sum of weights, ties broken at random."""
    scores = np.stack([weights @ (answers == value) for value in range(size)])
    return np.asarray(np.argmax(scores.round(9) + 1e-10 * generator.random(scores.shape), axis=0), dtype=np.int64)


def _first(laboratory: Laboratory) -> Simulation:
    ladder = sampling_ladder(PERMANENT, SAMPLE, 10)
    return laboratory.once("pan-1", lambda: simulate(laboratory, "pan-1", FIRST_COUNTS, ladder))


def _second(laboratory: Laboratory) -> Simulation:
    return laboratory.once("pan-2", lambda: simulate(laboratory, "pan-2", SECOND_COUNTS, SECOND_LADDER))


def _shares(notebook: Notebook, found: Simulation, value: int, truth: float, deviations: Floats, title: str) -> None:
    """Compare mean and spread of the estimates of one value with theory, round by round, and draw them."""
    mine = found.estimates[:, :, value]
    runs, rounds = mine.shape[0], np.arange(1, mine.shape[1] + 1)
    for rung in (0, len(rounds) // 2, len(rounds) - 1):
        error = float(deviations[rung]) / math.sqrt(runs)
        notebook.theory(f"mean estimate, round {rung + 1}", float(mine[:, rung].mean()), truth, error=error)
        spread = float(mine[:, rung].std(ddof=1))
        noise = float(deviations[rung]) / math.sqrt(2 * (runs - 1))
        notebook.theory(f"deviation, round {rung + 1}", spread, float(deviations[rung]), error=noise)
    marks: list[Mark] = [
        Band("truth and two deviations", rounds, truth - 2 * deviations, truth + 2 * deviations),
        Curve(
            "simulated mean and two deviations",
            rounds,
            mine.mean(axis=0),
            error=2 * mine.std(axis=0, ddof=1),
            colour=1,
        ),
        Level("truth", truth),
    ]
    notebook.chart(Chart(title, "round", "estimated share", marks))


def _figure_2a(notebook: Notebook) -> None:
    users, truth = sum(FIRST_COUNTS), FIRST_COUNTS[1] / sum(FIRST_COUNTS)
    theory = noisy_sampling.binary_experiment(PERMANENT, SAMPLE, 10, users, truth)
    rounds = [f"round {k}" for k in range(1, 11)]
    notebook.hold("pan.exp1.deviations", theory.deviation, labels=rounds)
    notebook.hold("pan.exp1.intervals", [theory.lower[-1], theory.upper[-1]], labels=["lower", "upper"])
    title = "Share of ones, 1,000 people"
    _shares(notebook, _first(notebook.laboratory), 1, truth, np.asarray(theory.deviation), title)


def _figure_2b(notebook: Notebook) -> None:
    users, truth = sum(FIRST_COUNTS), FIRST_COUNTS[1] / sum(FIRST_COUNTS)
    theory = noisy_sampling.binary_experiment(PERMANENT, SAMPLE, 10, users, truth)
    notebook.hold("pan.exp1.sampling", theory.sampling_variance, labels=[f"round {k}" for k in range(1, 11)])
    found = _first(notebook.laboratory).estimates[:, :, 1]
    runs, rounds = len(found), np.arange(1, 11)
    response = PermanentResponse.for_levels(PERMANENT, SAMPLE, 1)
    bits = pack(np.repeat([[0], [1]], FIRST_COUNTS, axis=0))
    sampled = np.empty((runs, len(rounds)))
    for run in range(runs):
        stream = SeededBits(notebook.laboratory.seed, "pan-2b", run)
        kept = response.keep(bits, stream)
        ones = np.cumsum([count_ones(response.report(kept, stream), 1)[0] for _ in rounds])
        sampled[run] = [
            response.shares(np.array([seen]), users, int(k))[0] for k, seen in zip(rounds, ones, strict=True)
        ]
    noise = math.sqrt(2 / (runs - 1))
    for rung in (0, 4, 9):
        for what, mine, expected in (
            ("relaxation", found, theory.deviation[rung] ** 2),
            ("noisy sampling", sampled, theory.sampling_variance[rung]),
        ):
            variance = float(mine[:, rung].var(ddof=1))
            notebook.theory(f"variance of {what}, round {rung + 1}", variance, expected, error=noise * expected)
    better = bool(found[:, 1:].var(axis=0).mean() < sampled[:, 1:].var(axis=0).mean())
    notebook.hold("pan.fig2b.better", better)
    marks: list[Mark] = [
        Curve("noisy sampling, theory", rounds, theory.sampling_variance, style="dashed", colour=1),
        Curve("noisy sampling, simulated", rounds, sampled.var(axis=0, ddof=1), style="points", colour=1),
        Curve("relaxation, theory", rounds, np.square(theory.deviation), colour=0),
        Curve("relaxation, simulated", rounds, found.var(axis=0, ddof=1), style="points", colour=0),
    ]
    notebook.chart(Chart("Variance by round, 1,000 people", "round", "variance", marks, y_log=True))


def _attack(notebook: Notebook, key: str, found: Simulation, size: int) -> None:
    """Hold simulated attacks against the exact error rates, and those against the least possible one."""
    last = attacks.last_answer_error(found.ladder[-1], size)
    exact = {
        "LO": last,
        "MLE": attacks.likelihood_error(found.ladder, size),
        "HF": attacks.frequency_error(found.ladder, size),
        "WHF": attacks.frequency_error(found.ladder, size, weights=found.ladder),
    }
    notebook.hold(key, list(exact.values()), labels=list(exact))
    runs = len(found.errors["LO"])
    for rule, rate in exact.items():
        errors = found.errors[rule]
        error = float(errors.std(ddof=1)) / math.sqrt(runs)
        notebook.theory(f"error of {rule}, simulated", float(errors.mean()), rate, error=error)
    notebook.hold("pan.attacks.minimum", min(exact.values()) >= last, labels=[f"{size} values"])
    below = any(float((errors < last).mean()) > 0 for errors in found.errors.values())
    notebook.hold("pan.attacks.every-run", not below, labels=[f"{size} values"])
    bars = Bars(
        list(exact),
        {"exact": list(exact.values()), "simulated": [float(found.errors[rule].mean()) for rule in exact]},
        {"simulated": [2 * float(found.errors[rule].std(ddof=1)) for rule in exact]},
    )
    marks: list[Mark] = [bars, Level("least possible, even shares", last)]
    notebook.chart(Chart(f"Attacks on ten answers, {size} values", "attack", "error rate", marks))


def _figure_2c(notebook: Notebook) -> None:
    _attack(notebook, "pan.exp1.attacks", _first(notebook.laboratory), 2)


def _figure_3f(notebook: Notebook) -> None:
    _attack(notebook, "pan.exp2.attacks", _second(notebook.laboratory), 5)


def _attacks(notebook: Notebook) -> None:
    """Hold an attacker who knows the composition of the people against the minimum of Theorem 6.1."""
    shares = np.array(SECOND_COUNTS) / sum(SECOND_COUNTS)
    levels = np.round(np.arange(0.1, 3.01, 0.1), 1)
    known = [attacks.bayes_error(shares.tolist(), float(level)) for level in levels]
    even = [attacks.last_answer_error(float(level), len(shares)) for level in levels]
    notebook.hold("pan.attacks.known-prior", attacks.bayes_error(shares.tolist(), 1.0))
    notebook.hold("pan.attacks.theorem", min(np.subtract(known, even)) >= 0)
    pair = attacks.bayes_error([0.4, 0.6], _first(notebook.laboratory).ladder[-1])
    notebook.alone("best attack on the first experiment, composition known", pair)
    sample = notebook.sample("wvs_justifbribe")
    marks: list[Mark] = [
        Curve("shares 1 to 5 fifteenths, known", levels, known),
        Curve('"least possible", m = 5', levels, even, style="dashed"),
    ]
    if sample is not None:
        real = np.asarray(sample.columns["shares"])
        told = [attacks.bayes_error(real.tolist(), float(level)) for level in levels]
        least = [attacks.last_answer_error(float(level), len(real)) for level in levels]
        notebook.alone("is a bribe justifiable, ten answers: error with known shares, eps = 1", told[9])
        notebook.alone("the same with even shares", least[9])
        marks += [
            Curve("answers on bribes, known", levels, told),
            Curve('"least possible", m = 10', levels, least, style="dashed"),
        ]
    notebook.chart(Chart("An attacker who knows the shares", "epsilon", "error rate", marks))


def _figure_3(value: int) -> Experiment:
    def run(notebook: Notebook) -> None:
        deviations = np.array(noisy_sampling.value_experiment(SECOND_COUNTS, SECOND_LADDER))[:, value]
        notebook.hold(f"pan.exp2.value{value + 1}", deviations, labels=[f"eps = {level:g}" for level in SECOND_LADDER])
        truth, title = SECOND_COUNTS[value] / sum(SECOND_COUNTS), f"Share of value {value + 1}, 1,500 people"
        _shares(
            notebook,
            _second(notebook.laboratory),
            value,
            truth,
            deviations,
            title,
        )

    return Experiment(f"pan-fig-3{'abcde'[value]}", PAPER, f"Fig. 3: value {value + 1} of five, by round", run)


EXPERIMENTS = (
    Experiment("pan-fig-2a", PAPER, "Fig. 2a: a yes-or-no share, round by round", _figure_2a),
    Experiment("pan-fig-2b", PAPER, "Fig. 2b: relaxation against noisy sampling, simulated", _figure_2b),
    Experiment("pan-fig-2c", PAPER, "Fig. 2c: attacks on a yes-or-no answer", _figure_2c),
    *(_figure_3(value) for value in range(5)),
    Experiment("pan-fig-3f", PAPER, "Fig. 3f: attacks on five values", _figure_3f),
    Experiment("pan-attacks", PAPER, "Theorem 6.1: an attacker who knows the shares", _attacks),
)
