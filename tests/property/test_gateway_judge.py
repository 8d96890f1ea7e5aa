"""The gateway takes exactly what the worker counts: both judge the same damaged frames alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producers.survey.survey import Survey
from streams.gateway.judge import judge
from streams.kafka.messages import FetchBatch, Record
from streams.worker.fold import check
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.unit.streams.gateway.test_mixing import WITHDRAWABLE, Known, body

EXPIRY_MS = survey().expiry_ms(WEEK)


@given(
    asked=st.sampled_from([survey(), WITHDRAWABLE]),
    seed=st.integers(0, 50),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 40),
    now_ms=st.one_of(
        st.integers(WEEK - 2 * WINDOW_MS, WEEK + 3 * WINDOW_MS), st.integers(EXPIRY_MS - 5, EXPIRY_MS + 5)
    ),
)
def test_gateway_and_worker_agree_about_every_frame(
    asked: Survey, seed: int, changes: list[tuple[int, int]], cut: int, now_ms: int
) -> None:
    raw = bytearray(body(asked, 2, seed=seed))
    for place, value in changes:
        raw[place % len(raw)] = value
    message = bytes(raw[: len(raw) - cut // 8])
    judged = judge(message, Known(asked), now_ms)
    # One partition, so that the worker has no reason of its own.
    batch = FetchBatch("t", 0, 0, 1, [Record(0, now_ms, message)])
    checked = check([batch], Known(asked), 1, now_ms, keep_expired=True)
    refused = [letter.reason for letter in (*checked.dead_letters, *checked.expired)]
    assert sorted(refused) == sorted(one.reason for one in judged.refused)
    taken = sum(len(frame.reports) for frame in judged.taken)
    assert taken == sum(len(reports) for reports in checked.reports.values())
