"""Windows whose estimates were made with other candidates or a shorter ladder than the survey has now: made again."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from producers.survey.survey import Survey
from streams.store.contract import Store
from streams.windows.record import EstimateRecord, RecordError, ValueEstimate, decode_estimate

logger = logging.getLogger(__name__)


class CandidateWatch:
    """Puts windows into the recompute queue when the candidates or the ladder of their survey have changed.

    Stored estimates tell what they were made with, so nothing needs to be remembered over a restart, and several
    workers that read the file at different moments end up with the newest.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, tuple[str, str]] = {}

    def queue_changed(self, surveys: Iterable[Survey]) -> int:
        """Queue windows of surveys that are new here in this form, where the stored estimate was made with another."""
        queued = 0
        for survey in surveys:
            form = survey.edition, survey.candidates_hash
            if not (survey.candidates or survey.continued) or self._seen.get(survey.id) == form:
                continue
            starts = self._store.estimates.window_starts(survey.id)
            payloads = self._store.estimates.read_many([(survey.id, start_ms) for start_ms in starts])
            changed = [
                (survey.id, start_ms)
                for start_ms, payload in zip(starts, payloads, strict=True)
                if payload is not None and _other(payload, survey)
            ]
            self._store.queue.put(changed)
            self._seen[survey.id] = form
            queued += len(changed)
            if changed:
                logger.info("%s: other candidates or rungs; estimating %d windows again", survey.id, len(changed))
        return queued


def _other(payload: bytes, survey: Survey) -> bool:
    try:
        record = decode_estimate(payload)
    except RecordError:
        return False
    if len(record.users_per_rung) < survey.mechanism.rungs:
        return True
    return bool(survey.candidates) and [row.value for row in record.values] != list(survey.mechanism.labels)


def aligned(survey: Survey, record: EstimateRecord) -> list[ValueEstimate]:
    """Return the estimates of a record in the order of the survey's values, without numbers for those it lacks.

    It may have been made with other candidates, a moment ago or, where only totals are published, for good.
    """
    if not survey.candidates:
        return record.values
    found = {row.value: row for row in record.values}
    return [found.get(label, ValueEstimate(label, None, None, None, None)) for label in survey.mechanism.labels]
