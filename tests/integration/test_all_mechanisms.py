"""All mechanisms of all five papers, end to end on real parts: fleet, Kafka, worker, Redis, estimate, truth."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from estimators.mechanisms import mechanism_class
from streams.demo_report import audit_window, window_entry
from streams.estimate_record import decode_estimate
from tests.integration.fleets import fleet_through_worker
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.stats import assert_normal

pytestmark = pytest.mark.real

DEVICES = 8_000
WINDOWS = 2


def survey_file(example: Example) -> dict[str, Any]:
    """Return a survey file for a mechanism's example."""
    ladder = list(example.ladder)
    content: dict[str, Any] = {
        "name": example.name,
        "question": "Does this mechanism work from end to end?",
        "values": list(example.values),
        "shards": 16,
        "mechanism": {"name": example.name, **example.parameters},
        "release": {"kind": "listed", "ladder": ladder, "opens": [f"{i}s" for i in range(len(ladder))], "jitter": "1s"},
        "window": {"size": "10s", "retention": "1d"},
        "budget": {"lifetime": 1e6 if math.isfinite(example.build().epsilons[-1]) else math.inf},
    }
    if not mechanism_class(example.name).guarantee.local:
        content["accept_risk"] = "Simulated devices only, whose answers are nobody's secret."
    return content


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
        payload = store.estimate(survey.id, journal.window_ms)
        assert payload is not None, survey.id
        entry = window_entry(decode_estimate(payload), journal.truth())
        assert entry["users"] == DEVICES * survey.mechanism.copies, survey.id
        for row in entry["estimates"]:
            assert row["estimate"] is not None, (survey.id, row)
            assert_normal(row["estimate"], row["truth"], math.sqrt(row["variance"]) + 1e-9)
