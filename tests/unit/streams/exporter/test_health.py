"""Health: rates, the canary's score, and when numbers are called stale."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from producers.survey.survey import Canary, Survey
from streams.exporter.api import Health
from streams.exporter.health import (
    LAG_LEAST_MS,
    LAG_MOST_MS,
    RATES_KEPT,
    Rates,
    canary_score,
    lag_limit_ms,
    stale_after_ms,
)
from streams.exporter.pipeline import QUEUED_MS, make_health, store_down
from streams.store.contract import QueuedWindow
from streams.store.counters import Counters
from streams.store.heartbeats import SILENT_MS, Heartbeat
from streams.windows.record import EstimateRecord, ValueEstimate
from tests.support.exporter import NOW_MS, record_of
from tests.support.surveys import WEEK, survey


def test_a_rate_is_taken_over_the_last_looks() -> None:
    rates = Rates()
    assert (rates.applied, rates.rejected, rates.history()) == (None, None, [])
    for look in range(8):
        rates.look(look * 2_000, look * 1_000, look * 4)
    assert rates.applied == 500.0
    assert rates.rejected == 2.0
    assert rates.history() == [500.0] * 7


def test_looks_that_come_too_soon_are_not_kept() -> None:
    rates = Rates()
    for now_ms in (0, 500, 1_999, 2_000):
        rates.look(now_ms, now_ms, 0)
    assert rates.history() == [1_000.0]


@pytest.mark.parametrize("look", [(10_000, 4, 9), (10_000, 9, 4), (3_000, 9, 9)])
def test_another_redis_or_a_clock_set_back_starts_the_rates_over(look: tuple[int, int, int]) -> None:
    rates = Rates()
    rates.look(0, 0, 0)
    rates.look(4_000, 8, 8)
    rates.look(*look)
    assert (rates.applied, rates.history()) == (None, [])


def test_old_rates_are_forgotten() -> None:
    rates = Rates()
    for look in range(3 * RATES_KEPT):
        rates.look(look * 2_000, look, 0)
    assert len(rates.history()) == RATES_KEPT


def canary() -> Survey:
    return replace(survey(), canary=Canary(2_000, 1, (0.5, 0.3, 0.2)))


def canary_record(estimates: list[float | None], *, population: str = "fleet", users: int = 2_000) -> EstimateRecord:
    record = record_of(canary(), WEEK, [0.5, 0.3, 0.2], users=users)
    rows = [ValueEstimate(name, share, 0.0004, None, None) for name, share in zip("abc", estimates, strict=True)]
    return EstimateRecord(**{**as_dict(record), "values": rows, "population": population})


def as_dict(record: EstimateRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_the_canary_is_scored_where_it_is_farthest_from_its_truth() -> None:
    score = canary_score(canary(), [canary_record([0.5, 0.3, 0.1])])
    assert score is not None
    # sqrt(0.0004 + 0.2 * 0.8 / 2000) = 0.0219: a tenth below is 4.56 of them.
    assert score.value == "c"
    assert score.z == pytest.approx(-4.564, abs=0.001)
    assert score.limit == canary().limits.canary_z
    sampling = canary_score(canary(), [canary_record([0.5, 0.3, 0.1], population="sampling")])
    assert sampling is not None
    assert sampling.z == pytest.approx(-5.0)


def test_the_canary_is_judged_by_several_windows_together() -> None:
    low, high = canary_record([0.5, 0.3, 0.1]), canary_record([0.5, 0.3, 0.3])
    once, four_times = canary_score(canary(), [low]), canary_score(canary(), [low] * 4)
    assert once is not None
    assert four_times is not None
    assert four_times.z == pytest.approx(2 * once.z, abs=0.01)
    balanced = canary_score(canary(), [low, high])
    assert balanced is not None
    assert balanced.z == pytest.approx(0.0, abs=0.001)


def test_no_score_without_a_canary_or_an_estimate() -> None:
    assert canary_score(survey(), [record_of(survey(), WEEK, [0.5, 0.3, 0.2])]) is None
    assert canary_score(canary(), [canary_record([None, None, None])]) is None
    assert canary_score(canary(), [canary_record([0.5, 0.3, 0.2], users=0)]) is None


def beat(age_ms: int) -> Heartbeat:
    return Heartbeat("a", NOW_MS - age_ms, 3, None, None, None)


def health(
    *, last_age_ms: int | None = 400, beats: list[Heartbeat] | None = None, queue: list[QueuedWindow] | None = None
) -> Health:
    colour = survey()
    return make_health(
        NOW_MS,
        surveys=[colour],
        last_estimates={colour.id: None if last_age_ms is None else NOW_MS - last_age_ms},
        counters=Counters(),
        heartbeats=[beat(500)] if beats is None else beats,
        queue=queue or [],
        rates=Rates(),
        canary=None,
    )


def test_fresh_estimates_and_a_living_worker_are_ok() -> None:
    found = health()
    assert (found.status, found.reasons, found.lag_records) == ("ok", [], 3)


def test_a_system_that_nobody_started_yet_is_not_called_stale() -> None:
    assert health(last_age_ms=None, beats=[]).status == "ok"


def test_a_dead_worker_is_noticed_and_what_it_means_is_told() -> None:
    found = health(beats=[beat(SILENT_MS + 1_000)])
    assert (found.status, found.lag_records) == ("stale", None)
    silence = f"No worker heartbeat for {SILENT_MS // 1000 + 1} s."
    assert found.reasons == [f"{silence} Estimates are not updated; reports wait in Kafka and will be counted later."]
    assert health(beats=[]).reasons[0].startswith("No worker heartbeat. ")


def test_surveys_without_news_are_stale_but_only_after_a_window_without_any() -> None:
    limit_ms = stale_after_ms(survey())
    assert limit_ms == 120_000
    assert health(last_age_ms=limit_ms).status == "ok"
    found = health(last_age_ms=limit_ms + 1)
    assert (found.status, found.surveys[0].stale) == ("stale", True)
    assert found.reasons == ["No new reports for any survey in the last 2 min."]


def test_one_quiet_survey_is_stale_by_itself() -> None:
    quiet, other = survey(), survey(name='name = "other"')
    found = make_health(
        NOW_MS,
        surveys=[quiet, other],
        last_estimates={quiet.id: NOW_MS - 600_000, other.id: NOW_MS - 400},
        counters=Counters(),
        heartbeats=[beat(500)],
        queue=[],
        rates=Rates(),
        canary=None,
    )
    assert (found.status, found.reasons) == ("ok", [])
    assert [entry.stale for entry in found.surveys] == [True, False]


def test_counts_that_wait_for_their_estimate_are_told() -> None:
    mark = QueuedWindow(survey().id, WEEK, (NOW_MS - QUEUED_MS - 1) * 1_000.0)
    assert health(queue=[mark]).reasons == ["1 window waits in the recompute queue: the workers are behind."]
    assert health(queue=[mark._replace(score=NOW_MS * 1_000.0)]).status == "ok"


def test_old_windows_that_wait_behind_the_current_ones_are_a_warning() -> None:
    old = QueuedWindow(survey().id, WEEK - 60 * 60_000, (NOW_MS - QUEUED_MS - 1) * 1_000.0)
    found = health(queue=[old, old._replace(window_ms=WEEK - 61 * 60_000)])
    assert (found.status, found.reasons) == ("ok", [])
    assert found.warnings == ["2 windows wait for a new estimate behind the current ones; nothing needs to be done."]


def test_a_store_that_is_away_hides_every_number() -> None:
    found = store_down(NOW_MS, "no route", surveys=[survey()])
    assert (found.status, found.store, found.kafka) == ("down", "down", "unknown")
    assert (found.workers, found.canary, found.last_estimate_ms) == ([], None, None)
    assert (found.dirty_windows, found.workers_alive, found.lag_seconds, found.reports) == (None, None, None, {})
    assert [(entry.survey, entry.state, entry.stale) for entry in found.surveys] == [(survey().id, "unknown", False)]


def worker(name: str, age_ms: int = 500, *, lag: float | None = 0.0, kafka: bool | None = True) -> Heartbeat:
    return Heartbeat(name, NOW_MS - age_ms, 3, None, None, None, lag, kafka)


def test_a_kafka_that_does_not_answer_is_named() -> None:
    found = health(beats=[worker("a", kafka=False), worker("b"), worker("c", SILENT_MS + 1, kafka=False)])
    assert (found.status, found.kafka) == ("stale", "down")
    assert found.reasons == ["Kafka does not answer a. No reports are read; devices keep theirs and send them later."]
    assert [entry.kafka for entry in found.workers] == ["down", "up", "down"]


def test_without_a_worker_that_tells_kafka_is_unknown() -> None:
    assert health(beats=[worker("old", kafka=None)]).kafka == "unknown"
    assert health(beats=[worker("dead", SILENT_MS + 1)]).kafka == "unknown"
    assert health(beats=[worker("a")]).kafka == "up"


def test_lag_is_judged_in_seconds_by_the_step_of_the_survey() -> None:
    fine, late = health(beats=[worker("a", lag=60.0)]), health(beats=[worker("a", lag=60.1), worker("b")])
    assert (fine.status, fine.lag_seconds, fine.lag_limit_seconds) == ("ok", 60.0, 60.0)
    assert (late.status, late.lag_seconds) == ("stale", 60.1)
    assert late.reasons[0].startswith("Estimates are 60 s behind; the limit is 60 s.")
    assert health(beats=[worker("a", lag=None)]).lag_seconds is None


def test_a_live_window_that_waits_for_its_estimate_is_lag_and_an_old_one_is_not() -> None:
    colour = survey()
    waits = QueuedWindow(colour.id, WEEK, (NOW_MS - 9_000) * 1_000.0)
    assert health(beats=[worker("a")], queue=[waits]).lag_seconds == 9.0
    assert health(beats=[worker("a")], queue=[waits._replace(window_ms=WEEK - 60 * 60_000)]).lag_seconds == 0.0


@pytest.mark.parametrize(
    ("size", "limit_ms"), [("1s", LAG_LEAST_MS), ("20s", 20_000), ("1m", 60_000), ("1d", LAG_MOST_MS)]
)
def test_the_limit_of_the_lag_follows_the_step(size: str, limit_ms: int) -> None:
    assert lag_limit_ms(survey(size=f'size = "{size}"')) == limit_ms


def test_a_dead_worker_beside_a_living_one_is_a_warning() -> None:
    found = health(beats=[worker("a"), worker("b", 60_000)])
    assert (found.status, found.workers_alive, found.workers_dead) == ("ok", 1, 1)
    [warning] = found.warnings
    assert warning.startswith("Worker b has sent no heartbeat for 60 s;")


def test_a_wrong_clock_of_a_worker_is_a_warning() -> None:
    beats = [
        msgspec.structs.replace(worker(name), clock_offset_seconds=s) for name, s in (("a", 59.0), ("b", -7_300.0))
    ]
    found = health(beats=beats)
    assert [told.clock_offset_seconds for told in found.workers] == [59.0, -7_300.0]
    [warning] = found.warnings
    assert warning.startswith("The clock of worker b is 2 h behind the broker's.")


def test_records_behind_a_transaction_that_stays_open_are_a_warning() -> None:
    beats = [
        msgspec.structs.replace(worker(name), uncommitted_records=records, transaction_open_seconds=seconds)
        for name, records, seconds in (("a", 7, 4.0), ("b", 12, 61.0), ("c", 30, 600.0), ("old", None, None))
    ]
    found = health(beats=beats)
    assert [told.transaction_open_seconds for told in found.workers] == [4.0, 61.0, 600.0, None]
    [warning] = found.warnings
    assert warning.startswith("42 records wait behind a transaction that a producer has kept open for 10 min.")
    assert "ThawTransactionOpen" in warning
    assert health(beats=beats[:1]).warnings == []


def ended(end_ms: int) -> Survey:
    return replace(survey(), end_ms=end_ms)


def states(*surveys: tuple[Survey, int | None]) -> Health:
    return make_health(
        NOW_MS,
        surveys=[known for known, _ in surveys],
        last_estimates={known.id: None if age_ms is None else NOW_MS - age_ms for known, age_ms in surveys},
        counters=Counters(),
        heartbeats=[worker("a")],
        queue=[],
        rates=Rates(),
        canary=None,
    )


def test_after_its_end_a_survey_is_never_stale() -> None:
    found = states((ended(NOW_MS), 3_600_000))
    assert (found.status, found.reasons, found.warnings) == ("ok", [], [])
    assert [(entry.state, entry.stale, entry.end_ms) for entry in found.surveys] == [("ended", False, NOW_MS)]
    assert found.lag_limit_seconds is None, "no survey runs"
    before = states((ended(NOW_MS + 1), 3_600_000))
    assert (before.status, before.surveys[0].state) == ("stale", "stale")


def test_one_quiet_survey_is_a_warning_and_a_new_one_is_unknown() -> None:
    quiet, fresh, new = survey(), survey(name='name = "other"'), survey(name='name = "third"')
    found = states((quiet, 600_000), (fresh, 400), (new, None))
    assert (found.status, [entry.state for entry in found.surveys]) == ("ok", ["stale", "fresh", "unknown"])
    assert found.warnings == [f"No new estimate of {quiet.id} for 10 min; the limit is 2 min."]
