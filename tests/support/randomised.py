"""Randomised checks of a mechanism: laws of its draws, bias, coverage. Seeds are fixed; tails are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import one_hot, unpack
from estimators.channels.chain import Chain
from estimators.channels.channel import Channel
from estimators.estimates import Method
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Drawn, Specification
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from tests.support.checks import symbol_chains
from tests.support.mechanism import Mechanism
from tests.support.stats import SHARE, assert_binomial, assert_law, assert_normal

TallyOf = Callable[[Specification, Drawn, NDArray[np.int64]], Tally]
Symbols = NDArray[np.int64]


def check_draw_laws(mechanism: Mechanism, values: Sequence[Any], *, seed: int = 17) -> None:
    """The top answer follows the top channel, and every lower answer follows its kernel given the one above.

    Together with the exact enumeration of the battery this is the law of whole chains: a rung that is drawn afresh has
    the right marginals, and fails here.
    """
    bits = SeededBits(seed, "laws", mechanism.name)
    inputs = mechanism.encode(values, bits)
    answers = mechanism.draw(inputs, bits).answers
    for chain, truth, symbols in chain_symbols(mechanism, inputs, answers):
        check_channel_law(chain.top, truth, symbols[-1])
        for kernel, (lower, upper) in zip(chain.kernels, pairwise(symbols), strict=True):
            check_channel_law(kernel, upper, lower)


def check_channel_law(channel: Channel, given: Symbols, drawn: Symbols) -> None:
    """For every input, the outputs follow the channel's row."""
    for x in np.unique(given):
        counts = np.bincount(drawn[given == x], minlength=channel.outputs)
        assert_law(counts, np.array(channel.row(int(x)), dtype=np.float64) / channel.denominator)


def chain_symbols(
    mechanism: Mechanism, inputs: NDArray[Any], answers: NDArray[Any]
) -> Iterator[tuple[Chain, Symbols, Symbols]]:
    """Yield per chain of symbols: the chain, the true symbols, the answered symbols (rungs, count)."""
    chains = symbol_chains(mechanism)
    if isinstance(getattr(mechanism, "chain", None), BitChain):
        size = mechanism.answer.size
        packed = (
            one_hot(inputs, size) if inputs.ndim == 1 else np.ascontiguousarray(inputs[:, -mechanism.answer.width :])
        )
        truth = unpack(packed, size).astype(np.int64)
        told = np.array([unpack(rung, size) for rung in answers], dtype=np.int64)
        start = 0
        for chain, block in zip(chains, mechanism.chain.top.blocks, strict=True):
            part = slice(start, start + block.size)
            yield chain, truth[:, part].reshape(-1), told[:, :, part].reshape(len(told), -1)
            start += block.size
    elif mechanism.answer.kind == "index":
        for chain in chains:
            # A key-value answer is 3 * key + symbol; for all others the remainder is the symbol itself.
            yield chain, inputs % chain.top.inputs, answers.astype(np.int64) % chain.top.outputs


def check_unbiased(mechanism: Mechanism, values: Sequence[Any], *, method: Method, fleets: int = 150) -> None:
    """The average estimate of many small fleets is the truth; a clipped estimate is not.

    The average of `fleets` nearly normal estimates, held against its own standard error.
    """
    truth = mechanism.truth(values)
    found = np.array([_estimate(mechanism, values, fleet, method).value for fleet in range(fleets)])
    errors = found.std(axis=0, ddof=1) / np.sqrt(fleets)
    for mean, true, error in zip(found.mean(axis=0), truth, errors, strict=True):
        assert_normal(float(mean), float(true), float(error))


def check_coverage(
    mechanism: Mechanism, values: Sequence[Any], *, method: Method, fleets: int = 150, tally: TallyOf = tally_of
) -> None:
    """Intervals of 95 % hold the truth in at least 92 % of fleets (they are asymptotic), up to one share of chance."""
    truth = mechanism.truth(values)
    held = np.zeros(len(truth), dtype=np.int64)
    for fleet in range(fleets):
        found = _estimate(mechanism, values, fleet, method, tally)
        held += (found.lower <= truth) & (truth <= found.upper)
    for count in held:
        if count < 0.92 * fleets:
            assert_binomial(int(count), fleets, 0.92, share=SHARE / len(held))


def _estimate(
    mechanism: Mechanism, values: Sequence[Any], fleet: int, method: Method, tally: TallyOf = tally_of
) -> Any:
    bits = SeededBits(23, mechanism.name, fleet)
    drawn = mechanism.draw(mechanism.encode(values, bits), bits)
    rungs = (bits.words(len(values)) % np.uint64(mechanism.rungs)).astype(np.int64)
    return mechanism.estimate(tally(mechanism.specification, drawn, rungs), method=method)
