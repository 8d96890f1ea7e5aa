"""Newton's steps find the bounds that halving finds, on the safe side, whatever the channels, counts and neighbours."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.intervals.always_valid import Side, YesNo, confidence_sequence, log_e
from estimators.intervals.sequence_ends import RESOLUTION
from tests.support.plain_bounds import halved

SIDES: tuple[Side, ...] = ("above", "below")


def tally_of(seed: int, channel: str, rungs: int, users: int) -> YesNo:
    """Return counts of values with shares between 0 and 1, some of them at an end, of random channels."""
    rng = np.random.default_rng(seed)
    shape, values = (rungs, 1), 40
    if channel == "exact":
        truth, lie = np.ones(shape), np.zeros(shape)
    elif channel == "turned":
        truth, lie = rng.uniform(0, 0.5, shape), rng.uniform(0.5, 1, shape)
    elif channel == "rare":
        truth = rng.uniform(0.001, 0.02, shape)
        lie = truth * rng.uniform(0.01, 1, shape)
    else:
        truth, lie = rng.uniform(0.5, 1, shape), rng.uniform(0, 0.5, shape)
        if channel == "silent":
            lie[0] = truth[0]
    n = rng.integers(0, users + 1, size=shape)
    shares = rng.choice([0.0, 1.0, 0.5, 1e-3, 1e-5, rng.uniform()], size=values)
    answers = np.clip(lie + (truth - lie) * shares, 0, 1)
    return YesNo.of(truth, lie, rng.binomial(np.broadcast_to(n, answers.shape), answers), n)


@given(
    seed=st.integers(0, 10**6),
    channel=st.sampled_from(["plain", "exact", "turned", "rare", "silent"]),
    rungs=st.integers(1, 5),
    users=st.sampled_from([0, 1, 3, 50, 1_000, 100_000, 10_000_000]),
    alpha=st.sampled_from([0.2, 0.05, 0.01, 1e-6]),
    side=st.sampled_from(SIDES),
)
def test_newtons_steps_find_what_halving_finds(
    seed: int, channel: str, rungs: int, users: int, alpha: float, side: Side
) -> None:
    tally = tally_of(seed, channel, rungs, users)
    found, plain = confidence_sequence(tally, alpha, side=side), halved(tally, alpha, side=side)
    assert np.abs(found - plain).max() <= RESOLUTION
    # What is bounded away is rejected by the e-process itself; 1e-9 for sums of a million answers in another order.
    inner = (found > 0) & (found < 1)
    evidence = log_e(tally, np.where(inner, found, 0.5), side=side)
    assert np.all(evidence[inner] >= math.log(1 / alpha) - 1e-9 * max(1, users))


@pytest.mark.parametrize("side", SIDES)
def test_a_bound_does_not_depend_on_the_values_beside_it(side: Side) -> None:
    tally = tally_of(7, "plain", 3, 10_000)
    together = confidence_sequence(tally, 0.01, side=side)
    alone = [confidence_sequence(tally.values_at(np.array([v])), 0.01, side=side)[0] for v in range(tally.values)]
    assert together.tolist() == alone


@pytest.mark.parametrize("side", SIDES)
def test_few_alternatives_and_narrow_peaks_between_them(side: Side) -> None:
    # The likelihood is a thousand times narrower than the steps between alternatives.
    tally = YesNo.of([0.9], [0.1], [[500_000, 123_456, 899_000]], [1_000_000])
    for points in (1, 2, 3, 64):
        found = confidence_sequence(tally, 0.05, side=side, points=points)
        assert np.abs(found - halved(tally, 0.05, side=side, points=points)).max() <= RESOLUTION


def test_nobody_has_answered() -> None:
    tally = YesNo.of([0.9, 0.8], [0.1, 0.2], np.zeros((2, 3)), [0, 0])
    assert confidence_sequence(tally, 0.05).tolist() == [0.0] * 3
    assert confidence_sequence(tally, 0.05, side="below").tolist() == [1.0] * 3
