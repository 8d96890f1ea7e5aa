"""When can a coarser answer be drawn from a sharper one? Closed forms for every family, in floats.

A channel Q1 is a degradation of Q2 when Q2 K = Q1 for a stochastic kernel K. Then a device that has answered through Q1
may answer through Q2 later, and both answers together tell exactly what the second one tells. Where Q2 takes only two
values per column (randomized response, subset selection), this is also the only way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.response import REAL, Response
from estimators.channels.rows import channel_matrix, club_rows
from estimators.planning.degradation import ROUNDING, Degradation

Floats = NDArray[np.float64]


def by_inversion(lower: ArrayLike, upper: ArrayLike) -> Degradation:
    """Return the only candidate kernel below a square invertible channel."""
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    return Degradation(low, high, np.asarray(np.linalg.solve(high, low)))


def bit_channel(one: float, zero: float) -> Floats:
    """Return the channel of a bit with Pr(1 | 1) = one and Pr(1 | 0) = zero."""
    return np.array([[1 - zero, zero], [1 - one, one]])


def bit(lower: tuple[float, float], upper: tuple[float, float]) -> Degradation:
    """Relax a bit from (one, zero) to sharper probabilities; possible iff neither answer's likelihood ratio falls."""
    (p1, q1), (p2, q2) = lower, upper
    gap = p2 - q2
    if lower == upper:
        kernel = np.eye(2)
    elif gap == 0:
        if p1 != q1:
            raise ValueError(f"a bit that tells nothing {upper!r} cannot be sharper than {lower!r}; raise the level")
        kernel = np.array([[1 - p1, p1], [1 - p1, p1]])
    else:
        if_zero, if_one = (q1 * p2 - p1 * q2) / gap, (p1 * (1 - q2) - q1 * (1 - p2)) / gap
        kernel = np.array([[1 - if_zero, if_zero], [1 - if_one, if_one]])
    return Degradation(bit_channel(p1, q1), bit_channel(p2, q2), kernel)


def pair(response: Response[float]) -> tuple[float, float]:
    """Return Pr(1 | 1) and Pr(1 | 0)."""
    return response.truth, response.lie


def sue(lower: float, upper: float) -> Degradation:
    """Relax a bit of symmetric unary encoding; possible for every rise."""
    return bit(pair(REAL.sue(lower)), pair(REAL.sue(upper)))


def oue(lower: float, upper: float) -> Degradation:
    """Relax a bit of optimised unary encoding; possible for every rise, and the kernel is a symmetric flip."""
    flip = 0.0 if lower == upper else math.expm1(-(upper - lower)) / math.expm1(-upper) * REAL.grr(lower, 2).lie
    kernel = np.array([[1 - flip, flip], [flip, 1 - flip]])
    return Degradation(bit_channel(*pair(REAL.oue(lower))), bit_channel(*pair(REAL.oue(upper))), kernel)


def sue_to_oue_possible(lower: float, upper: float) -> bool:
    """Tell whether a chain may go from symmetric to optimised unary: iff e^(lower/2) <= 2 e^upper/(1 + e^upper)."""
    return math.exp(lower / 2) <= 2 * REAL.grr(upper, 2).truth


def oue_to_sue_minimum(lower: float) -> float:
    """Return the least level of symmetric unary encoding above optimised unary encoding at `lower`."""
    return 2 * (lower + math.log1p(math.exp(-lower)) - math.log(2))


def warner(lower: float, upper: float) -> Degradation:
    """Relax Warner's response with truth probabilities `lower` and `upper`; the kernel flips both ways alike."""
    flip = warner_flip(lower, upper)
    kernel = np.array([[1 - flip, flip], [flip, 1 - flip]])
    return Degradation(bit_channel(lower, 1 - lower), bit_channel(upper, 1 - upper), kernel)


def warner_flip(lower: float, upper: float) -> float:
    """Return how often the lower answer of Warner's response differs from the upper one."""
    return (1 - (2 * lower - 1) / (2 * upper - 1)) / 2


def simmons_bit(truth: float, unrelated: float) -> tuple[float, float]:
    """Return Pr(yes | 1) and Pr(yes | 0) when the truth is told with `truth` and else a coin with `unrelated`."""
    return truth + (1 - truth) * unrelated, (1 - truth) * unrelated


