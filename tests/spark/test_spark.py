"""Worker, DuckDB and Spark count the same, byte for byte; a wrong order of reports is caught. Spark starts once."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from streams.repair import engines
from streams.repair.engines import DuckDB, EngineError, Spark
from tests.support.exports import STORIES, busy_bench, compared, export
from tests.support.reports import SURVEYS, SurveyDict

pytestmark = [
    pytest.mark.spark,
    # Sockets between Python and Java are closed when they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_worker_duckdb_and_spark_count_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pyspark") is None:
        assert not os.environ.get("CI"), "pyspark is not installed; run: make spark-test"
        pytest.skip("pyspark is not installed; run: make spark-test")
    bench, surveys = busy_bench(7), list(SURVEYS)
    export(tmp_path, bench.topic, SurveyDict(*SURVEYS))
    with DuckDB() as engine:
        by_duckdb = compared(tmp_path, bench.store, surveys, engine)
    # Two executors in processes of their own, one core and 1 GiB each.
    with Spark("local-cluster[2,1,1024]") as spark:
        by_spark = compared(tmp_path, bench.store, surveys, spark)
        monkeypatch.setattr(engines, "PRECEDENCE", ("answer", "rung", "tie", "group_number", "bits"))
        mutant = compared(tmp_path, bench.store, surveys, spark)
    assert by_spark == by_duckdb
    verdicts = {(survey.id, verdict.window_ms): verdict.status for survey, some in by_spark for verdict in some}
    assert verdicts == dict.fromkeys([(survey.id, window_ms) for survey, window_ms in STORIES], "equal")
    assert "different" in {verdict.status for _, some in mutant for verdict in some}
    with pytest.raises(EngineError, match="Spark does not start with --master nowhere://"), Spark("nowhere://h"):
        raise AssertionError("it started")
