"""Chains of small channels of any shape: real matrices in, integers on the grid out, never costlier than declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from estimators.channels.chain import Chain, LadderError, check_ladder
from estimators.channels.channel import Channel, ChannelError, DenseChannel, RetentionChannel
from estimators.exact.rounding import GRID

Real = Fraction | Decimal | float | int
Rows = Sequence[Sequence[Real]]
Exact = tuple[tuple[Fraction, ...], ...]
Cost = Callable[[Channel], float]

# A kernel entry that is negative by less than this is a rounding of zero: levels may come as floats.
_ROUNDING = Fraction(1, 10**12)
# Mixing makes up for rounding only; a channel that needs more of it was meant for another level.
_MAX_SHARE = Fraction(1, 1 << 40)


def local_cost(channel: Channel) -> float:
    """Return the loss of local differential privacy: the default price of a channel."""
    return channel.epsilon


def build_dense(
    ladder: Sequence[float], levels: Sequence[Rows], *, kernels: Sequence[Rows] | None = None, cost: Cost = local_cost
) -> Chain:
    """Build the chain whose rung i is levels[i] (rows: true values) and costs at most ladder[i].

    kernels[i] takes answers of rung i + 1 to answers of rung i; where they are not given, the levels must be square and
    invertible, and the kernel is solved for exactly. Raises LadderError when a lower rung cannot be drawn from the
    answer of the rung above.
    """
    check_ladder(ladder)
    if len(levels) != len(ladder):
        raise ChannelError(f"{len(ladder)} levels of epsilon need as many channels; got {len(levels)}")
    top: Channel = on_grid(levels[-1], ladder[-1], cost=cost)
    below: list[Channel] = []
    above = top
    for rung in range(len(ladder) - 2, -1, -1):
        kernel: Channel
        if exact_rows(levels[rung]) == exact_rows(levels[rung + 1]):
            kernel = RetentionChannel(above.outputs, above.outputs, GRID, 0)
        else:
            real = exact_rows(kernels[rung]) if kernels is not None else solve_kernel(above, levels[rung])
            lowest = min(entry for row in real for entry in row)
            if lowest < -_ROUNDING:
                raise LadderError(
                    f"level {ladder[rung]!r} cannot be drawn from the answer of level {ladder[rung + 1]!r}: the kernel "
                    f"would need a probability of {float(lowest):.4g}; it tells something that the level above does "
                    "not, so leave one of the two out",
                    (*ladder[:rung], *ladder[rung + 1 :]),
                )
            kernel = on_grid(_without_rounding(real), ladder[rung], above=above, cost=cost)
        below.append(kernel)
        above = above.then(kernel)
    return Chain(top, tuple(reversed(below)))


def on_grid(rows: Rows, epsilon: float, *, above: Channel | None = None, cost: Cost = local_cost) -> DenseChannel:
    """Round a channel (or a kernel below `above`) to the 2**64 grid so that it costs at most `epsilon`.

    Impossible answers stay impossible where rounding alone is enough; where it is not, rows are mixed with their mean
    by as little as it takes, which can only make the channel tell less.
    """
    exact = exact_rows(rows)
    mean = tuple(sum(column, Fraction(0)) / len(exact) for column in zip(*exact, strict=True))
    share = Fraction(0)
    while True:
        mixed = tuple(tuple(e * (1 - share) + m * share for e, m in zip(row, mean, strict=True)) for row in exact)
        rounded = DenseChannel(tuple(_round_row(row) for row in mixed))
        costs = cost(rounded if above is None else above.then(rounded))
        if costs <= epsilon:
            return rounded
        share = max(2 * share, Fraction(1, GRID >> 2))
        if share > _MAX_SHARE:
            raise ChannelError(f"this channel costs {costs!r}, more than its level {epsilon!r}; raise the level")


def exact_rows(rows: Rows) -> Exact:
    """Return the rows as fractions; floats are taken at their exact value."""
    return tuple(tuple(Fraction(entry) for entry in row) for row in rows)


def solve_kernel(above: Channel, target: Rows) -> Exact:
    """Return K with above K = target exactly; `above` must be square and invertible."""
    size = above.inputs
    if above.outputs != size:
        raise ChannelError("only a square channel determines its kernel; pass the kernels")
    left = [[Fraction(entry, above.denominator) for entry in above.row(x)] for x in range(size)]
    right = [list(row) for row in exact_rows(target)]
    for pivot in range(size):
        best = max(range(pivot, size), key=lambda i: abs(left[i][pivot]))
        if left[best][pivot] == 0:
            raise ChannelError("this channel cannot be inverted; pass the kernels")
        left[pivot], left[best] = left[best], left[pivot]
        right[pivot], right[best] = right[best], right[pivot]
        scale = left[pivot][pivot]
        left[pivot] = [entry / scale for entry in left[pivot]]
        right[pivot] = [entry / scale for entry in right[pivot]]
        for i in range(size):
            if i != pivot and left[i][pivot]:
                factor = left[i][pivot]
                left[i] = [a - factor * b for a, b in zip(left[i], left[pivot], strict=True)]
                right[i] = [a - factor * b for a, b in zip(right[i], right[pivot], strict=True)]
    return tuple(tuple(row) for row in right)


def _without_rounding(rows: Exact) -> Exact:
    positive = [[max(entry, Fraction(0)) for entry in row] for row in rows]
    return tuple(tuple(entry / sum(row) for entry in row) for row in positive)


def _round_row(row: Sequence[Fraction]) -> tuple[int, ...]:
    """Round to integers that sum to the grid; what is left goes to the largest entry, where it matters least."""
    total = sum(row)
    rounded = [int(entry * GRID / total) for entry in row]
    largest = max(range(len(rounded)), key=lambda i: rounded[i])
    rounded[largest] += GRID - sum(rounded)
    return tuple(rounded)
