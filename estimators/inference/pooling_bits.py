"""Bit vectors on mixed rungs: every bit is a yes/no question of its own.

A bit that is truly one is reported as one with probability p, a zero with probability q; both may differ from bit to
bit and from rung to rung. Shares of different bits need not add up to one, so each bit is pooled alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.inference.homogeneity import bits_homogeneity
from estimators.inference.inversion import check_tally
from estimators.inference.pooling_result import (
    PILOT_FLOOR,
    SCORING_STEPS,
    SCORING_TOLERANCE,
    Combined,
    Pool,
    choose_method,
    uninformative_notes,
)
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import check_alpha
from estimators.intervals.rung_shares import pooled_ends, stratified_ends, stratified_variance

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_BISECTIONS = 60


@dataclass(frozen=True)
class BitRungs:
    """Bits of all rungs as arrays [rung, bit]; users is 0 where a rung tells nothing about a bit."""

    truth: Floats
    lie: Floats
    ones: Floats
    users: Floats

    @classmethod
    def of(cls, p: Floats, q: Floats, ones: Counts, users: Counts) -> BitRungs:
        """Check shapes and ranges; rungs without users or with p = q are switched off for that bit."""
        ones, users = np.asarray(ones), np.asarray(users)
        truth, lie = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        if ones.ndim != 2 or truth.shape != ones.shape or lie.shape != ones.shape:
            raise ValueError(f"p, q and ones need one shape [rung, bit]; got {truth.shape}, {lie.shape}, {ones.shape}")
        check_tally(ones.shape[0], ones.shape[1], ones, users)
        if np.any(ones > users[:, None]):
            raise ValueError(
                "a bit cannot be one more often than there are users; counts and users do not belong together"
            )
        if np.any((truth < 0) | (truth > 1) | (lie < 0) | (lie > 1)):
            raise ValueError("p and q are probabilities; got values outside [0, 1]")
        live = np.where(truth != lie, users[:, None], 0).astype(np.float64)
        return cls(truth, lie, np.where(live > 0, ones, 0).astype(np.float64), live)

    @cached_property
    def sigma(self) -> Floats:
        """Truth minus lie; 1 where the rung is switched off, so that division is safe."""
        return np.where(self.users > 0, self.truth - self.lie, 1.0)

    @cached_property
    def observed(self) -> Floats:
        """Observed share of ones; the lie where the rung is switched off."""
        return np.asarray(np.divide(self.ones, self.users, out=self.lie.copy(), where=self.users > 0))

    @cached_property
    def questions(self) -> YesNo:
        """The bits as yes/no questions."""
        return YesNo(self.truth, self.lie, self.ones, self.users)

    @cached_property
    def total(self) -> Floats:
        """Users per bit."""
        return np.asarray(self.users.sum(axis=0))

    def answer_shares(self, shares: Floats) -> Floats:
        """Return Pr(one) per rung and bit when bits are truly one with these shares."""
        return np.asarray(self.lie + (self.truth - self.lie) * shares)


def pool_bits(
    labels: Sequence[str],
    p: Floats,
    q: Floats,
    ones: Counts,
    users: Counts,
    *,
    method: Method = "pooled",
    population: Population = "fleet",
    alpha: float = 0.05,
) -> Estimates:
    """Estimate the share of ones of every bit from ones [rung, bit] and users [rung].

    p and q [rung, bit] are Pr(1|1) and Pr(1|0). A bit that no rung tells anything about is NaN. The homogeneity test
    is the smallest p-value of the bits, times the number of bits tested.
    """
    check_alpha(alpha)
    return combine_bits(labels, p, q, ones, users, method=method, population=population).estimates(alpha)


def combine_bits(
    labels: Sequence[str],
    p: Floats,
    q: Floats,
    ones: Counts,
    users: Counts,
    *,
    method: Method,
    population: Population,
) -> Pool:
    """Combine the rungs of every bit, for intervals at any error rate."""
    labels = tuple(labels)
    bits = BitRungs.of(p, q, ones, users)
    if bits.ones.shape[1] != len(labels):
        raise ValueError(f"{len(labels)} labels for {bits.ones.shape[1]} bits; give one label per bit")
    informative = bits.users.max(axis=1, initial=0.0) > 0
    uninformative = int(np.asarray(users)[~informative].sum())
    notes = uninformative_notes(uninformative)
    if not informative.any():
        return Pool.empty(labels, method, population, notes)
    homogeneity_p = bits_homogeneity(bits.truth, bits.lie, bits.ones, bits.users)
    chosen, notes = choose_method(method, homogeneity_p, int(informative.sum()), notes)
    if chosen == "stratified" or int((bits.users > 0).sum(axis=0).max()) <= 1:
        found = bits_stratified(bits, population)
    else:
        found, settled = bits_pooled(bits, population)
        if not settled:
            notes = (*notes, f"pooling stopped after {SCORING_STEPS} steps without settling")
    if chosen == "mle":
        found = found.inside(bits_mle(bits))
    found = found.without(bits.total == 0)
    answered = int(np.asarray(users)[informative].sum())
    return Pool(labels, found, answered, chosen, population, homogeneity_p, notes)


def bits_stratified(bits: BitRungs, population: Population) -> Combined:
    """Return the mean of all debiased bits."""
    weights = bits.users / np.maximum(bits.total, 1.0)
    inverted = (bits.observed - bits.lie) / bits.sigma

    def ends(alpha: float) -> tuple[Floats, Floats]:
        return stratified_ends(bits.questions, alpha=alpha, population=population)

    return Combined((weights * inverted).sum(axis=0), stratified_variance(bits.questions, population), ends)


def bits_pooled(bits: BitRungs, population: Population) -> tuple[Combined, bool]:
    """Weigh rungs by their information about each bit, iterated; return the estimates and whether they settled."""
    inverted = (bits.observed - bits.lie) / bits.sigma
    shares = bits_stratified(bits, population).shares
    settled, pilot = False, shares
    for _ in range(SCORING_STEPS):
        pilot = np.clip(shares, PILOT_FLOOR, 1.0 - PILOT_FLOOR)
        information = _information(bits, pilot)
        total = np.maximum(information.sum(axis=0), np.finfo(float).tiny)
        following = (information * inverted).sum(axis=0) / total
        settled = bool(np.all(np.abs(following - shares) <= SCORING_TOLERANCE / np.sqrt(total)))
        shares = following
        if settled:
            break
    variance = _information_variance(bits, pilot, population)

    def ends(alpha: float) -> tuple[Floats, Floats]:
        return pooled_ends(
            bits.questions, estimate=shares, deviation=np.sqrt(variance), alpha=alpha, population=population
        )

    return Combined(shares, variance, ends), settled


def bits_mle(bits: BitRungs) -> Floats:
    """Return the maximum-likelihood share of every bit in [0, 1]: the root of a falling score, by bisection."""
    low, high = np.zeros(bits.ones.shape[1]), np.ones(bits.ones.shape[1])
    at_zero, at_one = _score(bits, low), _score(bits, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        rising = _score(bits, middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    inside = (low + high) / 2
    return np.where(at_zero <= 0, 0.0, np.where(at_one >= 0, 1.0, inside))


def _information(bits: BitRungs, shares: Floats) -> Floats:
    answers = bits.answer_shares(shares)
    spread = answers * (1.0 - answers)
    squared = bits.users * (bits.truth - bits.lie) ** 2
    return np.asarray(np.divide(squared, spread, out=np.zeros_like(spread), where=spread > 0))


def _information_variance(bits: BitRungs, shares: Floats, population: Population) -> Floats:
    """Return the inverse information per bit, less the part that is not an error about this fleet; NaN at 0 and 1."""
    information = _information(bits, shares)
    total = information.sum(axis=0)
    inverse = np.divide(1.0, total, out=np.full_like(total, np.nan), where=(total > 0) & (shares > 0) & (shares < 1))
    if population == "sampling":
        return np.asarray(inverse)
    weights = information * inverse
    spread = shares * (1.0 - shares)
    users = np.maximum(bits.users, 1.0)
    between = (weights**2 / users).sum(axis=0)
    shrink = spread * (1.0 - between) / np.maximum(bits.total - 1.0, 1.0)
    return np.asarray(np.where(bits.total > 1, np.maximum(inverse - shrink, 0.0), inverse))


def _score(bits: BitRungs, shares: Floats) -> Floats:
    answers = bits.answer_shares(shares)
    zeros = bits.users - bits.ones
    slope = bits.truth - bits.lie
    with np.errstate(divide="ignore"):
        from_ones = np.divide(bits.ones, answers, out=np.zeros_like(answers), where=bits.ones > 0)
        from_zeros = np.divide(zeros, 1.0 - answers, out=np.zeros_like(answers), where=zeros > 0)
        # At the ends one part can be infinite; it then decides alone, and both cannot be.
        return np.asarray((slope * (from_ones - from_zeros)).sum(axis=0))
