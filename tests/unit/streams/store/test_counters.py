"""Counters of reports: they add up, and keep the names that users and scripts read."""

from streams.store.counters import REASONS, Counters
from streams.worker import kernels


def test_counters_of_all_surveys_are_added() -> None:
    total = Counters(applied=3, rejected={"rung": 1}) + Counters(applied=4, expired=2, rejected={"rung": 1, "magic": 5})
    assert total == Counters(applied=7, expired=2, rejected={"rung": 2, "magic": 5})
    assert (total.counted, total.rejected_total) == (7, 7)


def test_the_names_that_scripts_read_are_stable() -> None:
    assert Counters(1, 2, 3, 4, 5, {"rung": 6}).as_data() == {
        "applied": 1,
        "duplicate": 2,
        "stale": 3,
        "conflict": 4,
        "expired": 5,
    }


def test_adding_changes_neither_summand() -> None:
    first, second = Counters(rejected={"rung": 1}), Counters(rejected={"rung": 2})
    assert (first + second).rejected == {"rung": 3}
    assert (first.rejected, second.rejected) == ({"rung": 1}, {"rung": 2})


def test_what_the_kernels_find_are_reasons() -> None:
    assert {*kernels.FAULTS, *kernels.PACK_FAULTS} <= {"", *REASONS}
