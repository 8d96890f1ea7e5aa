"""Tallies: the only state of an estimate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.tally import Tally, count_symbols

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))


@st.composite
def tallies(draw: st.DrawFn, count: int) -> list[Tally]:
    rungs, groups, cells = draw(SHAPES)
    numbers = st.integers(-(1 << 40), 1 << 40)
    found = []
    for _ in range(count):
        counts = draw(st.lists(numbers, min_size=rungs * groups * cells, max_size=rungs * groups * cells))
        users = draw(st.lists(numbers, min_size=rungs * groups, max_size=rungs * groups))
        found.append(Tally(np.array(counts).reshape(rungs, groups, cells), np.array(users).reshape(rungs, groups)))
    return found


@given(tallies(3))
def test_tallies_add_in_any_order_and_what_was_added_can_be_taken_back(three: list[Tally]) -> None:
    a, b, c = three
    assert (a + b) + c == a + (c + b)
    assert (a + b) - b == a
    assert a + Tally.empty(*a.shape) == a
    assert (a + b).total_users == a.total_users + b.total_users


@given(tallies(1))
def test_bytes_are_read_back_as_written(one: list[Tally]) -> None:
    raw = one[0].to_bytes()
    assert Tally.from_bytes(raw) == one[0]
    assert Tally.from_bytes(raw).to_bytes() == raw


def test_bytes_that_are_no_tally_are_refused() -> None:
    raw = Tally.empty(2, 1, 3).to_bytes()
    for broken in (b"", b"TLY2" + raw[4:], raw[:10]):
        with pytest.raises(ValueError, match="the first four bytes must be TLY1"):
            Tally.from_bytes(broken)
    for broken in (raw[:-1], raw + b"\0" * 8):
        with pytest.raises(ValueError, match=r"a tally of shape \(2, 1, 3\) cannot have \d+ bytes"):
            Tally.from_bytes(broken)


def test_tallies_of_different_surveys_do_not_mix() -> None:
    with pytest.raises(ValueError, match="different surveys cannot be combined"):
        Tally.empty(2, 1, 3) + Tally.empty(2, 1, 4)
    with pytest.raises(ValueError, match="different surveys cannot be combined"):
        Tally.empty(2, 1, 3) - Tally.empty(1, 1, 3)
    with pytest.raises(ValueError, match=r"counts must be \[rung, group, cell\]"):
        Tally(np.zeros((2, 3), dtype=np.int64), np.zeros((2, 1), dtype=np.int64))
    assert Tally.empty(1, 1, 1) != "tally"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tally.empty(1, 1, 1))


@pytest.mark.parametrize("count", [0, 1, 7, 199_999, 200_000, 200_001, 300_003])
@pytest.mark.parametrize("size", [1, 2, 100, 256])
def test_symbols_are_counted_in_pairs_as_one_by_one(count: int, size: int) -> None:
    answers = np.random.default_rng(count + size).integers(0, size, count).astype(np.uint8)
    assert count_symbols(answers, size).tolist() == [int((answers == symbol).sum()) for symbol in range(size)]
    wide = answers.astype(np.uint16)
    assert count_symbols(wide, size).tolist() == count_symbols(answers, size).tolist()
    assert count_symbols(answers[::-2], size).sum() == len(answers[::-2])
