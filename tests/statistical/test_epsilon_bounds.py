"""The lower bound on epsilon from known values: valid at every look, and soon above the level of devices that cheat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.exact.randomness import SeededBits
from estimators.inference.epsilon_bounds import (
    SPAN_BATCHES,
    Span,
    add_batch,
    always_valid_bounds,
    epsilon_lower_bounds,
    first_spans,
    proven_epsilon,
)
from estimators.inference.telling_events import LIKELY, LIKELY_HITS, UNLIKELY, UNLIKELY_HITS, telling_events
from estimators.mechanism import Specification
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.registry import randomizer_of
from estimators.mechanisms.unary import OUE
from tests.support.stats import BUDGET, SHARE

pytestmark = pytest.mark.statistical

Counts = NDArray[np.int64]

LABELS = ("north", "east", "south", "west")
SHARES = (0.4, 0.3, 0.2, 0.1)
LADDER = (1.0, 2.0, 3.0)
DEVICES = 2_000
ALPHA = 0.001

RUNS = 300
LOOKS = [1] * 10 + [int(1.15**look) for look in range(72)]
"""Reports between two looks; 156,340 in all."""


def one_look(counts: Counts, alpha: float) -> NDArray[np.float64]:
    """Return the bound that is right at one look: Clopper and Pearson's, with alpha shared as in `proven_epsilon`."""
    hits, users = counts[:, LIKELY_HITS], counts[:, LIKELY]
    others, unlikely = counts[:, UNLIKELY_HITS], counts[:, UNLIKELY]
    lower = np.where(hits > 0, stats.beta.ppf(alpha / 2, hits, users - hits + 1), 0.0)
    upper = np.where(others < unlikely, stats.beta.isf(alpha / 2, others + 1, unlikely - others), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.fmax(np.log(lower / upper), np.log((1 - upper) / (1 - lower))))


def test_the_bound_is_ever_wrong_in_at_most_alpha_of_all_sequences_and_that_of_one_look_in_more() -> None:
    """Devices at exactly their declared level, looked at after each of the first reports, then ever more seldom.

    At most alpha of the sequences may ever pass the level; one share of the suite's budget for chance.
    """
    alpha, epsilon = 0.2, 3.0
    likely, unlikely = 0.5, 0.5 * np.exp(-epsilon)
    rng = np.random.default_rng(20261118)
    counts = np.zeros((RUNS, 4), dtype=np.int64)
    wrong, wrong_at_one_look = np.zeros(RUNS, dtype=bool), np.zeros(RUNS, dtype=bool)
    for reports in LOOKS:
        first = rng.binomial(reports, 0.5, size=RUNS)
        counts[:, LIKELY] += first
        counts[:, LIKELY_HITS] += rng.binomial(first, likely)
        counts[:, UNLIKELY] += reports - first
        counts[:, UNLIKELY_HITS] += rng.binomial(reports - first, unlikely)
        wrong |= proven_epsilon(counts, alpha) > epsilon
        wrong_at_one_look |= one_look(counts, alpha) > epsilon
    BUDGET.take()
    allowed = int(stats.binom.isf(SHARE, RUNS, alpha))
    assert int(wrong.sum()) <= allowed
    assert int(wrong.sum()) > 0, "the simulation reaches the bound, so it can judge it"
    assert int(wrong_at_one_look.sum()) > allowed


def batch(devices: Specification, seed: int, *, redrawn: Sequence[Specification] = ()) -> Counts:
    """Count one batch of devices; redrawn: each rung by a mechanism of its own, as by devices that draw it anew."""
    events = telling_events(GRR(LABELS, LADDER) if isinstance(devices, GRR) else devices)
    assert events is not None
    values = np.random.default_rng(seed).choice(4, size=DEVICES, p=SHARES)
    answers = randomizer_of(devices).draw(values, SeededBits(seed)).answers
    for rung, other in enumerate(redrawn):
        answers[rung] = randomizer_of(other).draw(values, SeededBits(seed, rung)).answers[0]
    return events.count(values, answers, np.ones((3, DEVICES), dtype=bool))


