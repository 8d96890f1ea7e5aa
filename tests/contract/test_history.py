"""The estimate history of a window: kept with its estimate, bounded, and the same in every store."""

from __future__ import annotations

import random

from producers.clock import system_clock
from streams.store.contract import HISTORY_POINTS, Store
from tests.support.clock import later
from tests.support.history import point_to_drop

SURVEY, WINDOW = "colour-01234567", 1_790_000_040_000


def locked(store: Store) -> bytes:
    secret = store.queue.lock(SURVEY, WINDOW, 60_000)
    assert secret is not None
    return secret


def points(times_ms: list[int]) -> list[bytes]:
    return [b"%d [%d]" % (time_ms, i) for i, time_ms in enumerate(times_ms)]


def test_a_history_begins_empty_and_grows_with_every_estimate(store: Store) -> None:
    assert store.estimates.history(SURVEY, WINDOW) == []
    secret = locked(store)
    for point in (b"1 a", b"2 b"):
        assert store.estimates.save(SURVEY, WINDOW, secret, b"{}", later(), point=point)
    assert store.estimates.save(SURVEY, WINDOW, secret, b"{}", later())
    assert store.estimates.history(SURVEY, WINDOW) == [b"1 a", b"2 b"]
    assert store.estimates.history(SURVEY, WINDOW + 1) == []


def test_without_the_lock_nothing_is_added_to_a_history(store: Store) -> None:
    locked(store)
    assert not store.estimates.save(SURVEY, WINDOW, b"not the secret!!", b"{}", later(), point=b"1 a")
    assert store.estimates.history(SURVEY, WINDOW) == []


def test_a_history_expires_with_its_estimate(store: Store) -> None:
    secret = locked(store)
    assert store.estimates.save(SURVEY, WINDOW, secret, b"{}", system_clock() - 1, point=b"1 a")
    assert store.estimates.history(SURVEY, WINDOW) == []


def test_a_long_history_keeps_its_ends_and_loses_the_point_between_the_closest_neighbours(store: Store) -> None:
    rng = random.Random(5)
    times_ms = sorted(rng.randrange(1_790_000_000_000, 1_790_000_900_000) for _ in range(HISTORY_POINTS + 60))
    secret = locked(store)
    for point in points(times_ms):
        assert store.estimates.save(SURVEY, WINDOW, secret, b"{}", later(), point=point)

    expected: list[bytes] = []
    for point in points(times_ms):
        expected.append(point)
        if len(expected) > HISTORY_POINTS:
            del expected[point_to_drop([int(kept.split()[0]) for kept in expected])]
    assert store.estimates.history(SURVEY, WINDOW) == expected
    assert len(expected) == HISTORY_POINTS
    assert (expected[0], expected[-1]) == (points(times_ms)[0], points(times_ms)[-1])
