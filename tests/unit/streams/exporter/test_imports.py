"""The exporter and `thaw estimates` load no numba, no Kafka client and no Faust: seen on the running processes."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from streams.local.process import free_ports
from tests.support.deadline import until
from tests.support.paths import ROOT
from tests.support.surveys import survey_text

WORKER_ONLY = {"numba", "llvmlite", "faust", "mode", "kafka", "aiokafka", "confluent_kafka"}
WORKER_ROOMS = ("streams.worker", "streams.kafka", "streams.local", "streams.repair")


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "colour.toml").write_text(survey_text())
    # Nothing listens on port 1: an exporter without Redis answers all the same.
    return os.environ | {"THAW_REDIS": "redis://127.0.0.1:1", "THAW_SURVEYS": str(folder), **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-X", "importtime", "-m", "streams.cli", *words]


def loaded(log: str) -> set[str]:
    """Return the modules that `python -X importtime` names."""
    return set(re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", log, re.MULTILINE))


def check(modules: set[str]) -> None:
    assert {"msgspec", "streams.exporter.reader"} <= modules
    assert sorted(WORKER_ONLY & {module.split(".")[0] for module in modules}) == []
    assert sorted(module for module in modules if module.startswith(WORKER_ROOMS)) == []


def test_a_running_exporter_has_loaded_nothing_of_a_worker(tmp_path: Path) -> None:
    [port] = free_ports(1)
    log = tmp_path / "imports.log"
    with log.open("wb") as stderr:
        env = environment(tmp_path, THAW_EXPORTER_PORT=str(port))
        exporter = subprocess.Popen(command("exporter"), stdout=subprocess.DEVNULL, stderr=stderr, cwd=ROOT, env=env)

    def status(path: str) -> int | None:
        assert exporter.poll() is None, log.read_text()[-2_000:]
        try:
            return int(urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30).status)
        except urllib.error.HTTPError as error:
            return error.code
        except (urllib.error.URLError, OSError):
            return None

    try:
        assert until(lambda: status("/metrics"), 60, "the exporter to answer") == 200
        assert status("/healthz") == 503
        assert status("/api/v1/surveys") == 200
    finally:
        exporter.terminate()
        exporter.wait(60)
    modules = loaded(log.read_text())
    check(modules)
    assert "aiohttp" in modules


def test_printing_estimates_loads_nothing_of_a_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        command("estimates"), capture_output=True, text=True, cwd=ROOT, env=environment(tmp_path), check=False
    )
    assert (done.returncode, done.stdout) == (75, "")
    assert "Redis does not answer" in done.stderr
    check(loaded(done.stderr))
