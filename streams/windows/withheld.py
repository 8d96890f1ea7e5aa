"""Windows whose survey publishes no estimate yet: too few devices, or only the total of the settled window counts.

The one place where this is decided: what is stored, published, served, drawn and exported all comes from the record.
"""

from __future__ import annotations

from typing import cast

import msgspec

from estimators.estimates import Population
from estimators.inference.pooling_result import no_estimate
from estimators.tally import Tally
from producers.clock import Clock
from producers.survey.survey import Survey
from streams.windows.record import EstimateRecord, Withheld, make_record
from streams.windows.settled import settles_ms


def withheld_by(survey: Survey, tally: Tally, *, settled: bool) -> Withheld | None:
    """Return why a survey publishes nothing of this tally yet, or None. A device counts when all its copies do."""
    publication = survey.publication
    devices = tally.total_users // survey.mechanism.copies
    if publication.totals_only and not settled:
        return Withheld("unsettled", devices, publication.least_devices)
    if devices < publication.least_devices:
        return Withheld("crowd", devices, publication.least_devices)
    return None


def withheld_record(survey: Survey, window_ms: int, tally: Tally, withheld: Withheld) -> EstimateRecord:
    """Return a record without numbers; times are 0. It tells how many answers are counted, and nothing of them."""
    population = cast(Population, survey.population)
    notes = (withheld.sentence,)
    nothing = no_estimate(survey.mechanism.labels, survey.method, population, survey.alpha, notes)
    record = make_record(survey, window_ms, tally, nothing, read_ms=0, computed_ms=0)
    return msgspec.structs.replace(record, users=tally.total_users, withheld=withheld)


def total_is_due(survey: Survey, window_ms: int, *clocks: Clock) -> bool:
    """Tell whether all of these clocks say that a window is settled, where only its total is published.

    A total is published once: a clock that is ahead must not do it before the last reports are there.
    """
    return not survey.publication.totals_only or all(clock() >= settles_ms(survey, window_ms) for clock in clocks)


def is_final(survey: Survey, record: EstimateRecord) -> bool:
    """Tell whether a stored record of a survey that publishes totals only is the one total of its window."""
    return record.withheld is None and record.read_ms >= settles_ms(survey, record.window_start_ms)