def watched(batches: Sequence[Counts], alpha: float = ALPHA) -> list[NDArray[np.float64]]:
    """Return the bounds after each batch."""
    spans: tuple[Span, ...] = ()
    found = []
    for one in batches:
        spans = add_batch(spans, one, alpha) if spans else first_spans(one)
        found.append(always_valid_bounds(spans, alpha))
    return found


@pytest.mark.parametrize("devices", [GRR(LABELS, LADDER), OUE(LABELS, LADDER)], ids=["grr", "oue"])
def test_devices_that_keep_their_promise_stay_below_it_and_come_close(devices: Specification) -> None:
    """False alarm at most 1e-10: the alpha of the sequence."""
    BUDGET.take()
    found = watched([batch(devices, seed) for seed in range(40)], alpha=SHARE)
    assert all((bounds <= devices.epsilons).all() for bounds in found)
    assert (found[-1] > 0.8 * np.array(devices.epsilons)).all()


@pytest.mark.parametrize(
    ("cheating", "batches"),
    [((18.0, 19.0, 20.0), 1), ((1.2, 2.4, 3.6), 5), ((1.0, 2.0, 3.6), 5)],
    ids=["never flips", "a fifth too high", "the upper rung alone"],
)
def test_devices_that_flip_less_than_declared_pass_the_level_soon(cheating: tuple[float, ...], batches: int) -> None:
    found = watched([batch(GRR(LABELS, cheating), seed) for seed in range(batches)])[-1]
    above = np.array(cheating) > np.array(LADDER)
    assert (found[-1] > LADDER[-1]) if batches > 1 else (found > LADDER).all()
    assert (found[~above] < np.array(LADDER)[~above]).all()


def test_rungs_that_are_drawn_anew_are_noticed_only_together() -> None:
    each = [GRR(LABELS, (level,)) for level in LADDER]
    counts = sum((batch(GRR(LABELS, LADDER), seed, redrawn=each) for seed in range(4)), np.zeros(1, dtype=np.int64))
    together = epsilon_lower_bounds(counts, ALPHA)
    assert together[0] < LADDER[0], "the first rung alone is as declared"
    assert together[1] > LADDER[1]
    assert together[2] > LADDER[2]
    alone = counts.copy()
    alone[:, 1] = 0
    assert (epsilon_lower_bounds(alone, ALPHA) < LADDER).all()


def test_a_fault_after_many_correct_batches_is_noticed_within_a_span() -> None:
    honest, broken = GRR(LABELS, LADDER), GRR(LABELS, (18.0, 19.0, 20.0))
    calm = 3 * SPAN_BATCHES[0] + 2
    found = watched([batch(honest, seed) for seed in range(calm)] + [batch(broken, 1_000 + i) for i in range(3)])
    assert (found[calm - 1] < LADDER).all()
    assert (found[-1] > LADDER).any()


def test_all_spans_for_ever_share_one_alpha() -> None:
    one = batch(GRR(LABELS, LADDER), 1)
    span = first_spans(one)[0]
    parts = []
    for number in range(1, 6):
        assert span.number == number
        part = ALPHA / (number * (number + 1))
        parts.append(part)
        assert np.array_equal(span.now(ALPHA), epsilon_lower_bounds(span.counts, part))
        for _ in range(span.length):
            last, span = span, span.add(one, ALPHA)
        assert span.batches == 1
        assert span.before == tuple(last.now(ALPHA))
        assert np.array_equal(span.counts, one), "a span begins with nothing of the one before"
    assert sum(parts) < ALPHA
    short, long = always_valid_bounds(first_spans(one)[:1], ALPHA), always_valid_bounds(first_spans(one), ALPHA)
    assert (long < short).all(), "two lengths share alpha"
