"""Coarser answers made by the server: each level drawn once per report and stored.

The kernel of a chain turns a sharper answer into a coarser one without the person's help and at no cost, provided that
every buyer of a level sees the same draw: two independent draws of one level tell more than the level does. A level
between two stored ones is drawn from both of its neighbours (a bridge), so the order of requests does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from fractions import Fraction
from functools import cached_property

import numpy as np

from estimators.channels.chain import Chain
from estimators.channels.channel import ChannelError, RetentionChannel
from estimators.exact.lazy import bernoulli
from estimators.exact.randomness import Bits, below


class Downgrades:
    """Answers of all rungs of a retention chain, given the sharpest one; what was drawn is never drawn again.

    `stored` maps (report, rung) to an answer. Hand in a durable mapping to survive a restart; it must hold a draw
    before anyone sees it, which is why `answer` writes first and returns afterwards.
    """

    def __init__(self, chain: Chain, stored: MutableMapping[tuple[Hashable, int], int]) -> None:
        if not isinstance(chain.top, RetentionChannel):
            raise ChannelError("downgrades need a chain of retention channels (generalised randomized response)")
        self.chain = chain
        self.size, self.pool = chain.top.size, chain.top.pool
        self._stored = stored

    @cached_property
    def _kernels(self) -> tuple[RetentionChannel, ...]:
        kernels = tuple(kernel for kernel in self.chain.kernels if isinstance(kernel, RetentionChannel))
        assert len(kernels) == len(self.chain.kernels)
        return kernels

    def kernel_between(self, lower: int, upper: int) -> RetentionChannel:
        """Return the exact kernel from the answer of rung `upper` to the answer of rung `lower`."""
        product = RetentionChannel(self.size, self.pool, 1, 0)
        for rung in range(upper - 1, lower - 1, -1):
            below_it = product.then(self._kernels[rung])
            assert isinstance(below_it, RetentionChannel)
            product = below_it
        return product

    def receive(self, report: Hashable, rung: int, answer: int) -> None:
        """Store an answer that came from the device; another one for the same rung is refused."""
        self._check_rung(rung)
        if not 0 <= answer < self.size:
            raise ValueError(f"an answer must be in [0, {self.size}); got {answer}")
        if self._stored.setdefault((report, rung), answer) != answer:
            raise ValueError(f"rung {rung} of this report is already answered otherwise; a rung is never drawn twice")

    def answer(self, report: Hashable, rung: int, bits: Bits) -> int:
        """Return the stored answer of a rung, drawing it on the first request.

        Raises KeyError if the device has released nothing at this rung or above: only a sharper answer can be made
        coarser.
        """
        self._check_rung(rung)
        known = self._stored.get((report, rung))
        if known is not None:
            return known
        above = next((r for r in range(rung + 1, self.chain.rungs) if (report, r) in self._stored), None)
        if above is None:
            raise KeyError(f"no answer at rung {rung} or above; ask the device to release one")
        below_it = next((r for r in range(rung - 1, -1, -1) if (report, r) in self._stored), None)
        sharper = self._stored[report, above]
        kernel = self.kernel_between(rung, above)
        if below_it is None:
            drawn = _sample_exact(kernel, sharper, bits)
        else:
            lower = self.kernel_between(below_it, rung)
            drawn = _sample_bridge(lower, kernel, self._stored[report, below_it], sharper, bits)
        # Another process may have stored a draw meanwhile: the first one counts.
        return self._stored.setdefault((report, rung), drawn)

    def _check_rung(self, rung: int) -> None:
        if not 0 <= rung < self.chain.rungs:
            raise ValueError(f"the chain has rungs 0 to {self.chain.rungs - 1}; got {rung}")


def _sample_exact(kernel: RetentionChannel, given: int, bits: Bits) -> int:
    if bernoulli(Fraction(kernel.keep, kernel.denominator), 1, bits)[0]:
        return given
    return int(below(kernel.pool, 1, bits)[0])


def _sample_bridge(lower: RetentionChannel, upper: RetentionChannel, coarse: int, sharp: int, bits: Bits) -> int:
    """Draw y with Pr(y) proportional to lower(coarse | y) * upper(y | sharp)."""
    size, pool = upper.size, upper.pool
    special = sorted({coarse, sharp})
    weights = [_entry(lower, y, coarse) * _entry(upper, sharp, y) for y in special]
    others_inside = [y for y in special if y < pool]
    rest = pool - len(others_inside)
    # Every other value of the pool has the same weight; values outside it are reached only from themselves.
    weight_rest = lower.base * (coarse < pool) * upper.base * rest if size else 0
    total = sum(weights) + weight_rest
    if total == 0:
        raise ValueError("these two answers cannot belong to one chain")
    for y, weight in zip(special, weights, strict=True):
        if bernoulli(Fraction(weight, total), 1, bits)[0]:
            return y
        total -= weight
        if total == 0:
            return y
    place = int(below(rest, 1, bits)[0])
    candidates = np.setdiff1d(np.arange(pool), np.array(others_inside, dtype=np.int64))
    return int(candidates[place])


def _entry(channel: RetentionChannel, given: int, answer: int) -> int:
    return channel.keep * (given == answer) + channel.base * (answer < channel.pool)
