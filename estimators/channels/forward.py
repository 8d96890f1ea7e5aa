"""The forward step: a level that is added to a chain later, above the answers already given.

A device that has answered through a lower channel draws the sharper answer from its value and that answer. The law is
the one of a chain drawn from the top: Pr(upper | lower, x) = Q2(upper | x) K(lower | upper) / Q1(lower | x). All
probabilities are exact fractions and are compared lazily with random words, so nothing is rounded and the whole chain
costs exactly what its last channel costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from estimators.channels.bits import BitBlock, BitChannel, BitSampler
from estimators.channels.chain import LadderError, check_ladder
from estimators.channels.channel import Channel, ChannelError, Indices, RetentionChannel
from estimators.channels.dense_chain import Exact, solve_kernel
from estimators.exact.lazy import Bytes, CellSampler, bernoulli
from estimators.exact.randomness import Bits, below
from estimators.exact.rounding import GRID, exp_decimal, log_ratio_up


@dataclass(frozen=True)
class RetentionStep:
    """Keep or refresh, for channels that retain a value or replace it from one pool: O(1) for any number of values."""

    lower: RetentionChannel
    upper: RetentionChannel

    def __post_init__(self) -> None:
        if (self.lower.size, self.lower.pool) != (self.upper.size, self.upper.pool):
            raise ChannelError("both channels of a step need the same values and the same pool")
        if self.lower.keep * self.upper.denominator > self.upper.keep * self.lower.denominator:
            raise LadderError(
                f"the new level {self.upper.epsilon!r} must not be below the level {self.lower.epsilon!r} that was "
                "already released; an answer already given cannot be taken back",
                (),
            )

    @cached_property
    def keep_truth(self) -> Fraction:
        """Probability of keeping an answer that is the true value."""
        return self._keep(self.lower.keep + self.lower.base, self.upper.keep + self.upper.base)

    @cached_property
    def keep_lie(self) -> Fraction:
        """Probability of keeping an answer that is not the true value."""
        return self._keep(self.lower.base, self.upper.base)

    def _keep(self, lower: int, upper: int) -> Fraction:
        """Return r Q2 / Q1, where r is the ratio of the retentions: the denominators cancel."""
        if self.lower.keep * self.upper.denominator == self.upper.keep * self.lower.denominator:
            return Fraction(1)
        return Fraction(self.lower.keep * upper, self.upper.keep * lower)

    def draw(self, values: Indices, answers: Indices, bits: Bits) -> Indices:
        """Draw the sharper answers from the true values and the answers already given."""
        truthful = values == answers
        kept = truthful & (answers >= self.lower.pool)
        for group, odds in (
            (np.flatnonzero(truthful & ~kept), self.keep_truth),
            (np.flatnonzero(~truthful), self.keep_lie),
        ):
            kept[group] = bernoulli(odds, len(group), bits)
        refreshed = np.flatnonzero(~kept)
        drawn = answers.copy()
        drawn[refreshed] = self._fresh(values[refreshed], bits)
        return drawn

    def _fresh(self, values: Indices, bits: Bits) -> Indices:
        """Draw from the upper channel, which may be a product: its integers need not fit one random word."""
        told = bernoulli(Fraction(self.upper.keep, self.upper.denominator), len(values), bits)
        if told.all():
            return values
        return np.where(told, values, below(self.upper.pool, len(values), bits).astype(np.int64))


@dataclass(frozen=True)
class BitStep:
    """The forward step of bit vectors: every bit by its own exact odds."""

    lower: BitChannel
    upper: BitChannel

    @cached_property
    def odds(self) -> tuple[tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]], ...]:
        """Pr(upper bit = 1) per block as [value][lower bit]; a pair that cannot happen has 0."""
        return tuple(_bit_odds(low, high) for low, high in zip(self.lower.blocks, self.upper.blocks, strict=True))

    def draw(self, packed: Bytes, answers: Bytes, bits: Bits) -> Bytes:
        """Draw the sharper packed answers from packed true vectors and the packed answers already given."""
        drawn = np.zeros_like(answers)
        fresh = np.empty_like(answers)
        for value, given in product((0, 1), (0, 1)):
            self._samplers[value, given].fill(fresh, bits)
            drawn |= fresh & (packed if value else ~packed) & (answers if given else ~answers)
        return drawn

    @cached_property
    def _samplers(self) -> dict[tuple[int, int], BitSampler]:
        runs = list(zip(self.odds, self.upper.blocks, strict=True))
        return {
            (value, given): BitSampler(
                [odds[value][given].as_integer_ratio() for odds, run in runs for _ in range(run.size)]
            )
            for value, given in product((0, 1), (0, 1))
        }


def _bit_odds(low: BitBlock, high: BitBlock) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
    if Fraction(low.one, low.denominator) == Fraction(high.one, high.denominator) and Fraction(
        low.zero, low.denominator
    ) == Fraction(high.zero, high.denominator):
        return (Fraction(0), Fraction(1)), (Fraction(0), Fraction(1))
    kernel = solve_kernel(high.channel, _fractions(low.channel))
    _check_kernel(kernel)
    rows = forward_rows(low.channel, high.channel, kernel)
    zero, one = ((row[0], row[1]) for row in rows)
    return (_odds_of_one(zero[0]), _odds_of_one(zero[1])), (_odds_of_one(one[0]), _odds_of_one(one[1]))


def _odds_of_one(row: tuple[Fraction, ...] | None) -> Fraction:
    return Fraction(0) if row is None else row[1]


def _fractions(channel: Channel) -> Exact:
    return tuple(tuple(Fraction(e, channel.denominator) for e in channel.row(x)) for x in range(channel.inputs))


def _check_kernel(kernel: Exact) -> None:
    lowest = min(entry for row in kernel for entry in row)
    if lowest < 0:
        raise LadderError(
            f"the answers already given tell something that the new channel does not (the kernel would need a "
            f"probability of {float(lowest):.4g}); choose a sharper level",
            (),
        )


def forward_rows(lower: Channel, upper: Channel, kernel: Exact) -> list[list[tuple[Fraction, ...] | None]]:
    """Return Pr(upper answer | lower answer, value) exactly, as [value][lower]; None where it cannot happen."""
    low, high = _fractions(lower), _fractions(upper)
    return [
        [
            tuple(high[x][z] * kernel[z][y] / low[x][y] for z in range(upper.outputs)) if low[x][y] else None
            for y in range(lower.outputs)
        ]
        for x in range(lower.inputs)
    ]


@dataclass(frozen=True)
class DenseStep:
    """The forward step of small channels of any shape (at most 256 answers)."""

    lower: Channel
    upper: Channel
    kernel: Exact

    @classmethod
    def solve(cls, lower: Channel, upper: Channel) -> DenseStep:
        """Build the step below a square invertible upper channel."""
        return cls(lower, upper, solve_kernel(upper, _fractions(lower)))

    def __post_init__(self) -> None:
        _check_kernel(self.kernel)
        if any(
            sum(row[z] * entry[y] for z, entry in enumerate(self.kernel)) != target[y]
            for row, target in zip(_fractions(self.upper), _fractions(self.lower), strict=True)
            for y in range(self.lower.outputs)
        ):
            raise ChannelError("the kernel does not take the upper channel to the lower one")

    @cached_property
    def _samplers(self) -> list[list[CellSampler | None]]:
        return [
            [None if row is None else CellSampler(_integers(row)) for row in rows]
            for rows in forward_rows(self.lower, self.upper, self.kernel)
        ]

    def draw(self, values: Indices, answers: Indices, bits: Bits) -> Indices:
        """Draw the sharper answers from the true values and the answers already given."""
        drawn = np.empty_like(answers)
        for x, samplers in enumerate(self._samplers):
            for y, sampler in enumerate(samplers):
                group = np.flatnonzero((values == x) & (answers == y))
                if group.size:
                    if sampler is None:
                        raise ChannelError(f"value {x} never gives answer {y}; these are not the answers of this chain")
                    drawn[group] = sampler.draw(group.size, bits)
        return drawn


def _integers(row: tuple[Fraction, ...]) -> list[int]:
    common = math.lcm(*(entry.denominator for entry in row))
    return [int(entry * common) for entry in row]


def rounded_forward_ratio(ladder: Sequence[float], size: int, *, grid: int = GRID) -> Fraction | None:
    """Return e^epsilon, exactly, of a chain whose forward steps use thresholds rounded to 1 / grid; None: unbounded.

    This is what exact fractions avoid. A dynamic program over a pair of true values and where the answer is; see
    `rounded_forward_epsilon`.
    """
    check_ladder(ladder, highest=math.inf)
    if size == 1:
        return Fraction(1)
    truth, lie = _rounded_channel(ladder[0], size, grid)
    states = ("value", "rival", "elsewhere") if size > 2 else ("value", "rival")
    loss: dict[str, Fraction | None] = {
        "value": _ratio(truth, lie),
        "rival": _ratio(lie, truth),
        "elsewhere": Fraction(1),
    }
    for lower, upper in pairwise(ladder):
        if lower == upper:
            continue
        growth = [Fraction(exp_decimal(level)) for level in (lower, upper)]
        keep_lie = _threshold((growth[0] - 1) / (growth[1] - 1), grid)
        keep_truth = _threshold((1 - 1 / growth[0]) / (1 - 1 / growth[1]), grid)
        truth, lie = _rounded_channel(upper, size, grid)
        loss = _advance(loss, states, size, (keep_truth, keep_lie), (truth, lie))
    worst: Fraction | None = Fraction(0)
    for state in states:
        worst = _maximum(worst, loss[state])
    return worst


def rounded_forward_epsilon(ladder: Sequence[float], size: int, *, grid: int = GRID) -> float:
    """Return the exact loss of forward steps with rounded thresholds, rounded up; above the last level of the ladder.

    Raises LadderError for a ladder in which a threshold or its complement is 0: there the loss is unbounded.
    """
    ratio = rounded_forward_ratio(ladder, size, grid=grid)
    return math.inf if ratio is None else log_ratio_up(ratio.numerator, ratio.denominator)


def _rounded_channel(epsilon: float, size: int, grid: int) -> tuple[Fraction, Fraction]:
    growth = Fraction(exp_decimal(epsilon))
    truth = _threshold(growth / (growth + size - 1), grid)
    return truth, (1 - truth) / (size - 1)


def _threshold(odds: Fraction, grid: int) -> Fraction:
    nearest = round(odds * grid)
    if not 0 < nearest < grid:
        raise LadderError(
            f"a probability of {float(odds):.4g} is 0 or 1 on a grid of {grid}; the answers would give the value away; "
            "use a finer grid or a lower level",
            (),
        )
    return Fraction(nearest, grid)


def _ratio(up: Fraction, down: Fraction) -> Fraction | None:
    return up / down if down else None


def _maximum(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    """Return the larger of two ratios; None is infinite."""
    return None if left is None or right is None else max(left, right)


def _advance(
    loss: dict[str, Fraction | None],
    states: tuple[str, ...],
    size: int,
    keep: tuple[Fraction, Fraction],
    fresh: tuple[Fraction, Fraction],
) -> dict[str, Fraction | None]:
    def move(before: str, now: str, same: bool, own: str) -> Fraction:
        kept = keep[0] if before == own else keep[1]
        redrawn = (1 - kept) * (fresh[0] if now == own else fresh[1])
        return kept + redrawn if same else redrawn

    after: dict[str, Fraction | None] = dict.fromkeys(states, Fraction(0))
    for before in states:
        for now in states:
            # Two answers that are both elsewhere may be the same value, or different ones if there are enough.
            for same in (True, False) if before == now == "elsewhere" and size > 3 else (before == now,):
                up, down = move(before, now, same, "value"), move(before, now, same, "rival")
                if up:
                    base, ratio = loss[before], _ratio(up, down)
                    after[now] = _maximum(after[now], None if base is None or ratio is None else base * ratio)
    return after
