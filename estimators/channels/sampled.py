"""Noisy samples of a permanent yes or no, and the step from them to randomized response.

The number of ones among the samples is all that they tell. Read as one answer per rung it is a chain like any other:
the count after k samples is drawn from that after k + 1 by leaving one of them out. And whatever costs at most epsilon
about a bit can be drawn from randomized response at epsilon, so a client that has sent its samples may go on with
sharper answers, at the cost of the last one alone (relaxation by degradation, for any channel with two inputs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.channel import DenseChannel, RetentionChannel
from estimators.channels.dense_chain import Exact
from estimators.channels.forward import DenseStep
from estimators.channels.response import EXACT
from estimators.exact.randomness import Bits, SecureBits

MAX_SAMPLES = 32
"""More samples add next to nothing, and their exact probabilities have thousands of digits."""


def count_laws(kept: Fraction, told: Fraction, samples: int) -> Exact:
    """Return Pr(t ones among the samples | the bit is 0) and the same for 1, exactly.

    kept: chance that the permanent bit is the true one; told: chance that a sample is the permanent bit.
    """
    ones = [math.comb(samples, t) * told**t * (1 - told) ** (samples - t) for t in range(samples + 1)]
    if_one = tuple(kept * a + (1 - kept) * b for a, b in zip(ones, reversed(ones), strict=True))
    return tuple(reversed(if_one)), if_one


def fewer_samples(samples: int) -> Exact:
    """Return the kernel from the number of ones among `samples` to that among one sample less, each left out alike."""
    rows = []
    for ones in range(samples + 1):
        row = [Fraction(0)] * samples
        if ones < samples:
            row[ones] += Fraction(samples - ones, samples)
        if ones:
            row[ones - 1] += Fraction(ones, samples)
        rows.append(tuple(row))
    return tuple(rows)


def from_response(laws: Exact, growth: Fraction) -> Exact:
    """Return the kernel from randomized response at e^epsilon = growth to what has these laws under 0 and 1.

    It has negative entries if the laws cost more than epsilon.
    """
    zero, one = laws
    return tuple(
        tuple((growth * mine - other) / (growth - 1) for mine, other in zip(*pair, strict=True))
        for pair in ((zero, one), (one, zero))
    )


@dataclass(frozen=True)
class Migration:
    """The step of one bit from noisy samples already sent to randomized response; exact, nothing is rounded.

    >>> step = Migration.for_levels(permanent=1.0, sample=0.5, samples=3, upper=1.0)
    >>> step.epsilon
    1.0
    """

    lower: DenseChannel
    upper: RetentionChannel

    @classmethod
    def for_levels(cls, permanent: float, sample: float, samples: int, upper: float) -> Migration:
        """Build for a bit whose permanent answer had the level `permanent` and each sample the level `sample`."""
        kept, told = (EXACT.grr(level, 2).truth for level in (permanent, sample))
        return cls.for_chances(kept, told, samples, upper)

    @classmethod
    def for_chances(cls, kept: Fraction, told: Fraction, samples: int, upper: float) -> Migration:
        """Build from the chances that the permanent bit was true and that a sample told the permanent bit."""
        if not 1 <= samples <= MAX_SAMPLES:
            raise ValueError(f"a client has sent 1 to {MAX_SAMPLES} samples; got {samples}")
        if not (Fraction(1, 2) < kept < 1 and Fraction(1, 2) < told < 1):
            raise ValueError("both chances lie above 1/2 and below 1: exchange 0 and 1 where one does not")
        laws = count_laws(kept, told, samples)
        common = math.lcm(*(entry.denominator for row in laws for entry in row))
        lower = DenseChannel(tuple(tuple(int(entry * common) for entry in row) for row in laws))
        return cls(lower, RetentionChannel.for_epsilon(upper, 2))

    @property
    def epsilon(self) -> float:
        """What samples and the new answer cost together, for one bit: the cost of the new answer alone."""
        return self.upper.epsilon

    @cached_property
    def _step(self) -> DenseStep:
        return DenseStep.solve(self.lower, self.upper)

    def draw(self, values: ArrayLike, ones: ArrayLike, bits: Bits) -> NDArray[np.int64]:
        """Draw the sharper bits from the true bits and the numbers of ones that were sent about them."""
        drawn = self._step.draw(np.asarray(values, dtype=np.int64), np.asarray(ones, dtype=np.int64), bits)
        return np.asarray(drawn)


def migrate(
    values: Sequence[int] | NDArray[np.int64],
    ones: Sequence[int] | NDArray[np.int64],
    samples: int,
    /,
    *,
    permanent: float,
    sample: float,
    upper: float,
    bits: Bits | None = None,
) -> NDArray[np.int64]:
    """Return sharper bits of clients that have sent noisy samples of a permanent answer, at no cost beyond the new one.

    values: the true bits, such as those of a Bloom filter; ones: how many of the `samples` sent about each were 1.
    permanent and sample are the levels of one bit that the client used, upper is the level of one bit that it changes
    to: the samples and the new bit together cost exactly `upper`, and the new bit is an answer of randomized response
    at that level. Draw once and keep the result: a second draw would cost more. Without `bits` the operating system's
    secure generator is used.

    >>> from estimators.exact.randomness import SeededBits
    >>> migrate([1, 0, 1], [4, 1, 2], 5, permanent=1.0, sample=0.5, upper=3.0, bits=SeededBits(1)).tolist()
    [1, 0, 1]

    Raises:
        LadderError: the samples already cost more than `upper`; choose a higher level.
        ValueError: the number of samples or a level is out of range.
    """
    step = Migration.for_levels(permanent, sample, samples, upper)
    return step.draw(values, ones, SecureBits() if bits is None else bits)
