"""The thread of a worker that computes full likelihoods of unary reports, one window at a time, when asked to."""

from __future__ import annotations

import logging
import threading
from typing import Final

import numpy as np

from estimators.inference.ascent import Told
from estimators.inference.em_bits import reports_mle
from estimators.inference.likelihood_distance import likelihood_distance
from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.store.contract import Store, StoreCorruptError, StoreUnavailableError
from streams.store.ladders import LongerLadderError
from streams.store.shape import Key, Shape
from streams.windows.likelihood import Likelihood, Likelihoods, offers_likelihood
from streams.windows.record import ShareView, decode_estimate
from streams.worker.table import Table, unpack

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_SEARCH: Final = 0.7
"""Part of the way, as it is told, to the maximum; the rest is the simulation of how far from the truth it is."""
TELL_MS: Final = 1_000
"""Time between two signs of progress."""


class _TakenError(Exception):
    """Another worker has the window now, or this one stops."""


class LikelihoodMaker:
    """Computes what is asked for. Needs its own store connection, since it runs in its own thread."""

    def __init__(self, store: Store, surveys: SurveyList, worker: str, *, clock: Clock = system_clock) -> None:
        self._store, self._surveys, self._worker, self._clock = store, surveys, worker, clock
        self._likelihoods = Likelihoods(store.states)
        self._told_ms = 0

    def run(self, stop: threading.Event) -> None:
        """Look for what is asked until `stop` is set."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look(stop)
            except StoreUnavailableError:
                continue  # the recomputation says so; what is asked for stays asked for

    def look(self, stop: threading.Event | None = None) -> int:
        """Compute all windows that are asked for; return how many."""
        made = 0
        for survey in self._surveys.surveys(self._clock()):
            if not offers_likelihood(survey):
                continue
            for window_ms in self._likelihoods.asked(survey):
                if stop is not None and stop.is_set():
                    return made
                if self._likelihoods.take(survey, window_ms, self._worker, self._clock()):
                    made += self._make(survey, window_ms, stop)
                found = self._likelihoods.read(survey, window_ms)
                if found is None or found.state in ("done", "failed"):
                    self._likelihoods.strike(survey, window_ms)
        return made

    def _make(self, survey: Survey, window_ms: int, stop: threading.Event | None) -> int:
        def told(progress: float) -> None:
            now_ms = self._clock()
            if stop is not None and stop.is_set():
                raise _TakenError
            if now_ms - self._told_ms >= TELL_MS:
                self._told_ms = now_ms
                sign = Likelihood("computing", now_ms, self._worker, min(max(progress, 0.0), 1.0))
                if not self._likelihoods.tell(survey, window_ms, sign):
                    raise _TakenError

        try:
            found = self._maximum(survey, window_ms, told)
        except _TakenError:
            return 0
        except StoreCorruptError as error:
            found = Likelihood("failed", self._clock(), self._worker, reason=f"{error}; it is being rebuilt, ask again")
        except (ValueError, LongerLadderError) as error:
            logger.warning("%s, window %d: no likelihood: %s", survey.id, window_ms, error)
            found = Likelihood("failed", self._clock(), self._worker, reason=str(error))
        return int(self._likelihoods.tell(survey, window_ms, found))

    def _maximum(self, survey: Survey, window_ms: int, told: Told) -> Likelihood:
        one_hot, shape = survey.mechanism.one_hot, Shape.of(survey)
        assert one_hot is not None
        keys = [Key(survey.id, window_ms, shard) for shard in range(survey.shards)]
        loaded = self._store.log.load(keys, shape, Table.of_log)
        logs = [unpack(log.content.live(), shape) for log in loaded.values()]
        answers = np.concatenate([log.answers for log in logs])
        rungs = np.concatenate([log.rungs for log in logs])
        counted = rungs < survey.mechanism.rungs  # the others were withdrawn
        answers, rungs = answers[counted], rungs[counted]
        found = reports_mle(
            one_hot.channels,
            answers,
            rungs,
            sensitive=one_hot.shielded,
            told=lambda part: told(part * _SEARCH),
        )
        if found is None:
            raise ValueError("the window has no reports")
        if found.stopped == "iterations":
            raise ValueError("the search for the maximum did not end; use another view")
        shares = found.shares[one_hot.places]
        views = self._views(survey, window_ms)
        # As for the other views: the mean of all is taken for the truth, since each looks best where it is right.
        truth = np.mean(np.array([shares, *(view.shares for view in views)]), axis=0)
        users = np.bincount(rungs, minlength=survey.mechanism.rungs).tolist()
        distance = likelihood_distance(one_hot, users, truth, told=lambda part: told(_SEARCH + part * (1 - _SEARCH)))
        own = views[0].unbiased_distance if views else None
        return Likelihood(
            "done",
            self._clock(),
            self._worker,
            1.0,
            len(rungs),
            [float(share) for share in shares],
            distance=distance,
            unbiased_distance=own,
        )

    def _views(self, survey: Survey, window_ms: int) -> list[ShareView]:
        """Return the views that are stored with the estimate of a window; none where it has none."""
        payload = self._store.estimates.read(survey.id, window_ms)
        return [] if payload is None else decode_estimate(payload).views
