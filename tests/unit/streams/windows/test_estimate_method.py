"""Which method an estimate comes back with, beside the one that the survey names."""

from __future__ import annotations

import pytest

from estimators.tally import Tally
from streams.windows.window_record import estimate
from tests.support.surveys import INDEPENDENT, survey


@pytest.mark.parametrize("method", ["pooled", "mle"])
def test_rungs_with_too_few_answers_to_be_compared_make_the_estimate_stratified(method: str) -> None:
    colour = survey(lifetime=f'{INDEPENDENT}\nmethod = "{method}"')
    tally = Tally.empty(3, 1, 3)
    tally.users[:, 0], tally.counts[0, 0], tally.counts[2, 0] = (1_000, 0, 4), [400, 300, 300], [0, 0, 4]
    found = estimate(colour, tally)
    assert (found.method, found.homogeneity_p) == ("stratified", None)
    assert any(f"too few answers to test whether the rungs agree: stratified, not {method}" in n for n in found.notes)
    tally.users[2, 0], tally.counts[2, 0] = 0, 0
    assert estimate(colour, tally).method == method, "one rung alone has nothing to disagree with"
