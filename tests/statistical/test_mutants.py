"""Broken mechanisms must fail the checks: a battery that passes everything would be worth nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import BitBlock, BitChannel
from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.estimates import Estimates
from estimators.estimation.symbols import RetentionEstimator
from estimators.exact.randomness import Bits
from estimators.mechanism import Drawn, Specification
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.symbols import SymbolRandomizer
from estimators.mechanisms.unary import OUE, UnaryRandomizer
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from tests.statistical.test_draws import without_last
from tests.support.checks import check_chain_law, check_cost, check_estimates, check_integers
from tests.support.mechanism import whole
from tests.support.randomised import check_coverage, check_draw_laws, check_unbiased
from tests.support.simulate import simulated_values

LABELS = ("a", "b", "c", "d")
LADDER = (0.5, 1.0, 2.0)


class SwappedOdds(UnaryRandomizer):
    """Draws with p and q exchanged; the server does not know."""

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        def swapped(channel: BitChannel) -> BitChannel:
            return BitChannel(tuple(BitBlock(b.size, b.zero, b.one, b.denominator) for b in channel.blocks))

        chain = BitChain(swapped(self.specification.chain.top), self.specification.chain.kernels)
        return Drawn(chain.draw_one_hot(inputs, bits), np.zeros(len(inputs), dtype=np.uint16))


class RedrawnRung(SymbolRandomizer):
    """Draws every rung afresh: each answer by itself is right, together they cost the sum."""

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        known = self.specification
        answers = np.array(
            [RetentionChannel.for_epsilon(level, len(known.labels)).sample(inputs, bits) for level in known.ladder]
        )
        return Drawn(known.symbols(answers), np.zeros(len(inputs), dtype=np.uint16))


class LiesThatMissTheTruth(SymbolRandomizer):
    """Replaces by one of the other values only, at the probability meant for all of them."""

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        drawn = super().draw(inputs, bits)
        kept = bits.words(len(inputs)) < np.uint64(self.specification.chain.top.keep)  # type: ignore[attr-defined]
        values = len(self.specification.labels)
        shifted = (inputs + 1 + bits.words(len(inputs)).astype(np.int64) % (values - 1)) % values
        drawn.answers[-1] = np.where(kept, inputs, shifted)
        return drawn


class ClippedEstimator(RetentionEstimator):
    """Cuts estimates to [0, 1] and scales them to one."""

    def estimate(self, tally: Tally, **options: Any) -> Estimates:
        found = super().estimate(tally, **options)
        clipped = np.clip(found.value, 0.0, 1.0)
        return replace(found, value=clipped / clipped.sum())


class OverspendingTop(GRR):
    """Claims the ladder, but was built for a level five per cent higher."""

    def __init__(self, labels: tuple[str, ...], ladder: tuple[float, ...]) -> None:
        super().__init__(labels, ladder)
        self.chain = Chain.retention([*self.ladder[:-1], self.ladder[-1] * 1.05], len(labels))


def every_answer(mechanism: Specification, drawn: Drawn, rungs: NDArray[np.int64]) -> Tally:
    """Count all answers of a finished chain as if they were people: an average of rungs."""
    parts = (tally_of(mechanism, drawn, np.full_like(rungs, rung)) for rung in range(mechanism.rungs))
    return sum(parts, start=Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells))


def caught(check: Any, *arguments: Any, **options: Any) -> None:
    with pytest.raises(AssertionError):
        check(*arguments, **options)


@pytest.mark.statistical
def test_exchanged_odds_are_caught() -> None:
    oue = OUE(LABELS, LADDER)
    mutant = whole(oue, randomizer=SwappedOdds(oue))
    values = simulated_values(mutant, 5_000, 1)
    caught(check_draw_laws, mutant, values)
    caught(check_estimates, mutant)


@pytest.mark.statistical
def test_a_redrawn_rung_is_caught_although_every_rung_by_itself_is_right() -> None:
    grr = GRR(LABELS, LADDER)
    mutant = whole(grr, randomizer=RedrawnRung(grr))
    check_estimates(mutant)
    caught(check_draw_laws, mutant, simulated_values(mutant, 20_000, 2))


@pytest.mark.statistical
def test_lies_that_never_hit_the_truth_are_caught() -> None:
    grr = GRR(LABELS, LADDER)
    mutant = whole(grr, randomizer=LiesThatMissTheTruth(grr))
    caught(check_draw_laws, mutant, simulated_values(mutant, 20_000, 3))


@pytest.mark.statistical
def test_a_clipped_estimator_is_caught() -> None:
    grr = GRR(LABELS, LADDER)
    values = without_last(LABELS, simulated_values(whole(grr), 600, 4))
    check_unbiased(whole(grr), values, method="stratified")
    caught(check_unbiased, whole(grr, estimator=ClippedEstimator(grr)), values, method="stratified")


@pytest.mark.statistical
def test_an_average_of_rungs_is_caught() -> None:
    # Earlier answers of a chain tell nothing new: intervals that count them as people are too narrow.
    ladder = (0.8, 0.85, 0.9, 0.95, 1.0)
    grr = whole(GRR(LABELS, ladder))
    values = simulated_values(grr, 800, 5)
    check_coverage(grr, values, method="stratified")
    caught(check_coverage, grr, values, method="stratified", tally=every_answer)


def test_a_level_that_is_overspent_is_caught() -> None:
    caught(check_cost, whole(OverspendingTop(LABELS, LADDER)))


def test_a_kernel_that_is_off_by_one_unit_is_caught() -> None:
    chain = Chain.retention(LADDER, 3)
    kernel = chain.kernels[0]
    assert isinstance(kernel, RetentionChannel)
    off = Chain(chain.top, (replace(kernel, keep=kernel.keep - 3, base=kernel.base + 1), *chain.kernels[1:]))
    # Nothing is wrong with another kernel by itself; what was promised for the rung no longer holds.
    check_integers(off)
    check_chain_law(off)
    assert off.channels[0].epsilon <= chain.channels[0].epsilon
    object.__setattr__(off, "channels", chain.channels)
    caught(check_integers, off)
    caught(check_chain_law, off)
