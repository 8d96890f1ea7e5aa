"""`thaw fleet` on a real broker: several processes, a rate, the canary; and frames that another client can read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from producers.survey.survey import load_survey
from producers.wire import frames as wire
from streams.folders import deploy_folder
from streams.kafka.reader import TopicReader
from streams.kafka.topics import Topics, wanted
from streams.local.demo_report import read_journals
from streams.settings import load_settings
from tests.support.services import missing

pytestmark = pytest.mark.real

BROWSER = deploy_folder("surveys") / "browser.toml"
CANARY = deploy_folder("surveys") / "canary.toml"


@pytest.fixture
def env(kafka: str, topic_prefix: str) -> dict[str, str]:
    """Return the settings of a broker that has the topics."""
    env = {"THAW_KAFKA": kafka, "THAW_PREFIX": topic_prefix}
    settings = load_settings(environment=env)
    Topics(settings).create(wanted(settings, [load_survey(BROWSER), load_survey(CANARY)]))
    return env


def fleet(env: dict[str, str], *arguments: str) -> tuple[dict[str, float], str]:
    """Run a fleet to its end; return what it printed on stdout and on stderr."""
    command = [sys.executable, "-m", "streams.cli", "fleet", *arguments, "--pace", "fast", "--no-truth", "--json"]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def frames_by_kcat(kafka: str, topic: str, folder: Path) -> list[bytes]:
    """Read a topic with kcat, one file of raw values behind a length each."""
    kcat = shutil.which("kcat") or missing("kcat is not installed; `make setup` installs it")
    out = folder / "values"
    with out.open("wb") as stream:
        command = [kcat, "-b", kafka, "-C", "-t", topic, "-e", "-q", "-D", "", "-f", "%S %s"]
        subprocess.run(command, stdout=stream, check=True)
    raw, values, position = out.read_bytes(), [], 0
    while position < len(raw):
        end = raw.index(b" ", position)
        size = int(raw[position:end])
        values.append(raw[end + 1 : end + 1 + size])
        position = end + 1 + size
    return values


def test_two_processes_send_a_fleet_whose_frames_kcat_reads(
    env: dict[str, str], kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    arguments = ["--devices", "70000", "--processes", "2", "--windows", "1", "--seed", "9", "--tick-ms", "1000"]
    sent, talk = fleet(env, str(BROWSER), *arguments, "--journal", str(tmp_path / "journal"))
    assert "seed 9" in talk
    survey = load_survey(BROWSER)
    reports = 0
    tokens: set[bytes] = set()
    for message in frames_by_kcat(kafka, f"{topic_prefix}thaw.reports.v1", tmp_path):
        for header in wire.headers(message):
            assert isinstance(header, wire.Header)
            assert header.digest == survey.digest
            columns = wire.columns(message, header, survey.layout)
            reports += len(columns)
            tokens.update(row.tobytes() for row in columns.tokens[columns.rungs == 0])
    assert reports == sent["reports"] == 70_000 * survey.mechanism.rungs
    [journal] = read_journals(tmp_path / "journal")
    assert journal.settled
    assert len(journal.tokens) == 2
    assert {row.tobytes() for row in np.concatenate(journal.tokens)} == tokens


def test_a_fleet_fills_as_many_partitions_as_the_topic_has(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    env = {"THAW_KAFKA": kafka, "THAW_PREFIX": topic_prefix}
    settings = load_settings({"partitions": 3}, environment=env)
    Topics(settings).create(wanted(settings, [load_survey(BROWSER)]))
    sent, _ = fleet(env, str(BROWSER), "--devices", "500", "--windows", "1", "--seed", "9")
    shards: dict[int, set[int]] = {}
    with TopicReader(settings, settings.reports_topic) as reader:
        messages = [
            (batch.partition, record.value)
            for batches in reader.read()
            for batch in batches
            for record in batch.records
        ]
    for partition, value in messages:
        found = {header.shard for header in wire.headers(value or b"") if isinstance(header, wire.Header)}
        shards.setdefault(partition, set()).update(found)
    assert sent["reports"] == 500 * load_survey(BROWSER).mechanism.rungs
    assert sorted(shards) == [0, 1, 2]
    assert all(shard % 3 == partition for partition, found in shards.items() for shard in found)


def test_a_rate_holds_a_fleet_back(env: dict[str, str]) -> None:
    # However fast or slow the machine is, so many reports cannot leave earlier than the rate allows.
    sent, _ = fleet(env, str(BROWSER), "--devices", "3000", "--windows", "1", "--rate", "5000")
    assert sent["reports"] == 9_000
    assert sent["seconds"] >= 9_000 / 5_000


def test_the_canary_behaves_by_its_own_table(env: dict[str, str], tmp_path: Path) -> None:
    sent, _ = fleet(env, str(CANARY), "--canary", "--windows", "2", "--journal", str(tmp_path / "journal"))
    survey = load_survey(CANARY)
    assert survey.canary is not None
    assert sent["reports"] == 2 * survey.canary.devices * survey.mechanism.rungs
    for journal in read_journals(tmp_path / "journal"):
        truth = np.array(journal.truth(), dtype=np.float64)
        # 2,000 draws: each share within 7 standard errors of the table (false alarm below 1e-11 a value).
        shares = np.array(survey.canary.shares)
        assert (np.abs(truth - shares) < 7 * np.sqrt(shares * (1 - shares) / survey.canary.devices)).all()
