"""Linear estimates of one rung: invert the channel, and say how far the inverse scatters.

The inverse is unbiased, sums to one and may leave [0, 1]. Its covariance is given for both population models: around
the true shares of the devices that answered (fleet), and around the shares of a larger population of which those
devices are a random sample (sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels import moments
from estimators.channels.nested import Retaining
from estimators.channels.response import REAL, Response
from estimators.estimates import Population

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

RANK_TOLERANCE = 1e-12
"""Below this ratio of singular values a channel counts as one that cannot be inverted."""


@dataclass(frozen=True)
class Rungs:
    """The rungs of a retention family that carry information, as arrays.

    The answer v has probability sigma[g] * share[v] + base[g, v] on rung g. Rungs without users, and rungs whose
    answers do not depend on the value, are left out; `uninformative` counts the users on the latter.
    """

    sigma: Floats
    base: Floats
    counts: Floats
    users: Floats
    uninformative: int

    @classmethod
    def of(cls, channels: Sequence[Retaining], counts: Counts, users: Counts) -> Rungs:
        """Read channels and a tally's counts [rung, value] and users [rung]."""
        counts, users = np.asarray(counts), np.asarray(users)
        check_tally(len(channels), channels[0].size if channels else 0, counts, users)
        if not np.array_equal(counts.sum(axis=1), users):
            raise ValueError(
                f"every user gives one answer, so counts must add up to users; got {counts.sum(axis=1).tolist()} and "
                f"{users.tolist()}"
            )
        informative = np.array([channel.keep > 0 for channel in channels])
        used = np.flatnonzero(informative & (users > 0))
        chosen = [channels[int(g)] for g in used]
        size = channels[0].size
        sigma = np.array([channel.retention for channel in chosen])
        base = np.array([channel.response.lie for channel in chosen]).reshape(len(chosen), size)
        uninformative = int(users[~informative].sum())
        return cls(sigma, base, counts[used].astype(np.float64), users[used].astype(np.float64), uninformative)

    @classmethod
    def at_levels(cls, epsilons: Sequence[float], counts: ArrayLike, *, pool: int | None = None) -> Rungs:
        """Build generalised randomized response at real levels from counts [rung, value]; for planning and checks.

        With `pool` sensitive values listed first it is the utility-optimised response.
        """
        tallied = np.asarray(counts, dtype=np.float64)
        size = tallied.shape[1]
        pool = size if pool is None else pool
        used = [g for g, epsilon in enumerate(epsilons) if tallied[g].sum() > 0 and (epsilon > 0 or size == 1)]
        base = np.zeros((len(used), size))
        for row, g in zip(base, used, strict=True):
            row[:pool] = REAL.grr(epsilons[g], pool).lie
        sigma = np.array([REAL.grr(epsilons[g], pool).slope for g in used])
        chosen = tallied[used]
        return cls(sigma, base, chosen, chosen.sum(axis=1), int(tallied.sum() - chosen.sum()))

    @property
    def size(self) -> int:
        """Number of values."""
        return int(self.base.shape[1])

    @cached_property
    def total(self) -> float:
        """Users on all rungs that carry information."""
        return float(self.users.sum())

    @cached_property
    def observed(self) -> Floats:
        """Observed share of every answer, [rung, value]."""
        return np.asarray(self.counts / self.users[:, None])

    @cached_property
    def inverted(self) -> Floats:
        """Unbiased shares per rung, [rung, value]: (observed - base) / sigma."""
        return np.asarray((self.observed - self.base) / self.sigma[:, None])

    def answer_shares(self, shares: Floats) -> Floats:
        """Return Pr(answer v) on each rung when values have these shares, [rung, value]."""
        return np.asarray(self.sigma[:, None] * shares + self.base)


def check_tally(rungs: int, cells: int, counts: Counts, users: Counts) -> None:
    """Refuse counts and users that cannot belong to `rungs` channels with `cells` answers."""
    if rungs == 0:
        raise ValueError("at least one rung is needed; got no channels")
    if counts.shape != (rungs, cells) or users.shape != (rungs,):
        raise ValueError(
            f"counts must have shape {(rungs, cells)} and users {(rungs,)}; got {counts.shape} and {users.shape}"
        )
    if counts.min(initial=0) < 0 or users.min(initial=0) < 0:
        raise ValueError("a tally with negative counts took back more than was added; rebuild it from the log")


