"""Estimates from dealt decks, and intervals that do not collapse where all or none say yes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from estimators.channels.decks import Deck, three_faces
from estimators.estimates import Estimates, Population
from estimators.inference.pooling_result import no_estimate
from estimators.intervals.one_look import check_alpha, two_sided_z

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

# Beyond this many evaluations of the hypergeometric law the score interval is as good and far cheaper.
_EXACT_WORK = 12_000
# Tables that are kept: the same answers come at every tick.
_TABLES = 256


def estimate_blocks(
    labels: Sequence[str],
    deck: Deck,
    counts: Counts,
    users: Counts,
    *,
    method: str = "pooled",
    population: Population = "fleet",
    alpha: float = 0.05,
) -> Estimates:
    """Estimate the two shares from counts [block, face] and users [block].

    The share is the user-weighted mean over blocks; all blocks have the same deck, so it is that of all answers
    together. Variances of blocks add. A block with more answers than cards is several decks under one number.
    """
    check_alpha(alpha)
    labels, total = tuple(labels), int(users.sum())
    if total == 0 or deck.size < 2:
        return no_estimate(labels, method, population, alpha, ())
    answers = counts.sum(axis=0)
    pi = deck.share([int(count) for count in answers])
    level, slope, shared = _variance_terms(deck, users)
    notes = (f"{shared} blocks hold more answers than cards: taken as several decks each",) if shared else ()
    terms = (level, slope)
    if population == "sampling":
        # s(1 - s)/N is 1/(4N) - (1 - 2s)^2/(4N): sampling only shifts both terms.
        terms = (level + 0.25 / total, slope + 0.25 / total)
        lower, upper = score_interval(pi, *terms, two_sided_z(alpha), least=0.5 / total)
    else:
        lower, upper = _fleet_interval(deck, answers, users, pi, terms, alpha)
    # At the middle of the interval: at an estimate of 0 or 1 the plug-in variance would be 0, which is too small.
    middle = (lower + upper) / 2.0
    variance = terms[0] - terms[1] * (1.0 - 2.0 * middle) ** 2
    both = np.array([1.0 - pi, pi])
    low, high = np.array([1.0 - upper, lower]), np.array([1.0 - lower, upper])
    return Estimates(
        labels=labels,
        value=both,
        variance=np.array([variance, variance]),
        lower=low,
        upper=high,
        users=total,
        method=method,
        population=population,
        alpha=alpha,
        # The two shares are one number: what holds for one holds for both at once.
        simultaneous_lower=low.copy(),
        simultaneous_upper=high.copy(),
        notes=notes,
    )


def score_interval(pi: float, level: float, slope: float, z: float, *, least: float = 0.0) -> tuple[float, float]:
    """Return all shares s in [0, 1] with (pi - s)^2 <= z^2 (level - slope (1 - 2 s)^2), as an interval around pi.

    The variance is that of the share in question, not of the estimate, so that an estimate of 0 or 1 still has a
    width. An estimate so far outside [0, 1] that no share is accepted gets the nearest end, and `least` beyond it.
    """
    # (pi - s)^2 - z^2 level + z^2 slope (1 - 2s)^2 = a s^2 - 2 b s + c
    z2 = z * z
    a = 1.0 + 4.0 * z2 * slope
    b = pi + 2.0 * z2 * slope
    c = pi * pi - z2 * level + z2 * slope
    root = math.sqrt(max(b * b - a * c, 0.0))
    lower, upper = (b - root) / a, (b + root) / a
    lower, upper = min(max(lower, 0.0), 1.0), max(min(upper, 1.0), 0.0)
    return (max(lower - least, 0.0), min(upper + least, 1.0)) if upper - lower < least else (lower, upper)


def exact_interval(deck: Deck, low_answers: int, alpha: float) -> tuple[float, float]:
    """Return the shares that the answers of one complete deck do not exclude, by the exact law of low answers.

    Every number of people in the group is tested with both tails at alpha / 2; deck of two or three faces. The law is
    not monotone in that number, so all are tried and the hull is returned.
    """
    below, above = shift_tails(deck, low_answers - three_faces(deck)[0])
    kept = np.flatnonzero(np.minimum(below, above) > alpha / 2.0)
    if not len(kept):
        nearest = 0.0 if deck.share(_answers(deck, low_answers)) < 0.5 else 1.0
        kept = np.array([round(nearest * deck.size)])
    # Half a person beyond the accepted numbers: no interval has width zero.
    half = 0.5 / deck.size
    return max(float(kept[0]) / deck.size - half, 0.0), min(float(kept[-1]) / deck.size + half, 1.0)


def _answers(deck: Deck, low_answers: int) -> list[int]:
    low, blank, high = three_faces(deck)
    answers = [low_answers, blank, low + high - low_answers]
    return answers if deck.faces == 3 else [answers[0], answers[2]]


@lru_cache(maxsize=_TABLES)
def shift_tails(deck: Deck, shift: int) -> tuple[Floats, Floats]:
    """Return Pr(o1 - n1 <= shift) and Pr(o1 - n1 >= shift) for every possible number of people in the group."""
    low, blank, high = three_faces(deck)
    ones = np.arange(deck.size + 1)
    below, above = np.zeros(deck.size + 1), np.zeros(deck.size + 1)
    for blanks in range(blank + 1):
        # Given how many of them hold middle cards, c - a = 2 c - told among the cards that tell something.
        told = ones - blanks
        real = (told >= 0) & (told <= low + high)
        chance = stats.hypergeom.pmf(blanks, deck.size, blank, ones[real]) if blank else 1.0
        reach = (shift + told[real]) / 2.0
        below[real] += chance * stats.hypergeom.cdf(np.floor(reach), low + high, high, told[real])
        above[real] += chance * stats.hypergeom.sf(np.ceil(reach) - 1, low + high, high, told[real])
    return below, above


def _fleet_interval(
    deck: Deck, answers: Counts, users: Counts, pi: float, terms: tuple[float, float], alpha: float
) -> tuple[float, float]:
    complete = np.flatnonzero(users)
    work = deck.size * (deck.counts[1] + 1 if deck.faces == 3 else 1)
    if deck.faces <= 3 and len(complete) == 1 and int(users.sum()) == deck.size and work <= _EXACT_WORK:
        return exact_interval(deck, int(answers[0]), alpha)
    return score_interval(pi, *terms, two_sided_z(alpha), least=0.5 / int(users.sum()))


def _variance_terms(deck: Deck, users: Counts) -> tuple[float, float, int]:
    """Return (a, b) of the variance a - b (1 - 2 pi)^2 over all blocks, and how many blocks hold several decks."""
    total = float(users.sum())
    level = slope = 0.0
    shared = 0
    for count in users[users > 0].tolist():
        decks = -(-count // deck.size)
        shared += decks > 1
        a, b = deck.variance_terms(max(count // decks, 1))
        # Equal parts are the cautious reading: uneven ones would use their decks up further.
        level += count**2 * a / decks / total**2
        slope += count**2 * b / decks / total**2
    return level, slope, shared
