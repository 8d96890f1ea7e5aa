"""What is asked of the two images: who they run as, what they hold, and that they count."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from streams.local.kafka import ApacheKafka
from streams.local.process import free_ports
from streams.local.redis import Redis
from tests.images.engine import Engine
from tests.support.deadline import until
from tests.support.paths import DOCS, ROOT

SURVEY: Final = "tests/browser/surveys/quiet.toml"
DEVICES: Final = 20_000
RUNGS: Final = 2
WINDOWS: Final = 3
SURVEYS_INSIDE: Final = "/surveys"
SIZE_TOLERATED: Final = 0.05
"""Part by which an image may differ from its size in docs/deployment.md."""

_KERNELS: Final = """
from streams.worker import fold, kernels
fold.warm_up()
loops = [kernels.scan_frames, kernels.pack_frames, kernels.fold_entries, kernels.rehash]
print(sum(sum(loop.stats.cache_hits.values()) for loop in loops), sum(len(loop.signatures) for loop in loops))
"""
"""Prints how many compiled loops came from the cache, and how many there are."""

Check = Callable[[Engine, str, str], None]
Done = subprocess.CompletedProcess[str]


def it_runs_as_a_number_without_rights_on_a_read_only_root(engine: Engine, image: str, _role: str) -> None:
    """The image names its user by number, and nothing can be written."""
    assert engine.config(image)["Config"]["User"] == "65532:65532"
    who = engine.run(image, ["-u"], entry="id")
    assert who.stdout.strip() == "65532", who
    written = engine.run(image, ["-c", "touch /tmp/x || touch /opt/thaw/x"], entry="sh")
    assert written.returncode
    assert "Read-only file system" in written.stderr, written


def it_holds_no_installer(engine: Engine, image: str, _role: str) -> None:
    """What was needed to build it stayed in the first stage."""
    found = engine.run(image, ["-c", "import importlib.util as u; print(u.find_spec('pip'))"], entry="python")
    assert found.stdout.strip() == "None", found
    assert engine.run(image, ["/src"], entry="ls").returncode


def it_answers_for_itself(engine: Engine, image: str, role: str) -> None:
    """Its commands run, and wrong input gets one sentence."""
    helped = engine.run(image, ["--help"])
    assert helped.returncode == 0, helped
    assert "exporter" in helped.stdout
    wrong = engine.run(image, [role], variables={"THAW_REDIS": "no address"})
    assert wrong.returncode == 2, wrong
    _assert_one_sentence(wrong.stderr, "THAW_REDIS")


def the_worker_finds_its_compiled_code(engine: Engine, image: str, role: str) -> None:
    """The loops of the worker come from the cache of the image; the other image has no numba."""
    done = engine.run(image, ["-c", _KERNELS], entry="python")
    if role == "worker":
        assert done.returncode == 0, done
        hits, all_of_them = map(int, done.stdout.split())
        assert hits == all_of_them > 0, done
    else:
        assert "No module named 'numba'" in done.stderr, done
        refused = engine.run(image, ["worker"])
        assert refused.returncode == 1, refused
        _assert_one_sentence(refused.stderr, "pip install 'thaw[worker]'")


def the_worker_gives_up_with_75(engine: Engine, image: str, role: str) -> None:
    """Without Redis it ends so that an orchestrator starts it again."""
    if role == "worker":
        ended = engine.run(image, ["worker"], variables={"THAW_PATIENCE_SECONDS": "1"})
        assert ended.returncode == 75, ended
        assert "Traceback" not in ended.stderr, ended
        assert "Redis" in ended.stderr, ended


CHECKS: Final[tuple[Check, ...]] = (
    it_runs_as_a_number_without_rights_on_a_read_only_root,
    it_holds_no_installer,
    it_answers_for_itself,
    the_worker_finds_its_compiled_code,
    the_worker_gives_up_with_75,
)


def _assert_one_sentence(text: str, word: str) -> None:
    assert text.startswith("Error: "), text
    assert text.count("\n") == 1, text
    assert word in text, text


def count_real_reports(engine: Engine, worker: str, exporter: str, tell: Callable[[str], None]) -> int:
    """Count a fleet's reports with both images on Kafka and Redis of this machine; return how many were counted.

    The worker's container is killed and started again while it counts; at the end it is asked to stop.
    """
    with ApacheKafka() as kafka, Redis() as store:
        page, own = free_ports(2)
        variables = {
            "THAW_KAFKA": kafka.address,
            "THAW_REDIS": store.url,
            "THAW_SURVEYS": SURVEYS_INSIDE,
            "THAW_PARTITIONS": "2",
            "THAW_INSTANCE": "worker-0",
            "THAW_WORKER_PORT": str(own),
            "THAW_EXPORTER_PORT": str(page),
            "THAW_TICK_MS": "200",
            "THAW_STRICT": "1",
        }
        mounts = {(ROOT / SURVEY).parent: SURVEYS_INSIDE}

        def run(*arguments: str) -> Done:
            return engine.run(worker, arguments, variables=variables, mounts=mounts, network="host")

        def thaw(*arguments: str) -> str:
            done = run(*arguments)
            assert done.returncode == 0, done
            return done.stdout

        tell(thaw("topics", "create").strip())
        with (
            engine.running("thaw-image-worker", worker, ["worker"], variables=variables, mounts=mounts) as counting,
            engine.running("thaw-image-exporter", exporter, ["exporter"], variables=variables, mounts=mounts),
        ):
            sent = _send(thaw)
            until(lambda: _counted(page) > 0, 60, "the first reports to be counted")
            engine.kill(counting)
            tell("worker killed and started again")
            sent += _send(thaw)
            until(lambda: _counted(page) == sent, 60, f"all {sent} reports to be counted", poll_seconds=0.5)
            until(lambda: _verified(run), 60, "windows that `thaw verify` finds equal", poll_seconds=1.0)
            log = engine.log(counting)
            assert "which is not in" not in log, f"code was compiled at run time:\n{log}"
            assert "Traceback" not in log, log
            assert engine.stop(counting) == 0, engine.log(counting)
    return sent


def _send(thaw: Callable[..., str]) -> int:
    """Send some windows of a fleet; return how many reports."""
    survey = f"{SURVEYS_INSIDE}/{Path(SURVEY).name}"
    options = ("--devices", str(DEVICES), "--windows", str(WINDOWS), "--pace", "fast", "--no-truth", "--json")
    sent = int(json.loads(thaw("fleet", survey, *options))["reports"])
    assert sent == DEVICES * RUNGS * WINDOWS
    return sent


def _verified(run: Callable[..., Done]) -> bool:
    """Recount from the topic; tell whether estimates could be compared, all of them equal."""
    done = run("verify", "--json")
    statuses = {window["status"] for survey in json.loads(done.stdout)["surveys"] for window in survey["windows"]}
    assert "different" not in statuses, done
    return "equal" in statuses and done.returncode == 0


def _counted(port: int) -> int:
    """Return how many reports are in the counts, by the exporter."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return 0
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return int(sum(sample.value for sample in samples if sample.name == "thaw_reports_applied_total"))


def sizes(engine: Engine, images: Mapping[str, str]) -> dict[str, int]:
    """Return the size of each image in MB."""
    return {role: round(engine.config(image)["Size"] / 1e6) for role, image in images.items()}


def documented_sizes() -> dict[str, int]:
    """Return the size of each image in MB as docs/deployment.md states it."""
    rows = re.findall(r"^\| `thaw-(\w+)` \|.*\| (\d+) MB \|$", (DOCS / "deployment.md").read_text(), re.MULTILINE)
    return {role: int(size) for role, size in rows}


def outdated_sizes(built: Mapping[str, int], stated: Mapping[str, int]) -> str:
    """Return what to correct in docs/deployment.md; empty if every size there is right."""
    wrong = [
        f"the image of the {role} has {size} MB, docs/deployment.md says {stated[role]} MB"
        for role, size in built.items()
        if abs(size - stated[role]) > SIZE_TOLERATED * stated[role]
    ]
    return "; ".join(wrong)
