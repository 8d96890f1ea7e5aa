"""Zhilyaev & Zeber, *K-Randomization*: all worked numbers, and what k buys at which privacy."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from estimators.channels.crowd import flip_probability
from estimators.inference.crowd_delta import vector_delta
from estimators.papers import crowd
from estimators.papers.yes_no import warner_probability
from estimators.reproduction.charts import Chart, Curve, Level, Mark
from estimators.reproduction.laboratory import Experiment, Notebook

PAPER = "Zhilyaev & Zeber"
RECORDS, RATIO = 1000, 2.0
"""Size of the crowd and bound of the likelihood ratio in all examples of the paper."""
COPIES = (1, 2, 4, 8, 16, 32, 64)


def _worked(notebook: Notebook) -> None:
    """Hold every number that sections 0 and 1 work out.

    Long because it is one list of numbers.
    """
    flip, classical = flip_probability(RECORDS, RATIO), warner_probability(math.log(RATIO))
    plain, repeated = crowd.total_deviation(RECORDS, flip), flip_probability(RECORDS, RATIO, copies=16)
    notebook.hold("kr.q", flip)
    notebook.hold("kr.q.classical", classical)
    notebook.hold("kr.sigma.classical", crowd.total_deviation(RECORDS, classical))
    notebook.hold("kr.sigma", plain)
    notebook.hold("kr.gain", crowd.total_deviation(RECORDS, classical) / plain)
    notebook.hold("kr.sigma-s", crowd.count_deviation(RECORDS, flip))
    half = 3 * crowd.count_deviation(RECORDS, classical)
    notebook.hold("kr.interval.half", half)
    centre = RECORDS * classical
    shifted = centre + 1 - 2 * classical
    notebook.hold("kr.interval", [centre - half, centre + half, shifted - half, shifted + half], labels=_ENDS)
    narrow = 3 * crowd.count_deviation(RECORDS, 0.033)
    notebook.hold("kr.interval.narrow", [33 - narrow, 33 + narrow], labels=["lower", "upper"])
    notebook.hold("kr.coverage", crowd.coverage_of_three_sigmas(RECORDS, flip))
    notebook.hold("kr.coverage.ratio", 1 - crowd.chance_of_excess(RECORDS, flip, RATIO))
    notebook.hold("kr.k16.q", repeated)
    notebook.hold("kr.k16.sigma", crowd.total_deviation(RECORDS, repeated, copies=16))
    notebook.hold("kr.k16.fall", 1 - crowd.total_deviation(RECORDS, repeated, copies=16) / plain)
    ones = round(16 * RECORDS * repeated - 3 * crowd.count_deviation(RECORDS, repeated, copies=16))
    exact = crowd.inverse_ratio(ones, RECORDS, repeated, copies=16)
    notebook.hold("kr.k16.ratio", 1 / exact <= RATIO)
    bound = crowd.inverse_ratio_bound(ones, RECORDS, repeated, copies=16)
    notebook.hold("kr.k16.exact", [exact, bound], labels=["exact", "bound (1.12)"])
    one, many = (_delta(k, flip_probability(RECORDS, RATIO, copies=k)) for k in (1, 16))
    notebook.hold("kr.k16.same", many <= one)
    notebook.hold("kr.delta", [one, many], labels=["k = 1", "k = 16"])
    notebook.hold("kr.local", math.exp(crowd.local_epsilon(flip)))
    notebook.hold("kr.local.k16", crowd.local_epsilon(repeated, copies=16))
    notebook.hold("kr.limit", 3 / math.log(RATIO))
    notebook.hold("kr.variance-x", crowd.weight_moments(7, 0.2, bits=3)[1])
    counts = np.arange(0, 80)
    ratios = 1 / crowd.inverse_ratios(counts, RECORDS, flip, 1)
    marks: list[Mark] = [
        Curve("R, k = 1", counts, ratios),
        Level("promised bound", RATIO),
        Level("1 / bound", 1 / RATIO),
    ]
    notebook.chart(Chart("Likelihood ratio of a total, 1,000 records", "ones counted", "R", marks, y_log=True))


_ENDS = ["no record set, lower", "upper", "one record set, lower", "upper"]


def _delta(copies: int, flip: float) -> float:
    return crowd.first_record_delta(RECORDS, flip, RATIO, copies=copies).delta


def _flip_at(copies: int, target: float) -> float:
    """Return the flip probability whose exact failure chance is `target`."""

    def excess(flip: float) -> float:
        return math.log(max(_delta(copies, flip), 1e-300)) - math.log(target)

    rule = flip_probability(RECORDS, RATIO, copies=copies)
    return float(brentq(excess, 0.6 * rule, min(1.6 * rule, 0.49), xtol=1e-8))


def _trade_off(notebook: Notebook) -> None:
    flips = {k: flip_probability(RECORDS, RATIO, copies=k) for k in COPIES}
    deltas = {k: _delta(k, flip) for k, flip in flips.items()}
    ruled = {k: crowd.total_deviation(RECORDS, flip, copies=k) for k, flip in flips.items()}
    # A total is a whole number, so the failure chance has small steps in q: a root is right to about three digits.
    equal = {k: crowd.total_deviation(RECORDS, _flip_at(k, deltas[1]), copies=k) for k in COPIES}
    wanted = [equal[k] for k in (1, 2, 4, 16, 64)]
    notebook.hold("kr.equal-delta", wanted, labels=[f"k = {k}" for k in (1, 2, 4, 16, 64)])
    notebook.hold("kr.equal-delta.gain", 1 - equal[16] / equal[1])
    for k in COPIES:
        notebook.alone(f"k = {k}: q by the rule", flips[k])
        notebook.alone(f"k = {k}: deviation by the rule", ruled[k])
        notebook.alone(f"k = {k}: exact delta at ln 2", deltas[k])
        notebook.alone(f"k = {k}: level of one record, copies linked", crowd.local_epsilon(flips[k], copies=k))
    limit = Level("limit of the rule, 3 / ln 2", 3 / math.log(RATIO))
    marks: list[Mark] = [
        Curve("rule of the paper", COPIES, list(ruled.values())),
        Curve("at equal exact delta", COPIES, list(equal.values())),
        limit,
    ]
    notebook.chart(Chart("What k gains", "copies k", "deviation of the total", marks, x_log=True))
    chances: list[Mark] = [
        Curve("exact delta at ln 2", COPIES, list(deltas.values())),
        Level("delta at k = 1", deltas[1]),
    ]
    notebook.chart(Chart("... and what it costs", "copies k", "delta", chances, x_log=True, y_log=True))


def _ratio_trade_off(notebook: Notebook) -> None:
    """Show flip probability, deviation and failure chance as functions of the promised ratio."""
    ratios = np.array([1.1, 1.25, 1.5, 2.0, 3.0, 5.0])
    flip_marks: list[Mark] = []
    chance_marks: list[Mark] = []
    for k in (1, 16):
        flips = [flip_probability(RECORDS, float(ratio), copies=k) for ratio in ratios]
        deviations = [crowd.total_deviation(RECORDS, flip, copies=k) for flip in flips]
        chances = [
            crowd.first_record_delta(RECORDS, flip, float(ratio), copies=k).delta
            for flip, ratio in zip(flips, ratios, strict=True)
        ]
        flip_marks.append(Curve(f"k = {k}", ratios, deviations))
        chance_marks.append(Curve(f"k = {k}", ratios, chances))
        for ratio, deviation, chance in zip(ratios, deviations, chances, strict=True):
            notebook.alone(f"k = {k}, lambda = {ratio:g}: deviation", deviation)
            notebook.alone(f"k = {k}, lambda = {ratio:g}: exact delta", chance)
    generator, runs = notebook.laboratory.generator("kr-lambda"), notebook.laboratory.runs(40_000, 10_000)
    for k in (1, 16):
        flip = flip_probability(RECORDS, RATIO, copies=k)
        ones = generator.binomial(k * RECORDS, flip, size=runs)
        totals = np.array([crowd.estimate_total(int(n), RECORDS, flip, copies=k).records for n in ones])
        expected = crowd.total_deviation(RECORDS, flip, copies=k)
        error = expected / math.sqrt(2 * (runs - 1))
        notebook.theory(f"k = {k}, lambda = 2: deviation, simulated", float(totals.std(ddof=1)), expected, error=error)
    notebook.chart(Chart("Precision by promised ratio", "lambda", "deviation of the total", flip_marks, y_log=True))
    notebook.chart(
        Chart("Failure chance by promised ratio", "lambda", "exact delta at ln lambda", chance_marks, y_log=True)
    )


def _vectors(notebook: Notebook) -> None:
    lengths = (1, 2, 4, 8, 16, 32, 64)
    flips = {bits: flip_probability(RECORDS, RATIO, bits=bits) for bits in lengths}
    costs = [crowd.local_epsilon(flips[8], bits=8), crowd.local_epsilon(flips[32], bits=32)]
    costs.append(crowd.local_epsilon(flip_probability(100_000, RATIO, bits=100), bits=100))
    notebook.hold("kr.vectors.local", costs, labels=["L = 8", "L = 32", "L = 100, N = 100,000"])
    deltas = {bits: vector_delta(RECORDS, flip, RATIO, bits=bits) for bits, flip in flips.items()}
    generator, runs = notebook.laboratory.generator("kr-vectors"), notebook.laboratory.runs(40_000, 20_000)
    chances, errors = [], []
    for bits in (16, 32, 64):
        chance = _excess(generator, runs, flips[bits], bits)
        chances.append(chance)
        errors.append(math.sqrt(chance / runs))
    notebook.hold("kr.vectors.excess", chances, labels=["L = 16", "L = 32", "L = 64"], error=errors)
    small = max(deltas[bits].delta for bits in (16, 32, 64))
    notebook.hold("kr.vectors.delta", 1e-4 < small < 2e-3)
    for bits in lengths:
        notebook.alone(f"L = {bits}: delta, a vector of ones hidden among zeros", deltas[bits].one_over_zeros)
    marks: list[Mark] = [
        Curve("no vector set, over one", lengths, [max(deltas[bits].zeros_over_one, 1e-12) for bits in lengths]),
        Curve("one vector set, over none", lengths, [deltas[bits].one_over_zeros for bits in lengths]),
        Level("1 / N", 1 / RECORDS),
    ]
    notebook.chart(
        Chart("Failure chance of vectors, rule (2.33)", "bits L", "delta at ln 2", marks, x_log=True, y_log=True)
    )


def _excess(generator: np.random.Generator, runs: int, flip: float, bits: int) -> float:
    """Return how often the published vectors make one set record twice as likely as none, when there is one."""
    set_bits = np.arange(bits + 1)
    weights = np.exp((2.0 * set_bits - bits) * math.log((1 - flip) / flip))
    law = np.array([math.comb(bits, n) * flip**n * (1 - flip) ** (bits - n) for n in set_bits])
    others = generator.multinomial(RECORDS - 1, law / law.sum(), size=runs) @ weights
    own = weights[generator.binomial(bits, 1 - flip, size=runs)]
    return float(np.mean((others + own) / RECORDS > RATIO))


EXPERIMENTS = (
    Experiment("kr-worked", PAPER, "Sections 0 and 1: all worked numbers", _worked),
    Experiment("kr-copies", PAPER, "k against q, sigma and delta", _trade_off),
    Experiment("kr-ratio", PAPER, "lambda against sigma and delta", _ratio_trade_off),
    Experiment("kr-vectors", PAPER, "Section 2: vectors of L bits", _vectors),
)
