"""The rule of `kind = "while_wide"`: the next level of a window opens while its always-valid band is too wide.

What is opened is a function of public estimates: everybody can compute it again from the tally.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.estimation.registry import estimator_of
from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.windows.withdrawals import counted, false_alarm_share
from streams.windows.withheld import withheld_by


class Opening(NamedTuple):
    """What is open of a window: its highest rung, and the widest band that decided it; infinite without one."""

    window_ms: int
    rung: int
    width: float


def opening_of(survey: Survey, window_ms: int, stored: Tally, before: int, now_ms: int) -> Opening:
    """Return what is open of a window of which rung `before` was: at most one rung more, and never less.

    Bands are those that hold at every look, so that looking until they are narrow does not make them wrong.
    """
    assert survey.stop is not None
    rung, counts = before + 1, counted(survey, stored)
    width = math.inf
    # Of a crowd that is too small nothing is published, and nothing is said by a rule either.
    if counts.tally.total_users and withheld_by(survey, counts.tally, settled=True) is None:
        alpha = survey.alpha * false_alarm_share(counts.withdrawn)
        bounds = estimator_of(survey.mechanism).always_valid(counts.tally, alpha=alpha)
        if bounds is not None:
            width = float(np.max(bounds[1] - bounds[0]))
    due = rung < survey.mechanism.rungs and now_ms >= survey.opening_ms(window_ms, rung)
    return Opening(window_ms, rung if due and width > survey.stop.width else before, width)
