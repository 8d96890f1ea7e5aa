"""The baseline of gradual release as a survey: noisy samples of a permanent yes or no, then sharper answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from estimators.channels.channel import RetentionChannel
from estimators.channels.dense_chain import build_dense
from estimators.channels.response import EXACT
from estimators.channels.sampled import MAX_SAMPLES, count_laws, fewer_samples, from_response
from estimators.mechanism import ParameterError
from estimators.mechanisms.small_channel import Exact, SmallChannel, check_levels, check_values, growth
from estimators.mechanisms.warner import Warner
from estimators.parameters import real_number, refuse_unknown


class SampledWarner(SmallChannel):
    """Rung k tells how many of k + 1 noisy samples of a permanent answer said yes; rungs after them tell yes or no.

    What the paper compares gradual release with: the same cost on every rung, and wider bands from the second on.
    """

    name = Warner.name
    source = "Pan, Sec. 5.1 and 6 (noisy sampling, the baseline); sharper answers after it: relaxation of any bit"
    ladders = "The levels that 1, 2, ... noisy samples reach, then any higher ones."
    guarantee = Warner.guarantee

    def __init__(
        self, labels: Sequence[str], ladder: Sequence[float], *, permanent: float, sample: float, samples: int
    ) -> None:
        self.samples = samples
        kept, told = (EXACT.grr(level, 2).truth for level in (permanent, sample))
        answers = [count_laws(kept, told, k) for k in range(1, samples + 1)]
        answers += [_response(level) for level in ladder[samples:]]
        kernels = [fewer_samples(k) for k in range(2, samples + 1)]
        if len(ladder) > samples:
            kernels.append(from_response(answers[samples - 1], growth(ladder[samples])))
        kernels += [from_response(_response(lower), growth(upper)) for lower, upper in pairwise(ladder[samples:])]
        size = max(len(rows[0]) for rows in answers)
        chain = build_dense(
            ladder,
            [_wide(rows, size) for rows in answers],
            kernels=[_square(rows, size) for rows in kernels],
        )
        super().__init__(labels, ladder, chain)

    def warnings(self) -> tuple[str, ...]:
        """Return how much wider bands are than with sharper answers of the same cost."""
        last = self.samples - 1
        if last == 0:
            return ()
        half = (0.5, 0.5)
        spread = self.chain.channels[last].variances(half, 1)[1]
        relaxed = RetentionChannel.for_epsilon(self.ladder[last], 2).variances(half, 1)[1]
        sentence = (
            f"rungs 0 to {last} send noisy samples of a permanent answer, the baseline of a comparison: bands of "
            f"sharper answers of the same cost (relax = true) are {math.sqrt(spread / relaxed):.2f} times narrower on "
            f"rung {last}"
        )
        return (sentence,)

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> SampledWarner:
        """Build from two values, a ladder, and `permanent`, `sample` and `samples` of the samples."""
        refuse_unknown(parameters, ("permanent", "sample", "samples"), cls.name)
        check_values(cls.name, values, 2, "the answer of everybody else, then that of the sensitive group")
        samples = parameters["samples"]
        if not 1 <= samples <= MAX_SAMPLES:
            remedy = f"samples themselves are sent at most {MAX_SAMPLES} times; use fewer, or remove relax"
            raise ParameterError("release.rounds", samples, remedy)
        permanent, sample = (real_number(parameters, name) for name in ("permanent", "sample"))
        return cls(values, check_levels(ladder), permanent=permanent, sample=sample, samples=samples)


def _response(level: float) -> Exact:
    bit = EXACT.grr(level, 2)
    return (bit.truth, bit.lie), (bit.lie, bit.truth)


def _wide(rows: Exact, size: int) -> Exact:
    return tuple((*row, *(Fraction(0),) * (size - len(row))) for row in rows)


def _square(rows: Exact, size: int) -> Exact:
    """Fill up a kernel; answers that the rung above never gives become the first one."""
    never = (Fraction(1), *(Fraction(0),) * (size - 1))
    return (*_wide(rows, size), *(never,) * (size - len(rows)))
