"""Calibration through the real path: 95 % intervals cover the fleet's truth 95 % of the time, users on mixed rungs.

Windows are event time, so hundreds of windows of the past go through one worker at once and nobody waits for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.local.demo_report import audit_window, window_entry
from streams.windows.record import decode_estimate
from tests.integration.fleets import fleet_through_worker
from tests.support.stats import assert_binomial
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

WINDOWS = 400
DEVICES = 1_500

SURVEY = survey_text(
    name='name = "coverage"',
    values='values = ["a", "b", "c", "d", "e"]',
    opens='opens = ["0s", "1s", "2s"]',
    jitter='jitter = "200ms"',
    size='size = "2s"',
    retention='retention = "1d"',
)


def test_intervals_cover_the_truth_of_mixed_rungs_through_the_real_path(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "coverage.toml").write_text(SURVEY)
    arguments = ["--devices", str(DEVICES), "--scenario", "stoppers", "--seed", "3", "--windows", str(WINDOWS)]
    store, [survey], journals = fleet_through_worker(kafka, redis_url, topic_prefix, tmp_path, arguments)
    assert len(journals) == WINDOWS
    inside = []
    for journal in journals:
        audit = audit_window(store, survey, journal)
        assert (audit.lost, audit.double) == (0, 0)
        payload = store.estimates.read(survey.id, journal.window_ms)
        assert payload is not None
        entry = window_entry(decode_estimate(payload), journal.truth())
        assert sum(entry["rungs"]) == entry["users"] == DEVICES
        assert min(entry["rungs"]) > 100
        inside.append([row["inside"] for row in entry["estimates"]])
    # Windows are independent, values of one window are not: each value is a check of its own. 400 windows see a
    # coverage of 83 % instead of 95 % (a variance too small by half) with near certainty.
    for value in range(5):
        assert_binomial(sum(window[value] for window in inside), WINDOWS, 0.95)
