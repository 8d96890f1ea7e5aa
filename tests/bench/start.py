"""How long a start takes: a worker with its code compiled beforehand and without, a demo that has run before.

A demo from a fresh clone installs everything anew and takes what the network gives: `python -m tests.bench.start fresh`
measures it alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from streams.local.process import Child
from tests.bench.goals import Measured, Result
from tests.support.deadline import until
from tests.support.paths import ROOT

WARM_SECONDS, FRESH_SECONDS, WORKER_CPU_SECONDS = 8.0, 45.0, 3.0
ROUNDS: Final = 2
_DEADLINE_SECONDS: Final = 300.0
_WARM_UP: Final = "import streams.worker.process; from streams.worker.fold import warm_up; warm_up()"


def results() -> Iterator[Measured]:
    """Measure workers, then demos."""
    with tempfile.TemporaryDirectory() as folder:
        cold = _cpu_seconds({"NUMBA_CACHE_DIR": folder})
    warm = min(_cpu_seconds({}) for _ in range(ROUNDS))
    yield Result("start-worker", warm, "CPU-s", most=WORKER_CPU_SECONDS)
    yield Result("start-worker-compiled", 1 / warm, "per CPU-s", "nothing compiled", 1 / cold)
    demo = [str(Path(sys.executable).parent / "thaw"), "demo"]
    yield Result("start-demo-warm", _first_picture(demo, ROOT), "s", most=WARM_SECONDS)
    yield fresh()


def fresh() -> Result:
    """Measure `make demo` in a fresh clone: environment, packages and compiled code are made anew."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "thaw"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        seconds = _first_picture(["make", "demo"], clone)
    return Result("start-demo-fresh", seconds, "s", most=FRESH_SECONDS)


def _cpu_seconds(env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _WARM_UP], cwd=ROOT, env=os.environ | env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _first_picture(command: Sequence[str], folder: Path) -> float:
    """Return the seconds until the page of a demo has an estimate to draw."""
    with tempfile.TemporaryDirectory() as logs:
        log = Path(logs) / "demo.log"
        started = time.perf_counter()
        child = Child("demo", list(command), log=log, cwd=folder)
        try:
            url = until(lambda: _page(child, log), _DEADLINE_SECONDS, "the address of the page", poll_seconds=0.05)
            until(lambda: _has_estimate(child, url), _DEADLINE_SECONDS, "a first estimate", poll_seconds=0.05)
            seconds = time.perf_counter() - started
            print(f"{' '.join(command)}: first picture after {seconds:.1f} s", file=sys.stderr)
            return seconds
        finally:
            child.terminate(30)
            child.kill()


def _page(child: Child, log: Path) -> str:
    child.check()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("page http")]
    return lines[0].removeprefix("page ") if lines else ""


def _has_estimate(child: Child, url: str) -> bool:
    child.check()
    try:
        return any(_answer(f"{url}api/v1/surveys/{survey['id']}/windows") for survey in _answer(f"{url}api/v1/surveys"))
    except OSError:
        return False


def _answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def main(arguments: list[str]) -> int:
    """Measure the demo of a fresh clone alone."""
    if arguments != ["fresh"]:
        print("say `fresh`", file=sys.stderr)
        return 2
    print(fresh().verdict)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
