"""Noisy samples of a permanent answer, the baseline of gradual release (Pan, sections 5.1 and 6): what K of them cost.

A device draws a permanent answer once, by a channel at the level `permanent`, and then sends K samples of it, each
drawn from it by the same kind of channel at the level `sample`. The loss of all K together depends on the channel: the
formula of the paper (Eq. 65) is the one of a single bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitBlock, BitChannel

Floats = NDArray[np.float64]


def sampling_epsilon(permanent: float, sample: float, samples: int, size: int = 2) -> float:
    """Return the loss of `samples` noisy samples over `size` values together; tends to `permanent`.

    Two values: Pan, Eq. 65. More: ln((e^(a + Kb) + m - 1) / (e^(Kb) + e^a + m - 2)), reached where all samples agree.
    For uRR the values are the sensitive ones, one or more: an answer that is not sensitive has no finite loss.
    """
    total = samples * sample
    kept, told = -math.expm1(-permanent), -math.expm1(-total)
    low, high = math.exp(-permanent), math.exp(-total)
    rest = low + high + (size - 2) * low * high
    return math.inf if rest == 0 else math.log1p(kept * told / rest)


def sampling_ladder(permanent: float, sample: float, samples: int) -> list[float]:
    """Return the levels of one bit after 1, 2, ..., `samples` samples, to compare relaxation with sampling."""
    return [sampling_epsilon(permanent, sample, k) for k in range(1, samples + 1)]


def bit_losses(permanent: BitBlock, sample: BitBlock, samples: int, *, zeros_only: bool = False) -> tuple[float, float]:
    """Return ln max Pr(samples | 1) / Pr(samples | 0) and ln max Pr(samples | 0) / Pr(samples | 1) of one bit.

    With `zeros_only` only samples that are all 0 count.
    """
    whole, fine = permanent.denominator, sample.denominator
    one, zero, gap = permanent.one / whole, permanent.zero / whole, (permanent.one - permanent.zero) / whole
    # The likelihood of the samples under a permanent 1, divided by that under 0: smallest where all samples are 0.
    least = ((fine - sample.one) / (fine - sample.zero)) ** samples
    fall = math.log1p(gap * (1 - least) / ((whole - permanent.one) / whole + one * least))
    if zeros_only:
        return -fall, fall
    most = (sample.zero / sample.one) ** samples
    bottom = zero + (whole - permanent.zero) / whole * most
    return (math.log1p(gap * (1 - most) / bottom) if bottom else math.inf), fall


def one_hot_losses(permanent: BitChannel, sample: BitChannel, samples: int, *, quiet: Collection[int] = ()) -> float:
    """Return the loss between any two one-hot vectors; in the blocks `quiet` only samples without a one count."""
    losses = [
        bit_losses(own, noise, samples, zeros_only=i in quiet)
        for i, (own, noise) in enumerate(zip(permanent.blocks, sample.blocks, strict=True))
    ]
    blocks = permanent.blocks
    pairs = [
        rise + fall
        for (i, (rise, _)), (j, (_, fall)) in itertools.product(enumerate(losses), repeat=2)
        if i != j or blocks[i].size > 1
    ]
    # One value alone tells nothing; its level is then that of two values.
    return max(pairs, default=sum(losses[0]))


def sampled_logs(permanent: Floats, sample: Floats, samples: int) -> Floats:
    """Return ln Pr(a sequence of samples | value) as [value, counts], one sequence for each number of every answer.

    permanent: [value, answer]; sample: [answer, answer]. For a few answers: there are C(K + m - 1, m - 1) counts.
    """
    counts = np.array(list(_counts(samples, sample.shape[1])), dtype=np.int64)
    with np.errstate(divide="ignore"):
        logs, weights = np.log(sample), np.log(permanent)
    # [counts, permanent answer]; an answer that was never given does not matter, however impossible it is
    terms = np.where(counts[:, None, :] == 0, 0.0, counts[:, None, :] * np.where(counts[:, None, :] == 0, 0.0, logs))
    return np.asarray(np.logaddexp.reduce(weights[:, None, :] + terms.sum(axis=2)[None, :, :], axis=2))


def largest_loss(logs: Floats, value: int, other: int) -> float:
    """Return the largest ln Pr(samples | value) - ln Pr(samples | other)."""
    possible = np.isfinite(logs[value])
    return float(np.max(logs[value, possible] - logs[other, possible]))


def dense_losses(permanent: Floats, sample: Floats, samples: int) -> float:
    """Return the loss between any two values of a small channel."""
    logs = sampled_logs(permanent, sample, samples)
    return max(largest_loss(logs, x, y) for x, y in itertools.permutations(range(len(logs)), 2))


def _counts(samples: int, answers: int) -> Iterator[tuple[int, ...]]:
    if answers == 1:
        yield (samples,)
        return
    for first in range(samples + 1):
        for rest in _counts(samples - first, answers - 1):
            yield (first, *rest)
