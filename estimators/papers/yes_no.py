"""Yes-or-no surveys in closed form: Warner, Simmons, Christofides, and how they compare (Sun, Yan & Zhou, corrected).

pi is the share of the sensitive group, N the number of respondents. Variances are for the fixed population that
answered, unless a name says otherwise. Answers are counted as they come: no clipping to [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from estimators.channels.decks import Cards
from estimators.channels.response import REAL
from estimators.channels.rows import Rows


@dataclass(frozen=True)
class SamplingVariances:
    """One mechanism, three targets: those who answered, the population they were drawn from, an unlimited one."""

    fixed_population: float
    without_replacement: float
    """Respondents are a simple random sample without replacement, and the population's share is meant."""
    with_replacement: float


def sampling_variances(mechanism_variance: float, pi: float, sample: int, population: int) -> SamplingVariances:
    """Add to the variance of the answers what drawing `sample` of `population` people adds."""
    spread = pi * (1.0 - pi)
    finite = (1.0 / sample - 1.0 / population) * population / (population - 1) * spread if population > 1 else 0.0
    return SamplingVariances(mechanism_variance, mechanism_variance + finite, mechanism_variance + spread / sample)


def warner_probability(epsilon: float) -> float:
    """Return p = 1 / (e^eps + 1), the branch in which the truth is the rarer answer (Sun et al., Thm 5.1)."""
    return REAL.grr(epsilon, 2).lie


def warner_epsilon(p: float) -> float:
    """Return |ln((1 - p) / p)|."""
    return abs(math.log((1.0 - p) / p))


def warner_rows(p: float) -> Rows:
    """Return the channel; rows are no and yes, columns the answers no and yes."""
    return ((p, 1.0 - p), (1.0 - p, p))


def warner_share(yes: int, total: int, p: float) -> float:
    """Return the unbiased share of the sensitive group."""
    return (yes / total - (1.0 - p)) / (2.0 * p - 1.0)


def warner_variance(total: int, p: float) -> float:
    """Return the variance of `warner_share` for a fixed population; the same for every share."""
    return p * (1.0 - p) / (total * (2.0 * p - 1.0) ** 2)


def warner_sampling_variance_estimate(yes: int, total: int, p: float) -> float:
    """Return the unbiased estimate of the variance when respondents are independent draws; total >= 2."""
    rate = yes / total
    return rate * (1.0 - rate) / ((total - 1) * (2.0 * p - 1.0) ** 2)


def simmons_rows(p: float, coin: float) -> Rows:
    """Return the channel: the sensitive question with probability p, otherwise a secret coin with Pr(yes) = coin."""
    yes = (1.0 - p) * coin
    return ((1.0 - yes, yes), (1.0 - p - yes, p + yes))


def simmons_epsilon(p: float, coin: float) -> float:
    """Return ln(1 + p / ((1 - p) min(coin, 1 - coin))); true only if the coin is secret and fresh."""
    rarer = min(coin, 1.0 - coin)
    return math.inf if rarer == 0.0 or p == 1.0 else math.log1p(p / ((1.0 - p) * rarer))


def simmons_probability(epsilon: float, coin: float) -> float:
    """Return the probability of the sensitive question that spends exactly `epsilon`."""
    odds = math.expm1(epsilon) * min(coin, 1.0 - coin)
    return odds / (1.0 + odds)


def simmons_share(yes: int, total: int, p: float, coin: float) -> float:
    """Return the unbiased share of the sensitive group."""
    return (yes / total - (1.0 - p) * coin) / p


def simmons_variance(pi: float, total: int, p: float, coin: float) -> float:
    """Return the variance for a fixed population and fresh coins (Sun et al., Eq. 2, with the lost factor pi)."""
    lie = (1.0 - p) * coin
    return (lie - lie * lie) / (total * p * p) + pi * (1.0 - p) * (1.0 - 2.0 * coin) / (total * p)


def simmons_attribute_variance(pi: float, total: int, p: float, coin: float) -> float:
    """Return the variance if the unrelated question is a fixed attribute of people: what one must not build.

    With an attribute the loss is infinite for a collector who knows it; the formula is here for comparison only.
    """
    return (1.0 - p) * (pi * (1.0 - coin) + (1.0 - pi) * coin) / (total * p)


