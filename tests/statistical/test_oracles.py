"""Independent implementations agree: pure-ldp, multi-freq-ldpy, OpenDP, dp-accounting.

Formulas are compared to rounding. Where a peer draws, its answers must follow our exact channel: one share of the
budget each (1e-10), with the peer's own generator, which cannot be seeded from here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.privacy_loss_distribution import PrivacyLossDistribution
from scipy.stats import binom

from estimators.channels import crowd
from estimators.channels.bits import unpack
from estimators.channels.channel import RetentionChannel
from estimators.exact.randomness import SeededBits
from estimators.inference.likelihood import water_fill
from estimators.papers import crowd as crowd_paper
from estimators.tally import Tally
from tests.support.mechanism import Mechanism
from tests.support.mechanism import build as built
from tests.support.peers import multi_freq_ldpy, pure_ldp
from tests.support.stats import assert_law

LABELS = ("a", "b", "c", "d", "e")
COUNTS = np.array([310, 250, 190, 140, 110])


def _untyped(function: Any) -> Any:
    return function


def build(name: str, epsilon: float) -> Mechanism:
    return built(name, LABELS, [epsilon], {})


def tally(counts: np.ndarray, users: int) -> Tally:
    return Tally(counts.reshape(1, 1, -1).astype(np.int64), np.array([[users]]))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_pure_ldp_has_the_same_probabilities_and_estimates(epsilon: float) -> None:
    direct, unary = pure_ldp("direct_encoding"), pure_ldp("unary_encoding")
    channel = RetentionChannel.for_epsilon(epsilon, 5)
    client, server = direct.DEClient(epsilon, 5), direct.DEServer(epsilon, 5)
    assert (channel.truth, channel.lie) == pytest.approx((client.p, client.q), rel=1e-14)
    for value, count in enumerate(COUNTS):
        for _ in range(count):
            server.aggregate(value)
    theirs = [server.estimate(value, suppress_warnings=True) for value in range(1, 6)]
    ours = build("grr", epsilon).estimate(tally(COUNTS, 1000))
    assert ours.value * 1000 == pytest.approx(theirs, rel=1e-9)
    for name, optimised in (("sue", False), ("oue", True)):
        server = unary.UEServer(epsilon, 5, use_oue=optimised)
        rows = np.arange(1000)[:, None] < 2 * COUNTS
        for row in rows:
            server.aggregate(row)
        theirs = [server.estimate(value, suppress_warnings=True) for value in range(1, 6)]
        ours = build(name, epsilon).estimate(tally(2 * COUNTS, 1000))
        assert ours.value * 1000 == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@pytest.mark.statistical
def test_answers_of_multi_freq_ldpy_follow_our_channels() -> None:
    grr, unary = multi_freq_ldpy("GRR"), multi_freq_ldpy("UE")
    answers = [grr.GRR_Client(1, 5, 1.0) for _ in range(20_000)]
    assert_law(np.bincount(answers, minlength=5), RetentionChannel.for_epsilon(1.0, 5).matrix[1])
    for name, optimised in (("sue", False), ("oue", True)):
        drawn = np.array([unary.UE_Client(1, 5, 1.0, optimised) for _ in range(4_000)])
        channel = build(name, 1.0).chain.channels[0]
        for bit in range(5):
            chance = channel.ones[bit] if bit == 1 else channel.zeros[bit]
            assert_law(np.bincount(drawn[:, bit].astype(int), minlength=2), [1 - chance, chance])


def test_multi_freq_ldpy_estimates_the_same_inside_the_simplex() -> None:
    grr, unary = multi_freq_ldpy("GRR"), multi_freq_ldpy("UE")
    reports = np.repeat(np.arange(5), COUNTS)
    theirs = grr.GRR_Aggregator_MI(reports, 5, 3.0)
    assert build("grr", 3.0).estimate(tally(COUNTS, 1000)).value == pytest.approx(theirs, rel=1e-9)
    oue = build("oue", 3.0)
    drawn = oue.draw(oue.encode([LABELS[i] for i in reports], SeededBits(1)), SeededBits(2))
    bits = unpack(drawn.answers[0], 5)
    ours = oue.estimate(tally(bits.sum(axis=0), 1000)).value
    # It clips at zero and scales to one; ours stays unbiased, so it is compared after the same treatment.
    assert ours.clip(0) / ours.clip(0).sum() == pytest.approx(unary.UE_Aggregator_MI(bits, 3.0, True), rel=1e-9)


def test_the_iterated_bayesian_update_converges_to_our_closed_form() -> None:
    grr = multi_freq_ldpy("GRR")
    counts = np.array([500, 300, 120, 50, 30])
    theirs = grr.GRR_Aggregator_IBU(np.repeat(np.arange(5), counts), 5, 1.5, nb_iter=50_000, tol=1e-15)
    channel = RetentionChannel.for_epsilon(1.5, 5)
    ours = water_fill(counts.astype(float), np.full(5, channel.lie / channel.retention))
    assert ours is not None
    assert (ours == 0).any(), "the example must touch the border, where inversion fails"
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.statistical
def test_opendp_charges_the_same_and_draws_the_same() -> None:
    dp.enable_features("contrib")
    make, make_bool = _untyped(dp.m.make_randomized_response), _untyped(dp.m.make_randomized_response_bool)
    for epsilon in (0.1, 1.0, 4.0):
        channel = RetentionChannel.for_epsilon(epsilon, 5)
        peer = make(categories=list(LABELS), prob=channel.truth)
        assert peer.map(1) == pytest.approx(channel.epsilon, rel=1e-12)
        binary = RetentionChannel.for_epsilon(epsilon, 2)
        assert make_bool(prob=binary.truth).map(1) == pytest.approx(binary.epsilon, rel=1e-12)
    channel = RetentionChannel.for_epsilon(1.0, 5)
    peer = make(categories=list(LABELS), prob=channel.truth)
    drawn = [LABELS.index(peer("c")) for _ in range(20_000)]
    assert_law(np.bincount(drawn, minlength=5), channel.matrix[2])


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_dp_accounting_finds_the_same_loss_of_randomized_response(epsilon: float) -> None:
    channel = RetentionChannel.for_epsilon(epsilon, 4)
    # Its noise parameter is the chance of a uniform draw over all values, the true one included.
    peer = PrivacyLossDistribution.from_randomized_response(1 - channel.retention, 4)
    assert peer.get_epsilon_for_delta(0.0) == pytest.approx(channel.epsilon, abs=2e-4)
    # Two windows with a chain each cost twice as much, and not less.
    twice = peer.self_compose(2)
    assert twice.get_delta_for_epsilon(2 * channel.epsilon + 4e-4) < 1e-12
    assert twice.get_delta_for_epsilon(2 * channel.epsilon - 1e-2) > 1e-6


@pytest.mark.parametrize(("records", "copies"), [(1000, 1), (300, 4)])
def test_dp_accounting_finds_the_same_failure_chance_of_a_crowd(records: int, copies: int) -> None:
    flip, trials = crowd.flip_probability(records, 2.0, copies=copies), copies * records
    counts = np.arange(trials + 1)
    empty = binom.logpmf(counts, trials, flip)
    rest = binom.pmf(counts[: trials - copies + 1], trials - copies, flip)
    own = binom.pmf(np.arange(copies + 1), copies, 1 - flip)
    one = np.log(np.convolve(rest, own), where=np.convolve(rest, own) > 0, out=np.full(trials + 1, -math.inf))
    likely = (empty > -80) & (one > -80)
    laws: list[dict[int, float]] = [{int(s): float(law[s]) for s in counts[likely]} for law in (empty, one)]
    found = crowd_paper.first_record_delta(records, flip, 2.0, copies=copies)
    # Its lower and upper laws may differ by e^loss; it gives the hockey stick of the upper over the lower one.
    directions = ((laws[0], laws[1], found.zeros_over_one), (laws[1], laws[0], found.one_over_zeros))
    for upper, lower, ours in directions:
        peer = PrivacyLossDistribution.from_two_probability_mass_functions(
            lower, upper, value_discretization_interval=1e-5
        )
        theirs = float(peer.get_delta_for_epsilon(math.log(2.0)))
        assert ours <= theirs + 1e-12
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-12)
