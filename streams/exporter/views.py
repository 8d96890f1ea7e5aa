"""What the API tells, read from the store, the workers' board and the truth of simulated fleets. Blocking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec
from redis.exceptions import RedisError

from producers.clock import Clock, system_clock
from producers.simulation.truth import Truth as TrueShares
from producers.survey.survey import Survey
from streams.exporter.alert_states import in_order, pipeline_alerts, threshold_alerts
from streams.exporter.api import Alerts, CanaryScore, Health, Life, Quantity, SurveyInfo, Truth, Window, Windows
from streams.exporter.health import CANARY_WINDOWS, Rates, canary_score, make_health, store_down
from streams.exporter.reader import Reader, windows_by_age
from streams.store.contract import StoreUnavailableError
from streams.store.heartbeats import Heartbeat
from streams.windows.record import EstimateRecord

RECENT_WINDOWS: Final = 60
"""Windows that the page shows and the feed watches."""
MOST_WINDOWS: Final = 500
"""Windows in one answer at most. More: one request can hold up all others for seconds."""
_FRESH_LEAST: Final = 12
_FRESH_MOST: Final = 200


class TruthSource(Protocol):
    """Where simulated fleets leave their truth; `producers.simulation.truth.RedisTruthBoard` is one."""

    def read(self, survey_id: str, window_ms: int) -> TrueShares | None:
        """Return the truth of a window, None if no simulated fleet wrote it."""
        ...


class WordSource(Protocol):
    """Where workers say that they live; `streams.store.heartbeats.Heartbeats` is one."""

    def read(self) -> list[Heartbeat]:
        """Return the last word of each worker."""
        ...


def survey_info(survey: Survey) -> SurveyInfo:
    """Return what the API tells about a survey."""
    mechanism = survey.mechanism
    return SurveyInfo(
        id=survey.id,
        name=survey.name,
        question=survey.question,
        mechanism=mechanism.name,
        guarantee=mechanism.guarantee.sentence,
        values=list(mechanism.labels),
        epsilons=[epsilon if epsilon < float("inf") else None for epsilon in mechanism.epsilons],
        opens_ms=list(survey.opens_ms),
        window_size_ms=survey.windows.size_ms,
        window_step_ms=survey.windows.step_ms,
        retention_ms=survey.retention_ms,
        method=survey.method,
        population=survey.population,
        alpha=survey.alpha,
        jitter_ms=survey.jitter_ms,
        quantities=[_quantity(mechanism.name, label) for label in mechanism.labels],
        canary=survey.canary is not None,
    )


def _quantity(mechanism: str, label: str) -> Quantity:
    return "mean" if mechanism == "mean" or (mechanism in ("lpp", "pckv_ue") and label.endswith("/mean")) else "share"


def fresh_windows(survey: Survey) -> int:
    """Return how many of the newest windows can still change by what is scheduled, late reports not counted."""
    moving_ms = survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    return min(_FRESH_MOST, max(_FRESH_LEAST, -(-moving_ms // survey.windows.step_ms) + 4))


class Views:
    """Everything the API can be asked. Any call may raise StoreUnavailableError."""

    def __init__(
        self,
        reader: Reader,
        *,
        truths: TruthSource | None = None,
        words: WordSource | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._reader, self._truths, self._words, self._clock = reader, truths, words, clock
        self._rates = Rates()

    def surveys(self) -> list[SurveyInfo]:
        """Return all surveys."""
        return [survey_info(survey) for survey in self._reader.surveys()]

    def survey(self, survey_id: str) -> Survey | None:
        """Return one survey."""
        return next((survey for survey in self._reader.surveys() if survey.id == survey_id), None)

    def windows(self, survey: Survey, *, from_ms: int, to_ms: int, limit: int) -> Windows:
        """Return the newest windows that start in [from_ms, to_ms], at most `limit`."""
        starts = [start_ms for start_ms in self._reader.starts(survey.id) if from_ms <= start_ms <= to_ms]
        shown = (self.window(survey, start_ms) for start_ms in reversed(starts[-limit:]))
        return Windows(survey.id, [window for window in shown if window is not None], len(starts) > limit)

    def window(self, survey: Survey, start_ms: int) -> Window | None:
        """Return one window; None if it has no estimate."""
        record = self._reader.record(survey.id, start_ms)
        return None if record is None else _window(record, self._truth(survey, start_ms))

    def life(self, survey: Survey, start_ms: int) -> Life | None:
        """Return the life of a window; None if it has no estimate."""
        if self._reader.record(survey.id, start_ms) is None:
            return None
        info = survey_info(survey)
        later = (survey.opening_ms(start_ms, rung) for rung in range(1, len(survey.opens_ms)))
        return Life(
            survey=survey.id,
            window_start_ms=start_ms,
            window_end_ms=survey.windows.end(start_ms),
            values=info.values,
            openings_ms=[start_ms, *later],
            epsilons=info.epsilons,
            points=self._reader.life(survey.id, start_ms),
        )

    def recent(self, *, thoroughly: bool) -> Iterable[Window]:
        """Return the windows that may have changed; thoroughly: all that the page shows, late reports included."""
        for survey in self._reader.surveys():
            count = max(RECENT_WINDOWS, fresh_windows(survey)) if thoroughly else fresh_windows(survey)
            for start_ms in self._reader.starts(survey.id)[-count:]:
                window = self.window(survey, start_ms)
                if window is not None:
                    yield window

    def health(self) -> Health:
        """Return how the pipeline is; never raises."""
        now_ms = self._clock()
        try:
            surveys = self._reader.surveys()
            counters = [self._reader.counters(survey.id) for survey in surveys] + [self._reader.strangers()]
            rejected = sum(count for some in counters for name, count in some.items() if name.startswith("rejected:"))
            self._rates.look(now_ms, sum(some.get("applied", 0) for some in counters), rejected)
            return make_health(
                now_ms,
                surveys=surveys,
                newest=self._newest(surveys),
                counters=counters,
                words=self._heartbeats(),
                dirty=self._reader.marks(),
                rates=self._rates,
                canary=self._canary(surveys, now_ms),
            )
        except StoreUnavailableError as error:
            return store_down(now_ms, str(error))

    def alerts(self) -> Alerts:
        """Judge all rules by what is stored: for those who have no Prometheus, or do not want the page to ask it."""
        found = pipeline_alerts(self.health())
        for survey in self._reader.surveys():
            if survey.alerts:
                read = {
                    age: self._reader.record(survey.id, at) for age, at in windows_by_age(survey, self._clock()).items()
                }
                records = {age: record for age, record in read.items() if record is not None}
                found += threshold_alerts(survey, records)
        return Alerts("estimates", in_order(found))

    def _newest(self, surveys: Sequence[Survey]) -> dict[str, int]:
        """Return when the newest estimate of each survey was computed: one of its latest three windows has it."""
        newest = {}
        for survey in surveys:
            records = self._reader.windows(survey.id, 3)
            if records:
                newest[survey.id] = max(record.computed_ms for record in records)
        return newest

    def _canary(self, surveys: Sequence[Survey], now_ms: int) -> CanaryScore | None:
        """Score the newest complete windows of the first canary."""
        for survey in surveys:
            if survey.canary is not None:
                complete_ms = now_ms - survey.windows.size_ms - survey.opens_ms[-1] - survey.jitter_ms
                starts = [start_ms for start_ms in self._reader.starts(survey.id) if start_ms <= complete_ms]
                read = [self._reader.record(survey.id, start_ms) for start_ms in starts[-CANARY_WINDOWS:]]
                score = canary_score(survey, [record for record in read if record is not None])
                if score is not None:
                    return score
        return None

    def _heartbeats(self) -> list[Heartbeat]:
        try:
            return self._words.read() if self._words is not None else []
        except RedisError as error:
            raise StoreUnavailableError(str(error)) from error

    def _truth(self, survey: Survey, start_ms: int) -> Truth | None:
        try:
            truth = self._truths.read(survey.id, start_ms) if self._truths is not None else None
        except RedisError as error:
            raise StoreUnavailableError(str(error)) from error
        except (ValueError, KeyError, TypeError):
            return None  # whatever lies there was not written by a fleet of this version
        if truth is None or len(truth.shares) != len(survey.mechanism.labels):
            return None
        return Truth(list(truth.shares), truth.devices, truth.settled)


def _window(record: EstimateRecord, truth: Truth | None) -> Window:
    return Window(**msgspec.structs.asdict(record), truth=truth)
