"""`thaw audit` on a real broker: devices send to a topic of the audit's own, which is read back and deleted."""

from __future__ import annotations

import json

import pytest

from streams.kafka.topics import Topics
from streams.settings import Settings
from tests.integration.workers import run_thaw

pytestmark = pytest.mark.real


def test_devices_are_audited_through_the_broker(kafka: str, topic_prefix: str) -> None:
    """False alarms: 1e-6."""
    settings = Settings(kafka=kafka, prefix=topic_prefix)
    audited = run_thaw(settings, "audit", "canary", "--kafka", kafka, "--users", "320", "--crashes", "2", "--json")
    assert audited.returncode == 0, audited.stderr
    found = json.loads(audited.stdout)
    assert found["source"].startswith(f"the topic {topic_prefix}thaw.audit.")
    assert (found["chains"], found["reports"]) == (320, 960)
    assert found["contradictions"] == []
    top = found["levels"][2]
    assert 0 < top["empirical_lower_bound"] < top["exact"] <= top["charged"] <= top["declared"] == 3.0
    assert audited.stderr.splitlines()[-1] == "chains 320, reports 960, crashes 2, contradictions 0"
    left = [name for name in Topics(settings).partitions() if name.startswith(topic_prefix)]
    assert left == [], "the topic of the audit was not deleted"