def simmons(lower: tuple[float, float], upper: tuple[float, float]) -> Degradation:
    """Relax Simmons' response, given as (truth, unrelated); with the same coin possible for every rise of truth."""
    return bit(simmons_bit(*lower), simmons_bit(*upper))


@dataclass(frozen=True, eq=False)
class ReplacementDegradation(Degradation):
    """The kernel of a mixture: the upper answer stays with probability `kept`, otherwise it is replaced."""

    kept: float


def replacement(lower: tuple[float, Sequence[float]], upper: tuple[float, Sequence[float]]) -> ReplacementDegradation:
    """Relax retention-replacement, given as (retention, law of the replacement).

    Possible iff (1 - s1) / s1 * law1(y) >= (1 - s2) / s2 * law2(y) for every y.
    """
    (s1, law1), (s2, law2) = (lower[0], np.asarray(lower[1])), (upper[0], np.asarray(upper[1]))
    size = len(law1)
    kept = s1 / s2
    kernel = kept * np.eye(size) + ((1 - s1) * law1 - kept * (1 - s2) * law2)[None, :]
    return ReplacementDegradation(_replaced(s1, law1), _replaced(s2, law2), kernel, kept)


def _replaced(kept: float, law: Floats) -> Floats:
    return np.asarray(kept * np.eye(len(law)) + (1 - kept) * law[None, :])


def utility_optimized(
    size: int, lower: tuple[float, Collection[int]], upper: tuple[float, Collection[int]]
) -> ReplacementDegradation:
    """Relax the utility-optimised response over values 0..size - 1, given as (epsilon, sensitive values).

    Possible iff the level does not fall and no value becomes sensitive; a value that stops being sensitive loses its
    protection at that step.
    """
    return replacement(_sensitive_law(size, *lower), _sensitive_law(size, *upper))


def _sensitive_law(size: int, epsilon: float, sensitive: Collection[int]) -> tuple[float, list[float]]:
    if not sensitive:
        return 1.0, [1 / size] * size
    return REAL.grr(epsilon, len(sensitive)).slope, [(x in sensitive) / len(sensitive) for x in range(size)]


@dataclass(frozen=True, eq=False)
class KeyValueDegradation(Degradation):
    """The kernel of the three-symbol response of Ma & Wang, with the eigenvalues that decide about it."""

    mu: float
    nu: float


def key_value_channel(key: float, sign: float) -> Floats:
    """Return the symmetric three-symbol response: key and sign each kept as a bit at their level."""
    keep = REAL.grr(key, 2).truth
    return club_rows(keep, keep, REAL.grr(sign, 2).truth)


def key_value(lower: tuple[float, float], upper: tuple[float, float]) -> KeyValueDegradation:
    """Relax the three-symbol response, given as levels of (key, sign); raising the key's level alone never works."""
    p1, p2 = REAL.grr(lower[0], 2).truth, REAL.grr(upper[0], 2).truth
    mu = 1.0 if lower[0] == upper[0] else math.tanh(lower[0] / 2) / math.tanh(upper[0] / 2)
    nu = p1 / p2 * (1.0 if lower[1] == upper[1] else math.tanh(lower[1] / 2) / math.tanh(upper[1] / 2))
    near, far = (1 + mu) / 4 + nu / 2, (1 + mu) / 4 - nu / 2
    kernel = np.array(
        [[(1 + mu) / 2, (1 - mu) / 4, (1 - mu) / 4], [(1 - mu) / 2, near, far], [(1 - mu) / 2, far, near]]
    )
    return KeyValueDegradation(key_value_channel(*lower), key_value_channel(*upper), kernel, mu, nu)


def cards_channel(deck: Sequence[float]) -> Floats:
    """Return Christofides' response: a card k is told as it is, or as L + 1 - k by those who have the attribute."""
    return np.array([list(deck), list(reversed(deck))])


