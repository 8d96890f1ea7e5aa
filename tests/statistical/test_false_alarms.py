"""Alert rules, judged on thousands of windows whose shares are exactly the thresholds, at every tick of their lives.

Devices arrive one cohort a tick and climb rungs as they age; answers come from the mechanism itself. A window in which
any rule of the survey speaks is a false alarm. With alpha for all rules together, their number is at most binomial; it
may exceed its bound by chance with one share of the suite's budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.exact.randomness import SeededBits
from estimators.inference.pooling_bits import BitRungs, bits_pooled
from estimators.intervals.always_valid import YesNo, log_e
from estimators.intervals.one_look import one_sided_z
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.registry import randomizer_of
from estimators.tally import Tally
from producers.survey.survey import Survey, parse_survey
from streams.windows.alert_bounds import alert_bounds
from tests.support.memory_store import MemoryStore
from tests.support.stats import BUDGET, SHARE
from tests.support.surveys import WEEK, survey_text

WINDOWS, TICKS, COHORT = 3_000, 90, 10
CLIMB_TICKS = 15
ALPHA = 0.05
SHARES = {"red": 0.5, "green": 0.3, "blue": 0.2}


def survey_with_rules() -> Survey:
    rules = "".join(
        f'\n[[alert]]\nvalue = "{value}"\nabove = {share}\nalpha = {ALPHA}\n' for value, share in SHARES.items()
    )
    return parse_survey(f'{survey_text()}{rules}\n[estimate]\nrungs = "independent"\nmethod = "mle"\n')


def lives(known: Survey, shares: list[float], seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield counts [window, rung, value] and users [rung] at every tick."""
    mechanism = known.mechanism
    assert isinstance(mechanism, GRR)
    rng, bits, rungs = np.random.default_rng(seed), SeededBits(seed), mechanism.rungs
    labels, randomizer = list(mechanism.labels), randomizer_of(mechanism)
    # by_cohort[tick, rung]: what the cohort's answers on this rung add to each window's counts.
    by_cohort = np.empty((TICKS, rungs, WINDOWS, len(labels)), dtype=np.int16)
    window = np.repeat(np.arange(WINDOWS), COHORT)
    for tick in range(TICKS):
        values = rng.choice(labels, size=WINDOWS * COHORT, p=shares).tolist()
        drawn = randomizer.draw(randomizer.encode(values, bits), bits)
        for rung in range(rungs):
            cells = window * len(labels) + drawn.answers[rung]
            by_cohort[tick, rung] = np.bincount(cells, minlength=WINDOWS * len(labels)).reshape(WINDOWS, len(labels))
        # Every cohort sits on the rung of its age.
        counts, users = np.zeros((WINDOWS, rungs, len(labels)), dtype=np.int64), np.zeros(rungs, dtype=np.int64)
        for rung in range(rungs):
            youngest = tick - rung * CLIMB_TICKS
            oldest = 0 if rung == rungs - 1 else max(0, youngest - CLIMB_TICKS + 1)
            if youngest >= 0:
                counts[:, rung] = by_cohort[oldest : youngest + 1, rung].sum(axis=0)
                users[rung] = (youngest + 1 - oldest) * COHORT
        yield counts, users


def questions(known: Survey, counts: NDArray[np.int64], users: NDArray[np.int64], value: int) -> YesNo:
    """See the windows as columns of one question: is it this value?"""
    assert isinstance(known.mechanism, GRR)
    channels = known.mechanism.chain.retention_channels
    assert len(channels) == known.mechanism.rungs
    lie = np.array([channel.response.lie[value] for channel in channels])
    keep = np.array([channel.retention for channel in channels])
    return YesNo.of(keep + lie, lie, counts[:, :, value].T, users)


def fixed_bound(tally: YesNo, alpha: float) -> NDArray[np.float64]:
    """Return the bound that is right at one look, and only there."""
    found, _ = bits_pooled(BitRungs(tally.truth, tally.lie, tally.ones, tally.users), "sampling")
    return np.asarray(found.shares - one_sided_z(alpha) * np.sqrt(found.variance))


@pytest.mark.statistical
def test_rules_keep_their_false_alarm_rate_at_every_look_and_bounds_for_one_look_do_not() -> None:
    known = survey_with_rules()
    fixed = np.zeros(WINDOWS, dtype=bool)
    per_rule = np.zeros((len(known.alerts), WINDOWS), dtype=bool)
    for tick, (counts, users) in enumerate(lives(known, list(SHARES.values()), seed=21)):
        for i, rule in enumerate(known.alerts):
            assert rule.alpha == pytest.approx(ALPHA / 3), "alpha is divided over the values that have a rule"
            tally = questions(known, counts, users, i)
            per_rule[i] |= log_e(tally, rule.threshold) >= math.log(1 / rule.alpha)
            if tick >= 5:
                fixed |= fixed_bound(tally, rule.alpha) > rule.threshold
    always = np.any(per_rule, axis=0)
    BUDGET.take(2)
    assert always.sum() <= stats.binom.isf(SHARE, WINDOWS, ALPHA), f"{always.mean():.3f} of windows alarmed"
    for alarms, rule in zip(per_rule, known.alerts, strict=True):
        allowed = stats.binom.isf(SHARE / 3, WINDOWS, rule.alpha)
        assert alarms.sum() <= allowed, f"{rule.value}: {alarms.mean():.4f} of windows alarmed"
    assert fixed.mean() > 3 * ALPHA, f"only {fixed.mean():.3f} with bounds for one look: the test is blind"
    assert always.any(), "not a single alarm in thousands of windows: the rules are asleep"


@pytest.mark.statistical
def test_what_a_worker_stores_is_what_was_judged_here() -> None:
    known, store = survey_with_rules(), MemoryStore()
    compared = 0
    for tick, (counts, users) in enumerate(lives(known, [0.6, 0.25, 0.15], seed=22)):
        if tick % 30 != 29:
            continue
        for i, rule in enumerate(known.alerts):
            evidence = log_e(questions(known, counts, users, i), rule.threshold)
            # The stored bound is exact to 2^-20; evidence a hair from the line could be judged either way.
            for window in np.flatnonzero(np.abs(evidence - math.log(2 / rule.alpha)) > 0.01)[:20]:
                tally = Tally.empty(known.mechanism.rungs, 1, 3)
                tally.counts[:, 0], tally.users[:, 0] = counts[window], users
                stored = alert_bounds(known, WEEK, tally, "mle", store.states)[i]
                # A rule whose bound may switch to the checkpoints has half of its alpha for each (decision 0048).
                assert stored.firing == (evidence[window] >= math.log(2 / rule.alpha))
                compared += 1
    assert compared == 3 * 3 * 20


@pytest.mark.statistical
def test_a_share_above_its_threshold_is_found_while_the_window_lives() -> None:
    known = survey_with_rules()
    rule = known.alerts[0]
    found = np.zeros(WINDOWS, dtype=bool)
    for counts, users in lives(known, [0.72, 0.18, 0.1], seed=23):
        found |= log_e(questions(known, counts, users, 0), rule.threshold) >= math.log(1 / rule.alpha)
    assert found.mean() > 0.95
