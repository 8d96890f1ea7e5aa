"""All mechanisms of all five papers, end to end on real services: fleet, Kafka, worker, Redis, estimate, truth."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tomli_w

from streams.local.demo_report import audit_window, window_entry
from streams.windows.record import decode_estimate
from tests.integration.fleets import fleet_through_worker
from tests.support.examples import EXAMPLES, survey_file
from tests.support.stats import assert_normal

pytestmark = pytest.mark.real

DEVICES = 8_000
WINDOWS = 2


def test_every_mechanism_works_from_fleet_to_estimate(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    for example in EXAMPLES:
        (tmp_path / f"{example.name}.toml").write_text(tomli_w.dumps(survey_file(example)))
    arguments = ["--devices", str(DEVICES), "--scenario", "stoppers", "--seed", "5", "--windows", str(WINDOWS)]
    arguments += ["--tick-ms", "1000"]
    store, surveys, journals = fleet_through_worker(kafka, redis_url, topic_prefix, tmp_path, arguments)
    assert len(surveys) == 20
    assert len(journals) == WINDOWS * len(surveys)
    by_id = {survey.id: survey for survey in surveys}
    for journal in journals:
        survey = by_id[journal.survey_id]
        audit = audit_window(store, survey, journal)
        assert (audit.lost, audit.double) == (0, 0), survey.id
        payload = store.estimates.read(survey.id, journal.window_ms)
        assert payload is not None, survey.id
        entry = window_entry(decode_estimate(payload), journal.truth())
        assert entry["users"] == DEVICES * survey.mechanism.copies, survey.id
        for row in entry["estimates"]:
            assert row["estimate"] is not None, (survey.id, row)
            assert_normal(row["estimate"], row["truth"], math.sqrt(row["variance"]) + 1e-9)