def cards_possible(lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Tell whether Christofides' response with three cards can be relaxed, for any two decks."""
    (p1, _, p3), (q1, _, q3) = _oriented(lower), _oriented(upper)
    return p1 * q3 <= q1 * p3 + ROUNDING and p1 - p3 <= q1 - q3 + ROUNDING


def cards(lower: Sequence[float], upper: Sequence[float]) -> Degradation:
    """Relax Christofides' response with three cards, drawn with replacement.

    With the same middle card the kernel leaves the middle answer alone and flips the outer two. Otherwise mass moves
    between the middle and the outside by as little as it takes.
    """
    (p1, p2, p3), (q1, q2, q3) = _oriented(lower), _oriented(upper)
    kept = (p1 - p3) / (q1 - q3)
    outwards = max(0.0, (1 - p2 / q2) / 2) if q2 > 0 else 0.0
    inwards = max(0.0, p2 - q2) / (q1 + q3)
    stay, cross = (1 - inwards + kept) / 2, (1 - inwards - kept) / 2
    kernel = np.array([[stay, inwards, cross], [outwards, 1 - 2 * outwards, outwards], [cross, inwards, stay]])
    if tuple(lower) != _oriented(lower):
        kernel = kernel[:, ::-1]
    if tuple(upper) != _oriented(upper):
        kernel = kernel[::-1, :]
    return Degradation(cards_channel(lower), cards_channel(upper), kernel)


def _oriented(deck: Sequence[float]) -> tuple[float, float, float]:
    first, middle, last = deck
    return (first, middle, last) if first >= last else (last, middle, first)


def repetition_kernel(copies: int) -> Floats:
    """Return the law of the number of ones among `copies` answers given that among one more: drop one at random."""
    kernel = np.zeros((copies + 2, copies + 1))
    for ones in range(copies + 2):
        if ones <= copies:
            kernel[ones, ones] = (copies + 1 - ones) / (copies + 1)
        if ones:
            kernel[ones, ones - 1] = ones / (copies + 1)
    return kernel


def to_response(if_one: ArrayLike, if_zero: ArrayLike, upper: float) -> Degradation:
    """Relax any transcript about a bit to randomized response at `upper`; possible iff the transcript costs no more.

    if_one and if_zero are the laws of the transcript. The same bit must be behind both: the permanent step is dropped.
    """
    a, b = np.asarray(if_one, dtype=np.float64), np.asarray(if_zero, dtype=np.float64)
    # Divided by e^upper: (a - e^-u b) / (1 - e^-u).
    small, scale = math.exp(-upper), -math.expm1(-upper)
    kernel = np.array([(b - small * a) / scale, (a - small * b) / scale])
    return Degradation(np.array([b, a]), channel_matrix(upper, 2), kernel)


def to_grr(lower: ArrayLike, upper: float) -> Degradation:
    """Relax any channel over m values to generalised randomized response at `upper`.

    Possible iff (e^upper + m - 1) Q(s | y) >= sum over x of Q(s | x) for all s and y; `to_grr_sufficient` is enough.
    """
    low = np.asarray(lower, dtype=np.float64)
    size = len(low)
    small = math.exp(-upper)
    kernel = ((1 + (size - 1) * small) * low - small * low.sum(axis=0)[None, :]) / -math.expm1(-upper)
    return Degradation(low, channel_matrix(upper, size), kernel)


def to_grr_sufficient(lower: float, size: int) -> float:
    """Return the level of generalised randomized response that lies above any channel of level `lower`."""
    return math.log1p((size - 1) * math.expm1(lower))


def complement_channel(epsilon: float, size: int) -> Floats:
    """Return the channel that says its own value least, and every other one e^eps times as often."""
    low = REAL.grr(epsilon, 2).lie / (REAL.grr(epsilon, 2).lie + (size - 1) * REAL.grr(epsilon, 2).truth)
    matrix = np.full((size, size), (1 - low) / (size - 1))
    np.fill_diagonal(matrix, low)
    return matrix


def subset_retention(epsilon: float, size: int, chosen: int) -> float:
    """Return the share of truth in subset selection (`chosen` of `size` values), a mixture with uniform subsets."""
    with_value = -math.expm1(-epsilon) * math.comb(size - 1, chosen - 1)
    return with_value / (with_value + math.exp(-epsilon) * math.comb(size, chosen))


def subset_kept(lower: float, upper: float, size: int, chosen: int) -> float:
    """Return how often the lower subset is the upper one; otherwise it is a uniform subset."""
    return subset_retention(lower, size, chosen) / subset_retention(upper, size, chosen)


def repeated_response_minimum(copies: int, upper: float) -> float:
    """Return the least flip probability of a response that can be drawn from `copies` responses of level upper/copies.

    It is the Bayes error of the repetition: a single response below it would tell more.
    """
    told = REAL.grr(upper / copies, 2).truth
    if_one = np.array([math.comb(copies, t) * told**t * (1 - told) ** (copies - t) for t in range(copies + 1)])
    return float(np.minimum(if_one, if_one[::-1]).sum() / 2)
