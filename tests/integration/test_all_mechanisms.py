"""All mechanisms of all five papers, end to end on real parts: fleet, Kafka, worker, Redis, estimate, truth."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from redis import Redis

from estimators.mechanisms import mechanism_class
from producers.survey import load_survey
from streams.demo_report import audit_window, read_journals, window_entry
from streams.estimate_record import decode_estimate
from streams.local import StopOrder, Supervisor, free_ports
from streams.redis_store import RedisStore
from streams.settings import load_settings
from streams.topics import Topics, wanted
from tests.support.checks import Example
from tests.support.deadline import until
from tests.support.examples import EXAMPLES
from tests.support.stats import SHARE

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
    kafka: str, redis_url: str, key_prefix: str, tmp_path: Path
) -> None:
    folder = tmp_path / "surveys"
    folder.mkdir()
    for example in EXAMPLES:
        (folder / f"{example.name}.toml").write_text(tomli_w.dumps(survey_file(example)))
    surveys = [load_survey(path) for path in sorted(folder.iterdir())]
    assert len(surveys) == 20
    prefix = key_prefix.replace(":", ".")
    flags = {"kafka": kafka, "redis": redis_url, "surveys": str(folder), "prefix": prefix, "group": prefix}
    flags["worker_port"] = str(free_ports(1)[0])
    env = {f"THAW_{name.upper()}": value for name, value in flags.items()}
    settings = load_settings(environment=env)
    Topics(settings).create(wanted(settings, surveys))
    thaw = [sys.executable, "-m", "streams.cli"]
    store = RedisStore(Redis.from_url(redis_url), prefix=prefix)
    with Supervisor() as supervisor:
        supervisor.run("worker", [*thaw, "worker"], order=StopOrder.WORKER, env=env)
        fleet = [
            *thaw,
            "fleet",
            *map(str, sorted(folder.iterdir())),
            "--devices",
            str(DEVICES),
            "--seed",
            "5",
            "--json",
        ]
        fleet += ["--scenario", "stoppers", "--pace", "fast", "--windows", str(WINDOWS)]
        fleet += ["--journal", str(tmp_path / "journal"), "--tick-ms", "1000"]
        sent = json.loads(subprocess.run(fleet, env=os.environ | env, stdout=subprocess.PIPE, check=True).stdout)

        def done() -> bool:
            supervisor.check()
            counted = [store.counters(survey.id) for survey in surveys]
            total = sum(counters.get(name, 0) for counters in counted for name in ("applied", "duplicate", "stale"))
            return total == sent["reports"] and not store.dirty()

        until(done, 120, "every report is applied and every window estimated")
        journals = read_journals(tmp_path / "journal")
        by_id = {survey.id: survey for survey in surveys}
        assert len(journals) == WINDOWS * len(surveys)
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
                # The band at one share of the suite's false-alarm budget: 6.5 deviations around the estimate.
                reach = float(-np.sqrt(row["variance"]) * _normal_quantile(SHARE / 2))
                assert abs(row["estimate"] - row["truth"]) <= reach + 1e-9, (survey.id, row)


def _normal_quantile(probability: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(probability))
