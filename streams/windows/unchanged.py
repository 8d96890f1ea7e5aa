"""Finds queued windows whose stored estimate is that of their counts: after a restart of Redis nearly all are."""

from __future__ import annotations

from producers.survey.survey import Survey
from streams.store.contract import EstimateStore, StoreCorruptError
from streams.store.ladders import LongerLadderError
from streams.store.shape import Shape
from streams.windows.proof import survey_hash, tally_hash
from streams.windows.record import EstimateRecord, RecordError, decode_estimate


def unchanged(store: EstimateStore, survey: Survey, window_ms: int, payload: bytes) -> bool:
    """Return whether a stored estimate is that of the counts of this moment and of this survey.

    The tally decides: estimate and bounds are functions of it and of the survey. Where the estimate is withheld or
    has no whole proof, or the tally cannot be read, the answer is no, and the window is computed as any other.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    try:
        record = decode_estimate(payload)
    except RecordError:
        return False
    if record.withheld is not None or record.proof is None or record.proof.winners is None:
        return False
    if not _same_survey(survey, record):
        return False
    try:
        tally = store.tally(survey.id, window_ms, survey.shards, Shape.of(survey))
    except (StoreCorruptError, LongerLadderError):
        return False
    return tally_hash(tally) == record.proof.tally


def _same_survey(survey: Survey, record: EstimateRecord) -> bool:
    """Compare all that an estimate depends on; what the id contains is the same already."""
    rules = [(rule.value, rule.side, rule.threshold, rule.alpha) for rule in survey.alerts]
    bounds = [(bound.value, bound.side, bound.threshold, bound.alpha) for bound in record.alerts]
    return rules == bounds and record.proof is not None and record.proof.survey == survey_hash(survey)
