"""What tiers may know: the reports of a survey on their rungs and below, counted in report logs of their own.

A tier's log is the maximum over the reports up to its rung, as that of the survey is over all of them. It is folded,
applied and rebuilt by the same code in the same atomic steps, so whatever holds for a survey holds for its tiers.
"""

from __future__ import annotations

import numpy as np

from producers.survey.survey import Survey
from producers.wire.layout import TOKEN_NAME_BYTES
from streams.store.shape import Key, Shape
from streams.worker.fold import Checked
from streams.worker.words import Words


def known(survey: Survey, reports: Words) -> Words:
    """Return those of the packed reports that count for this survey: all, unless it is a tier.

    A withdrawal counts for every tier: it takes back all answers of its token.
    """
    if survey.tier is None or not len(reports):
        return reports
    rungs = reports.view(np.uint8).reshape(len(reports), -1)[:, TOKEN_NAME_BYTES] - 1
    return np.ascontiguousarray(reports[(rungs <= survey.tier.rung) | survey.withdrawals(rungs)])


def add_tiers(checked: Checked) -> None:
    """Add the reports that tiers may know, under keys of their own, with shapes and windows."""
    for key, reports in list(checked.reports.items()):
        for tier in checked.tiers.get(key.survey_id, ()):
            told = known(tier, reports)
            if len(told):
                place = tier.id, key.window_ms
                checked.shapes[tier.id] = Shape.of(tier)
                checked.reports[Key(*place, key.shard)] = told
                checked.sent_ms[place] = checked.sent_ms[key.survey_id, key.window_ms]
