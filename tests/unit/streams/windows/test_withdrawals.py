"""Withdrawn answers are counted, and nothing is estimated from them; bounds at every look pay for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from estimators.tally import Tally
from streams.store.shape import Shape
from streams.windows.window_record import estimate_record
from streams.windows.withdrawals import counted, false_alarm_share
from tests.support.surveys import INDEPENDENT, WEEK, survey

PLAIN = survey(lifetime=INDEPENDENT)
ASKED = replace(PLAIN, withdrawable=True)


def tallies(withdrawn: int) -> tuple[Tally, Tally]:
    """Return a tally of kept answers, and the same as it is stored beside withdrawn ones."""
    kept = Tally(np.array([[[50, 30, 20]], [[80, 70, 50]], [[400, 300, 100]]]), np.array([[100], [200], [800]]))
    last = np.array([[[withdrawn, 0, 0]]]), np.array([[withdrawn]])
    return kept, Tally(np.concatenate([kept.counts, last[0]]), np.concatenate([kept.users, last[1]]))


@pytest.mark.parametrize("withdrawn", [0, 1, 350])
def test_an_estimate_is_that_of_the_kept_answers(withdrawn: int) -> None:
    kept, stored = tallies(withdrawn)
    assert stored.shape == Tally.empty(Shape.of(ASKED).rungs, 1, 3).shape
    assert counted(ASKED, stored) == (kept, withdrawn)
    record, plain = estimate_record(ASKED, WEEK, stored), estimate_record(PLAIN, WEEK, kept)
    assert (record.withdrawn, plain.withdrawn) == (withdrawn, None)
    assert (record.users, record.users_per_rung) == (1_100, [100, 200, 800])
    for row, same in zip(record.values, plain.values, strict=True):
        assert (row.estimate, row.variance, row.lower, row.upper) == (
            same.estimate,
            same.variance,
            same.lower,
            same.upper,
        )
        assert row.always_valid_upper is not None
        assert same.always_valid_upper is not None
        assert row.always_valid_upper > same.always_valid_upper, "a share of the false alarms is kept for withdrawals"
    told = [note for note in record.notes if "withdrawn" in note]
    assert bool(told) == bool(withdrawn)
    assert all(note.startswith(f"{withdrawn:,} answer") and "biased" in note for note in told)


def test_the_shares_of_all_stretches_between_withdrawals_sum_to_one() -> None:
    """The sum over w >= 1 of 1 / (w (w + 1)) telescopes: the first n leave 1 / (n + 1) of the rest."""
    shares = [Fraction(false_alarm_share(withdrawn)).limit_denominator(10**12) for withdrawn in range(200)]
    assert shares[0] == Fraction(4, 5)
    assert sum(shares) == 1 - Fraction(1, 5) / 200
    assert false_alarm_share(None) == 1.0


def test_a_window_whose_answers_were_all_withdrawn_has_no_estimate() -> None:
    _, stored = tallies(7)
    gone = Tally(np.zeros_like(stored.counts), np.zeros_like(stored.users))
    gone.users[3, 0] = gone.counts[3, 0, 0] = 7
    record = estimate_record(ASKED, WEEK, gone)
    assert (record.users, record.withdrawn) == (0, 7)
    assert all(row.estimate is None for row in record.values)
