"""Worker, DuckDB and Spark count the same, byte for byte; a wrong order of reports is caught."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from streams.repair import engines
from streams.repair.engines import DuckDB, EngineError, Spark
from tests.integration.fleets import fleet_through_worker
from tests.simulation.test_recount import RecountedStory, RecountedWithdrawals
from tests.support.exports import STORIES, busy_bench, compared, export
from tests.support.paths import ROOT
from tests.support.reports import SURVEYS, SurveyDict

SET_BY_SPARK = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")

pytestmark = [
    pytest.mark.spark,
    # Sockets between Python and Java are closed when they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def spark_is_installed() -> None:
    if importlib.util.find_spec("pyspark") is None:
        assert not os.environ.get("CI"), "pyspark is not installed; run: make spark-test"
        pytest.skip("pyspark is not installed; run: make spark-test")


def test_worker_duckdb_and_spark_count_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Long because Spark takes long to start: what it counts is counted in one session."""
    for name in SET_BY_SPARK:
        monkeypatch.setenv(name, "")  # given back as it was
    bench, surveys = busy_bench(7), list(SURVEYS)
    export(tmp_path, bench.topic, SurveyDict(*SURVEYS))
    with DuckDB() as engine:
        by_duckdb = compared(tmp_path, bench.store, surveys, engine)
    # Two executors in processes of their own, one core and 1 GiB each.
    with Spark("local-cluster[2,1,1024]") as spark:
        by_spark = compared(tmp_path, bench.store, surveys, spark)
        for story in (RecountedStory, RecountedWithdrawals):
            monkeypatch.setattr(story, "engine", staticmethod(lambda: nullcontext(spark)))
            run_state_machine_as_test(story, settings=settings(max_examples=3, stateful_step_count=25))
        monkeypatch.setattr(engines, "PRECEDENCE", ("answer", "rung", "tie", "group_number", "bits"))
        mutant = compared(tmp_path, bench.store, surveys, spark)
    assert by_spark == by_duckdb
    verdicts = {(survey.id, verdict.window_ms): verdict.status for survey, some in by_spark for verdict in some}
    assert verdicts == dict.fromkeys([(survey.id, window_ms) for survey, window_ms in STORIES], "equal")
    assert "different" in {verdict.status for _, some in mutant for verdict in some}
    with pytest.raises(EngineError, match="Spark does not start with --master nowhere://"), Spark("nowhere://h"):
        raise AssertionError("it started")
    assert "Exception" not in capfd.readouterr().err, "a refusal is one sentence, not the stack of the virtual machine"


def test_spark_counts_the_topic_of_a_fleet_like_redis(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    surveys = tmp_path / "surveys"
    surveys.mkdir()
    for name in ("browser", "oue"):
        (surveys / f"{name}.toml").write_bytes((ROOT / "deploy" / "surveys" / f"{name}.toml").read_bytes())
    windows = 3
    arguments = ["--devices", "5000", "--seed", "5", "--windows", str(windows)]
    fleet_through_worker(kafka, redis_url, topic_prefix, surveys, arguments)
    folder = str(tmp_path / "export")
    given = {"KAFKA": kafka, "REDIS": redis_url, "PREFIX": topic_prefix, "SURVEYS": str(surveys)}
    env = os.environ | {f"THAW_{name}": value for name, value in given.items()}
    thaw = [sys.executable, "-m", "streams.cli"]
    subprocess.run([*thaw, "export", folder], env=env, check=True)
    recount = [*thaw, "recount", folder, "--json", "--engine"]
    for engine in (["spark", "--master", "local-cluster[2,1,1024]"], ["duckdb"]):
        done = subprocess.run([*recount, *engine], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        equal = {"windows": 2 * windows, "equal": 2 * windows, "different": 0}
        assert json.loads(done.stdout) == {"engine": engine[0]} | equal
