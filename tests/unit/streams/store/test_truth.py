"""The simulated truth in Redis: what somebody else wrote in its place stops neither fleets nor the page."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from streams.local.truths import PatientTruths
from streams.store.contract import StoreUnavailableError
from streams.store.truth import RedisTruths
from tests.support.deadline import until

TRUTH = {"numerators": [1, 3], "denominators": [4, 4], "devices": 4, "blocks": 1, "settled": True}


def test_a_key_of_a_wrong_type_is_no_truth_and_gives_way_to_one(redis_url: str, key_prefix: str) -> None:
    client: Any = redis.Redis.from_url(redis_url)
    truths, key = RedisTruths(client, prefix=key_prefix), f"{key_prefix}thaw:truth:v1:colour-01234567:60000"
    client.set(key, "of somebody else")
    assert truths.read("colour-01234567", 60_000) is None
    truths.post("colour-01234567", 60_000, "0", TRUTH)
    found = truths.read("colour-01234567", 60_000)
    assert found is not None
    assert (found.shares, found.settled) == ([0.25, 0.75], True)
    assert client.ttl(key) > 0
    client.close()


def test_a_truth_that_is_refused_by_itself_does_not_hold_up_the_others() -> None:
    posted: list[int] = []
    refuse = threading.Event()
    refuse.set()

    class Refusing:
        def post(self, survey_id: str, window_ms: int, part: str, truth: dict[str, Any]) -> None:
            if window_ms == 0 and refuse.is_set():
                raise StoreUnavailableError(f"refused: {survey_id}, {part}, {len(truth)}")
            posted.append(window_ms)

    with PatientTruths(Refusing()) as truths:
        for window_ms in range(4):
            truths.post("colour-01234567", window_ms, "0", TRUTH)
        until(lambda: sorted(posted) == [1, 2, 3], 30, "the others")
        refuse.clear()
        until(lambda: 0 in posted, 30, "the one that was refused")


def test_an_error_that_nobody_expected_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    posted: list[int] = []

    class Failing:
        def post(self, survey_id: str, window_ms: int, part: str, truth: dict[str, Any]) -> None:
            if window_ms < 2:
                raise ValueError(f"nobody knows why: {survey_id}, {part}, {len(truth)}")
            posted.append(window_ms)

    with PatientTruths(Failing()) as truths:
        for window_ms in range(4):
            truths.post("colour-01234567", window_ms, "0", TRUTH)
        until(lambda: posted == [2, 3], 30, "the others")
    told = [record for record in caplog.records if "goes on" in record.message]
    assert [record.exc_info is not None for record in told] == [True], "one kind is told once"
    assert "did not reach Redis" not in caplog.text
