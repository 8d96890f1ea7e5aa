"""What every window must show: of each token the report that counts, among those that came in time and may be known."""

from __future__ import annotations

from collections.abc import Iterable

from estimators.tally import Tally
from producers.survey.survey import Survey
from tests.support.precedence import Ranked, winner
from tests.support.reports import Report


def oracle(survey: Survey, log: Iterable[tuple[int, int, Report]]) -> dict[int, Tally]:
    """Return the tally of each window from (broker's time, window, report), in any order and with any repetitions."""
    best: dict[tuple[int, bytes], Ranked] = {}
    rungs = survey.mechanism.rungs
    for timestamp_ms, window_ms, report in log:
        if survey.tier is not None and survey.tier.rung < report.rung < rungs:
            continue
        if timestamp_ms < window_ms + survey.windows.size_ms + survey.retention_ms:
            place = window_ms, report.token
            best[place] = winner(report.token, best.get(place), (report.rung, report.answer))
    tallies: dict[int, Tally] = {}
    for (window_ms, _), (rung, answer) in best.items():
        empty = Tally.empty(rungs + survey.withdrawable, 1, survey.mechanism.answer.cells)
        tally = tallies.setdefault(window_ms, empty)
        tally.users[rung, 0] += 1
        tally.counts[rung, 0, answer[0]] += 1
    return tallies
