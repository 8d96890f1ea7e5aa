"""K-randomization (Zhilyaev & Zeber): the flip probability of a crowd, its total, and what one record pays alone.

Every record of L bits is sent k times, each bit flipped with probability q; only the total over N records is meant to
be seen. The rule of the paper bounds the likelihood ratio of that total within three standard deviations. That is a
statement about a crowd with an unstated chance of failure, not local differential privacy: `inference.crowd_delta`
computes that chance, and `local_epsilon` is what a record loses to anyone who sees its own reports.
"""

from __future__ import annotations

import math


def flip_probability(records: int, ratio: float, *, copies: int = 1, bits: int = 1) -> float:
    """Return the flip probability q of the paper's rule for at least `records` records (Eq. 0.19, 1.23 and 2.33).

    ratio: the bound lambda > 1 on the likelihood ratio at three standard deviations. Fix it from a guaranteed minimum
    size of a window before data arrive; a window that turns out smaller is less private than promised.
    """
    if records < 1 or copies < 1 or bits < 1:
        raise ValueError(f"records, copies and bits must be positive; got {records}, {copies} and {bits}")
    if not ratio > 1:
        raise ValueError(f"the likelihood ratio must exceed 1; got {ratio!r}")
    spread = math.expm1(-math.log(ratio) / copies) ** 2 * copies * records / 9
    excess = math.expm1(math.log1p(spread) / bits)
    return 2 / ((4 + excess) * (1 + math.sqrt(excess / (4 + excess))))


def check_flip(flip: float) -> None:
    """Refuse a flip probability outside (0, 1/2)."""
    if not 0 < flip < 0.5:
        raise ValueError(f"the flip probability must lie between 0 and 1/2; got {flip!r}")