def retention_estimate(sigma: float, base: Floats, counts: Floats) -> Floats:
    """Return (observed share - base) / sigma, the unbiased shares of one rung; NaN without users or information.

    >>> retention_estimate(0.5, np.array([0.25, 0.25]), np.array([6.0, 4.0])).round(3).tolist()
    [0.7, 0.3]
    """
    users = float(np.sum(counts))
    if users == 0 or sigma == 0:
        return np.full(len(counts), np.nan)
    return np.asarray((np.asarray(counts) / users - base) / sigma)


def retention_covariance(sigma: float, base: Floats, shares: Floats, users: float, population: Population) -> Floats:
    """Return the covariance [value, value] of one rung's inverse when the shares are known (Pan, Appendix G)."""
    truth = sigma + base
    response = Response(truth, base, np.asarray(sigma), 1.0 - truth)
    return moments.retention_covariance(shares, 1, response, population=population) / users


def unbiased_covariance(sigma: Floats | float, counts: ArrayLike) -> Floats:
    """Return the unbiased estimate (diag(m) - m m') / ((n - 1) sigma^2) of the sampling covariance of one rung.

    NaN for fewer than two users.
    """
    tallied = np.asarray(counts, dtype=np.float64)
    users = float(tallied.sum())
    if users < 2:
        return np.full((len(tallied), len(tallied)), np.nan)
    return np.asarray(_multinomial(tallied / users) / ((users - 1.0) * np.multiply(sigma, sigma)))


def bit_estimates(truth: ArrayLike, lie: ArrayLike, ones: ArrayLike, users: int) -> tuple[Floats, Floats]:
    """Return unbiased shares of ones per bit, and unbiased estimates of their sampling variances, for one rung.

    NaN without users; NaN variances for one user.
    """
    chance = np.asarray(lie, dtype=np.float64)
    slope = np.asarray(truth, dtype=np.float64) - chance
    if users == 0:
        return np.full(slope.shape, np.nan), np.full(slope.shape, np.nan)
    observed = np.asarray(ones, dtype=np.float64) / users
    variance = observed * (1.0 - observed) / slope**2 / (users - 1.0) if users > 1 else np.full(slope.shape, np.nan)
    return np.asarray((observed - chance) / slope), np.asarray(variance)


def dense_inverse(matrix: Floats) -> Floats | None:
    """Return R [answer, value] with matrix @ R = 1, so that observed @ R is unbiased; None if there is none.

    With more answers than values the inverse is not unique; the one that is best when all values are equally common
    is taken. It does not depend on the data, so the estimate stays unbiased.
    """
    answers = matrix.mean(axis=0)
    used = answers > 0
    weighted = matrix[:, used] / answers[used]
    information = weighted @ matrix[:, used].T
    singular = np.linalg.svd(information, compute_uv=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0]:
        return None
    inverse = np.zeros((matrix.shape[1], matrix.shape[0]))
    square = matrix.shape[0] == int(used.sum())
    inverse[used] = np.linalg.inv(matrix[:, used]) if square else np.linalg.solve(information, weighted).T
    return inverse


def dense_covariance(matrix: Floats, shares: Floats, users: float, population: Population) -> Floats:
    """Return the covariance of `dense_inverse`'s estimate when the shares are known; NaN if there is no inverse."""
    inverse = dense_inverse(matrix)
    if inverse is None:
        return np.full((matrix.shape[0], matrix.shape[0]), np.nan)
    return moments.dense_covariance(matrix, inverse, shares, 1, population=population) / users


def clip_to_simplex(shares: Floats, floor: float = 0.0) -> Floats:
    """Clip to [floor, 1] and renormalise: a point inside the simplex for plug-in variances, never an estimate."""
    clipped = np.clip(shares, floor, 1.0)
    total = clipped.sum()
    return np.asarray(clipped / total) if total > 0 else np.full(len(shares), 1.0 / len(shares))


def _multinomial(shares: Floats) -> Floats:
    return np.asarray(np.diag(shares) - np.outer(shares, shares))
