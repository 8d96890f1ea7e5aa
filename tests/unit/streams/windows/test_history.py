"""Points of a window's life: what is kept of an estimate, and what is not read as one."""

import pytest

from streams.windows.history import HISTORY_VALUES, decode_point, encode_point
from streams.windows.record import EstimateRecord, ValueEstimate


def record(estimates: list[float | None]) -> EstimateRecord:
    return EstimateRecord(
        version=1,
        survey="colour-01234567",
        window_start_ms=1_000,
        window_end_ms=2_000,
        read_ms=2_400,
        computed_ms=2_500,
        users=30,
        users_per_rung=[10, 20],
        epsilons=[0.5, 1.0],
        method="pooled",
        population="fleet",
        alpha=0.05,
        homogeneity_p=None,
        notes=[],
        values=[
            ValueEstimate(f"v{i}", share, 0.01, None if share is None else share - 0.1, 0.123456789)
            for i, share in enumerate(estimates)
        ],
    )


def test_a_point_holds_time_users_and_bands_in_the_order_of_values() -> None:
    point = decode_point(encode_point(record([0.25, None, -0.5])))
    assert point is not None
    assert (point.time_ms, point.users_per_rung, point.values) == (2_500, [10, 20], [0, 1, 2])
    assert point.estimate == [0.25, None, -0.5]
    assert point.lower == [pytest.approx(0.15), None, pytest.approx(-0.6)]
    assert point.upper == [0.123457] * 3


def test_of_very_many_values_the_most_frequent_are_kept() -> None:
    point = decode_point(encode_point(record([i / 1_000 for i in range(HISTORY_VALUES + 100)])))
    assert point is not None
    assert point.values == list(range(100, HISTORY_VALUES + 100))


@pytest.mark.parametrize(
    "raw", [b"", b"1", b"x []", b"1 []", b"1 {}", b"1 [[1],[0],[0.1],[0.1],[]]", b'1 [[1],["a"],[1],[1],[1]]', b"\xff"]
)
def test_what_is_not_a_point_is_not_read_as_one(raw: bytes) -> None:
    assert decode_point(raw) is None
