"""Exports on real services: killed and resumed, counted by DuckDB, equal to Redis until somebody changes it."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from streams.repair import export as exporting
from streams.repair.export_files import ExportFolder
from streams.store.shape import Key
from tests.integration.commands import Thaw, commands
from tests.integration.test_verify import settled
from tests.integration.workers import THAW, System
from tests.support.deadline import until

pytestmark = pytest.mark.real

ROUNDS = 4
USERS = 3_000
SLOW = """
import signal, sys
from streams.cli.main import main
from streams.kafka import reader
from streams.repair import export
from streams.repair.export_files import ExportFolder
export.PART_BYTES = 20_000
reader._RECORDS_AT_ONCE = 10
commit, parts = ExportFolder.commit, []
def stuck(folder, part):
    parts.append(part)
    if len(parts) == 3:
        print("ready", flush=True)
        signal.pause()
    commit(folder, part)
ExportFolder.commit = stuck
main(sys.argv[1:])
"""


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    surveys = tmp_path / "surveys"
    surveys.mkdir()
    made = System(kafka, redis_url, topic_prefix, surveys)
    made.create_topics()
    return made


@pytest.fixture
def thaw(system: System, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Thaw:
    return commands(system.settings, capfd, monkeypatch)


def killed_export(folder: Path) -> None:
    """Start an export of small parts and kill it while it has the third one written and not committed."""
    command = [THAW[0], "-c", SLOW, "export", str(folder)]
    process = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    finally:
        process.kill()
        process.communicate()


def test_a_killed_export_is_resumed_and_counts_like_redis_until_redis_is_changed(
    system: System, thaw: Thaw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "export"
    rounds = [system.reports(USERS, seed=seed) for seed in range(ROUNDS)]
    with system.worker():
        for one in [*rounds, rounds[0]]:
            system.produce(one.messages(8, limit_bytes=4_096))
        system.produce({3: [b"no frame"]})
        settled(system, ROUNDS * USERS)
        monkeypatch.setattr(exporting, "PART_BYTES", 60_000)
        killed_export(folder)
        assert len(ExportFolder(folder).parts()) == 2
        planned = thaw("export", str(folder), "--dry-run", "--json")
        assert sum(span["end"] - span["start"] for span in json.loads(planned.out)["reports"]) > 0
        done = thaw("export", str(folder), "--json")
        assert done.status == 0, done.err
        parts = ExportFolder(folder).committed()
        assert sum(part.rows["reports"] for part in parts) == (ROUNDS + 1) * USERS
        # Either run may have met it: each says what it met itself.
        assert sum((Counter(part.refused) for part in parts), Counter()) == {"length": 1}
        assert thaw("export", str(folder)).status == 0

        # Offsets of idle shards are raised, and the last estimate is published, after the window has settled.
        def equal() -> bool:
            thaw("export", str(folder))
            return thaw("recount", str(folder), "--json").status == 0

        until(equal, 60, "counts that are equal")
    counted = thaw("recount", str(folder), "--json")
    assert (counted.status, json.loads(counted.out)) == (
        0,
        {"engine": "duckdb", "windows": 1, "equal": 1, "different": 0},
    )
    verified = thaw("verify", "--export", str(folder), "--kafka", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0")
    assert (verified.status, verified.out.splitlines()[-1]) == (0, "1 windows: 1 equal"), verified.err

    _add_a_user(system)
    changed = thaw("recount", str(folder), "--json")
    assert changed.status == 1
    assert json.loads(changed.out) == {"engine": "duckdb", "windows": 1, "equal": 0, "different": 1}
    assert f"different: {ROUNDS * USERS + 1:,} users" in changed.err
    assert f"tally: Redis has {ROUNDS * USERS + 1:,} users, the export {ROUNDS * USERS:,}" in changed.err


def _add_a_user(system: System) -> None:
    """Add one to the stored users and answers of a shard."""
    client = redis.Redis.from_url(system.settings.redis)
    *_, key = system.store.estimates._connection.log_keys(Key(system.survey.id, system.window_ms, 3))
    raw: Any = client.get(key)
    tally = bytearray(raw)
    first_answer = 16 + 8 * system.survey.mechanism.rungs
    for place in (16, first_answer):
        tally[place : place + 8] = (int.from_bytes(tally[place : place + 8], "little") + 1).to_bytes(8, "little")
    client.set(key, bytes(tally), keepttl=True)
    client.close()
