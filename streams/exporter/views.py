"""The answers of the API, read from the store, the heartbeats and the truth of simulated fleets. Blocking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Final, Protocol, cast

import msgspec

from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from streams.exporter.alert_states import assumption_alerts, in_order, pipeline_alerts, threshold_alerts
from streams.exporter.api import (
    Alerts,
    Health,
    History,
    HistoryPoint,
    ServiceState,
    SurveyInfo,
    Window,
    Windows,
)
from streams.exporter.api_survey import GridInfo, RegistryInfo
from streams.exporter.api_views import ShareViews
from streams.exporter.health import Rates
from streams.exporter.pipeline import make_health, store_down
from streams.exporter.reader import Reader, Snapshot, SurveyState
from streams.exporter.share_views import likelihood_view, share_views
from streams.exporter.windows import EncodedWindow, Moment, WindowEncoder
from streams.store.truth import Truth as TrueShares
from streams.windows.likelihood import offers_likelihood, views_offered
from streams.windows.settled import settles_ms, unsettled_windows

RECENT_WINDOWS: Final = 60
"""Windows that the page shows and the feed watches."""
MOST_WINDOWS: Final = 500
"""Windows in one answer at most. With more, one request could block all others for seconds."""
SETTLING_MS: Final = 60_000
"""Time after which a window that settled is no longer looked at for that reason."""
_FRESH_LEAST: Final = 12
_FRESH_MOST: Final = 200


class TruthSource(Protocol):
    """Where simulated fleets store their truth; `streams.store.truth.RedisTruths` is one."""

    def read_many(self, survey_id: str, starts: Sequence[int]) -> Mapping[int, TrueShares]:
        """Return the truth of those of these windows that a simulated fleet wrote it of."""
        ...


def survey_info(survey: Survey) -> SurveyInfo:
    """Convert a survey to its API type."""
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
        quantities=[quantity.kind for quantity in mechanism.quantities],
        canary=survey.canary is not None,
        settles_after_ms=settles_ms(survey, 0),
        rungs=survey.rungs,
        end_ms=survey.end_ms,
        units=[quantity.unit for quantity in mechanism.quantities],
        meanings=[quantity.meaning for quantity in mechanism.quantities],
        names=[quantity.name or quantity.label for quantity in mechanism.quantities],
        subjects=[quantity.subject for quantity in mechanism.quantities],
        lows=[quantity.low for quantity in mechanism.quantities],
        highs=[quantity.high for quantity in mechanism.quantities],
        sensitive=[quantity.sensitive for quantity in mechanism.quantities],
        protects=mechanism.guarantee.protects,
        copies=mechanism.copies,
        views=views_offered(survey),
        z=NormalDist().inv_cdf(1 - survey.alpha / 2),
        grid=GridInfo.of(survey.grid),
        attributes=None if survey.attributes is None else {name: list(own) for name, own in survey.attributes.parts},
        adds_up=mechanism.adds_up,
        candidates=bool(survey.candidates),
        registry=RegistryInfo.of(survey.registry),
        tier="" if survey.tier is None else survey.tier.name,
    )


def fresh_windows(survey: Survey) -> int:
    """Return how many of the newest windows can still change by what is scheduled, late reports not counted."""
    return min(_FRESH_MOST, max(_FRESH_LEAST, unsettled_windows(survey) + 4))


class Views:
    """All answers of the API. Those on windows read the store and may raise StoreUnavailableError.

    counted_ms is that of the last snapshot.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        truths: TruthSource | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.reader, self._truths, self._clock = reader, truths, clock
        self._rates = Rates()
        self._encoder = WindowEncoder()
        self._infos: tuple[Sequence[Survey], bytes] = [], b"[]"

    def now_ms(self) -> int:
        """Return the time."""
        return self._clock()

    def surveys(self) -> bytes:
        """Return all surveys: JSON of a list of `api.SurveyInfo`, made again only when one of them changed."""
        surveys, (before, told) = list(self.reader.surveys()), self._infos
        if len(before) != len(surveys) or any(old is not new for old, new in zip(before, surveys, strict=True)):
            told = msgspec.json.encode([survey_info(survey) for survey in surveys])
            self._infos = surveys, told
        return told

    def survey(self, survey_id: str) -> Survey | None:
        """Return one survey."""
        return next((survey for survey in self.reader.surveys() if survey.id == survey_id), None)

    def windows(self, survey: Survey, *, from_ms: int, to_ms: int, limit: int, counted_ms: int | None = None) -> bytes:
        """Return the newest windows that start in [from_ms, to_ms], at most `limit`: JSON of `api.Windows`."""
        starts = [start_ms for start_ms in self.reader.starts(survey.id) if from_ms <= start_ms <= to_ms]
        shown = [msgspec.Raw(found.body) for found in self._windows(survey, starts[: -limit - 1 : -1], counted_ms)]
        return msgspec.json.encode(Windows(survey.id, cast(list[Window], shown), len(starts) > limit))

    def window(self, survey: Survey, start_ms: int, counted_ms: int | None = None) -> bytes | None:
        """Return one window as JSON of `api.Window`; None if it has no estimate."""
        return next((found.body for found in self._windows(survey, [start_ms], counted_ms)), None)

    def views(self, survey: Survey, start_ms: int, *, ask: bool) -> ShareViews | None:
        """Return the views of a window, and ask for its likelihood; None if it has no estimate."""
        record = next(iter(self.reader.records(survey.id, [start_ms])), None)
        if record is None:
            return None
        found = share_views(record)
        if offers_likelihood(survey) and record.withheld is None:
            found.append(likelihood_view(self.reader.likelihood(survey, record, ask=ask)))
        return ShareViews(survey.id, start_ms, record.computed_ms, found)

    def history(self, survey: Survey, start_ms: int) -> History | None:
        """Return how the estimate of a window changed; None if it has no estimate."""
        if not self.reader.records(survey.id, [start_ms]):
            return None
        info = survey_info(survey)
        later = (survey.opening_ms(start_ms, rung) for rung in range(1, len(survey.opens_ms)))
        return History(
            survey=survey.id,
            window_start_ms=start_ms,
            window_end_ms=survey.windows.end(start_ms),
            values=info.values,
            openings_ms=[start_ms, *later],
            epsilons=info.epsilons,
            points=[
                HistoryPoint(
                    time_ms=point.time_ms,
                    users_per_rung=point.users_per_rung,
                    values=point.values,
                    estimate=point.estimate,
                    lower=point.lower,
                    upper=point.upper,
                )
                for point in self.reader.history(survey.id, start_ms)
                if point.candidates == survey.candidates_hash
            ],
        )

    def recent(self, *, thoroughly: bool, counted_ms: int | None = None) -> Iterable[EncodedWindow]:
        """Return the windows that may have changed; thoroughly: all that the page shows, late reports included.

        Windows that settle now are among them, however many newer ones there are.
        """
        now_ms = self._clock()
        for survey in self.reader.surveys():
            count = max(RECENT_WINDOWS, fresh_windows(survey)) if thoroughly else fresh_windows(survey)
            starts = self.reader.starts(survey.id)
            settling = [
                start_ms for start_ms in starts[:-count] if 0 <= now_ms - settles_ms(survey, start_ms) < SETTLING_MS
            ]
            yield from self._windows(survey, settling + starts[-count:], counted_ms)

    def health(self, snapshot: Snapshot) -> Health:
        """Return the health of the pipeline; called once for each snapshot, since rates are taken between them."""
        now_ms = self._clock()
        counters = sum((state.counters for state in _counted_once(snapshot.states)), snapshot.unknown_survey)
        self._rates.look(now_ms, counters.applied, counters.rejected_total)
        canaries = [state.canary for state in snapshot.states if state.canary is not None]
        return make_health(
            now_ms,
            surveys=[state.survey for state in snapshot.states],
            last_estimates={state.survey.id: state.last_estimate_ms for state in snapshot.states},
            counters=counters,
            heartbeats=snapshot.heartbeats,
            queue=snapshot.queue,
            rates=self._rates,
            canary=max(canaries, key=lambda score: abs(score.z) / score.limit, default=None),
            epsilons=[state.epsilon for state in snapshot.states if state.epsilon is not None and not state.superseded],
        )

    def no_health(self, reason: str, *, store: ServiceState = "down") -> Health:
        """Return the health while the store does not answer, or before it was read."""
        return store_down(self._clock(), reason, surveys=self.reader.surveys(), store=store)

    def _windows(self, survey: Survey, starts: Sequence[int], counted_ms: int | None) -> list[EncodedWindow]:
        """Read windows in two round trips; what did not change since it was encoded is neither decoded nor encoded."""
        moment = Moment(self._clock(), counted_ms)
        payloads = self.reader.payloads(survey.id, starts)
        truths = self._truths.read_many(survey.whole.id, starts) if self._truths is not None else {}
        encoded = (
            self._encoder.encode(survey, start_ms, payload, truths.get(start_ms), moment)
            for start_ms, payload in zip(starts, payloads, strict=True)
            if payload is not None
        )
        return [window for window in encoded if window is not None]


def _counted_once(states: Sequence[SurveyState]) -> list[SurveyState]:
    """Return the widest of what is there of each survey: the reports of its tiers are among its own."""
    widest: dict[str, SurveyState] = {}
    for state in sorted(states, key=lambda state: state.survey.highest_rung):
        widest[state.survey.whole.id] = state
    return list(widest.values())


def stored_alerts(health: Health, snapshot: Snapshot | None) -> Alerts:
    """Evaluate the alert rules on what is stored: for installations without Prometheus."""
    found = pipeline_alerts(health)
    for state in snapshot.states if snapshot is not None else ():
        if not state.superseded:
            found += threshold_alerts(state.survey, state.records) + assumption_alerts(state.survey, state.records)
    return Alerts("estimates", in_order(found))
