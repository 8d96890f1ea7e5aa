"""The rule that opens levels: one at a time, at its time, while a band is wide, and never back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.tally import Tally
from streams.windows.stopping import opening_of
from tests.support.signing import signer_in, while_wide
from tests.support.surveys import WEEK, WINDOW_MS

DUE = WEEK + WINDOW_MS + 10_000


def tally_of(users: int) -> Tally:
    counts = np.zeros((3, 1, 3), dtype=np.int64)
    counts[0, 0] = users // 2, users // 4, users - users // 2 - users // 4
    return Tally(counts, counts.sum(axis=2))


@pytest.mark.parametrize(
    ("users", "before", "now_ms", "rung"),
    [
        (100, 0, DUE - 1, 0),
        (100, 0, DUE, 1),
        (100, 1, DUE, 1),
        (100, 1, DUE + 20_000, 2),
        (100, 2, DUE + 90_000, 2),
        (4_000_000, 0, DUE, 0),
        (4_000_000, 1, DUE + 90_000, 1),
        (0, 0, DUE, 1),
    ],
)
def test_the_next_level_opens_while_the_band_is_wide(
    users: int, before: int, now_ms: int, rung: int, tmp_path: Path
) -> None:
    asked = while_wide(signer_in(tmp_path), 0.05)
    found = opening_of(asked, WEEK, tally_of(users), before, now_ms)
    assert (found.window_ms, found.rung) == (WEEK, rung)
    assert (found.width > 0.05) == (users < 1_000_000)


def test_withdrawn_answers_do_not_narrow_a_band(tmp_path: Path) -> None:
    asked = while_wide(signer_in(tmp_path), 0.05)
    kept = tally_of(4_000_000)
    last = np.zeros((1, 1, 3), dtype=np.int64), np.array([[500]])
    stored = Tally(np.concatenate([kept.counts, last[0]]), np.concatenate([kept.users, last[1]]))
    taken = opening_of(replace(asked, withdrawable=True), WEEK, stored, 0, DUE)
    assert taken.width > opening_of(asked, WEEK, kept, 0, DUE).width
