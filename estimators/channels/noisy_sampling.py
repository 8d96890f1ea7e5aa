"""RAPPOR's noisy sampling of a permanent bit, the baseline of gradual release (Pan, sections 5.1 and 6).

A bit is kept with probability e^a / (e^a + 1) once and for all, then sampled K times, each time told with probability
e^b / (e^b + 1).
"""

from __future__ import annotations

import math


def sampling_epsilon(permanent: float, sample: float, samples: int) -> float:
    """Return the level of `samples` noisy samples together (Pan, Eq. 65); tends to `permanent`."""
    total = samples * sample
    low, high = min(permanent, total), max(permanent, total)
    if math.isinf(low):
        return low
    if low < 1:
        return 2.0 * math.atanh(math.tanh(low / 2) * math.tanh(high / 2))
    return low + math.log1p(math.exp(-(low + high))) - math.log1p(math.exp(-(high - low)))


def sampling_ladder(permanent: float, sample: float, samples: int) -> list[float]:
    """Return the levels after 1, 2, ..., `samples` samples: a ladder to compare relaxation with sampling."""
    return [sampling_epsilon(permanent, sample, k) for k in range(1, samples + 1)]