def mean_answer(counts: Sequence[int]) -> float:
    """Return the mean face answered, faces 1..L counted in `counts`."""
    return sum(k * count for k, count in enumerate(counts, 1)) / sum(counts)


def christofides_share(counts: Sequence[int], cards: Cards) -> float:
    """Return the unbiased share of the sensitive group."""
    return (mean_answer(counts) - cards.mean) / cards.delta


def christofides_variance(total: int, cards: Cards) -> float:
    """Return the variance for a fixed population with independently drawn cards."""
    return cards.variance / (total * cards.delta**2)


def three_cards(epsilon: float, middle: float) -> tuple[float, float, float]:
    """Return the best probabilities of three faces when the middle one has probability `middle` (Thm 5.5)."""
    low = (1.0 - middle) * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    return low, middle, (1.0 - middle) / (1.0 + math.exp(-epsilon))


def card_spread(epsilon: float, middle: float) -> float:
    """Return B = (e^eps + 1)^2 / ((e^eps - 1)^2 (1 - p2)) - 1, on which both Christofides variances hang."""
    return 1.0 / (math.tanh(epsilon / 2.0) ** 2 * (1.0 - middle)) - 1.0


def three_card_variance(total: int, epsilon: float, middle: float) -> float:
    """Return the variance with independently drawn cards."""
    return card_spread(epsilon, middle) / (4.0 * total)


def dealt_card_variance(pi: float, total: int, epsilon: float, middle: float) -> float:
    """Return the variance when the cards are dealt from a deck of exactly `total` cards; total >= 2."""
    return pi * (1.0 - pi) / (total - 1) * card_spread(epsilon, middle)


def best_warner_variance(total: int, epsilon: float) -> float:
    """Return e^eps / (N (e^eps - 1)^2): Warner, and Simmons with a fair coin."""
    return 1.0 / (4.0 * total * math.sinh(epsilon / 2.0) ** 2)


def dealt_to_drawn_ratio(pi: float, total: int) -> float:
    """Return the variance of dealt cards over that of drawn ones: 4 pi (1 - pi) N / (N - 1), whatever the cards."""
    return 4.0 * pi * (1.0 - pi) * total / (total - 1)


def dealt_minus_warner(pi: float, total: int, epsilon: float, middle: float) -> float:
    """Return by how much dealt cards are worse than Warner (Thm 6.1, with its lost factor N)."""
    growth, lift = math.exp(epsilon), math.expm1(epsilon)
    numerator = total * (4.0 * growth + lift * lift * middle) * pi * (1.0 - pi) - (total - 1) * (1.0 - middle) * growth
    return numerator / (total * (total - 1) * lift * lift * (1.0 - middle))


@dataclass(frozen=True)
class Crossings:
    """Between warner_low and warner_high Warner beats dealt cards; between drawn_low and drawn_high drawn cards do."""

    warner_low: float
    warner_high: float
    drawn_low: float
    drawn_high: float

    @property
    def warner_length(self) -> float:
        """Length of the interval in which Warner is better than dealt cards (Table 1)."""
        return self.warner_high - self.warner_low


def crossings(total: int, epsilon: float, middle: float) -> Crossings:
    """Return the shares at which the order of the variances changes (Sun et al., Eq. 5 and Thm 4.2)."""
    bend = 4.0 * math.sinh(epsilon / 2.0) ** 2
    half = 0.5 * math.sqrt(1.0 - (total - 1) / total * (1.0 - middle) / (1.0 + middle * bend / 4.0))
    drawn = 0.5 / math.sqrt(total)
    return Crossings(0.5 - half, 0.5 + half, 0.5 - drawn, 0.5 + drawn)


@dataclass(frozen=True)
class SampleSizes:
    """Respondents needed for a wanted variance."""

    warner: int
    drawn_cards: int
    dealt_cards: int


def sample_sizes(pi: float, variance: float, epsilon: float, middle: float) -> SampleSizes:
    """Return the smallest numbers of respondents that reach `variance` (Sun et al., Table 2, recomputed)."""
    spread = card_spread(epsilon, middle)
    return SampleSizes(
        warner=math.ceil(1.0 / (4.0 * math.sinh(epsilon / 2.0) ** 2 * variance)),
        drawn_cards=math.ceil(spread / (4.0 * variance)),
        dealt_cards=math.ceil(1.0 + pi * (1.0 - pi) * spread / variance),
    )
