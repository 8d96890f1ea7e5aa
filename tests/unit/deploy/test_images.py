"""The Dockerfile: what can be said of it without building it. `make image-test` builds and runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.images.__main__ import ROLES
from tests.images.engine import BASE, DOCKERFILE
from tests.support.paths import DOCS, ROOT

TEXT = DOCKERFILE.read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def stages() -> dict[str, str]:
    """Return the text of each stage by its name."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", TEXT, flags=re.MULTILINE)
    return {name: f"FROM {base}\n{text}" for base, name, text in zip(*[iter(parts[1:])] * 3, strict=True)}


def variables(stage: str) -> dict[str, str]:
    """Return what a stage sets in the environment."""
    joined = stages()[stage].replace("\\\n", " ")
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", joined, flags=re.MULTILINE))))


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("role", ROLES)
def test_an_image_has_a_numeric_user_and_takes_the_result_of_the_first_stage_only(role: str) -> None:
    text = stages()[role]
    assert re.findall(r"^USER (.*)$", text, flags=re.MULTILINE) == ["65532:65532"]
    assert re.findall(r"^COPY (.*)$", text, flags=re.MULTILINE) == [f"--from=build-{role} /opt/thaw /opt/thaw"]
    assert "RUN" not in text
    assert f'CMD ["{role}"]' in text


def test_the_worker_looks_for_code_where_and_for_what_processor_it_was_compiled() -> None:
    names = {"NUMBA_CACHE_DIR", "NUMBA_CPU_NAME"}
    made, used = variables("build-worker"), variables("worker")
    assert {name: made[name] for name in names} == {name: used[name] for name in names}
    assert made["NUMBA_CPU_NAME"] == "generic"
    assert not names & set(variables("exporter"))


def test_the_image_of_the_exporter_asks_for_nothing_with_numba() -> None:
    [extras] = re.findall(r"\.\[(.*)\]", stages()["build-exporter"])
    wanted = {need for extra in extras.split(",") for need in PROJECT["project"]["optional-dependencies"][extra]}
    assert wanted
    assert not {need for need in wanted if re.match(r"numba|faust|thaw", need)}


def test_the_context_holds_everything_that_a_wheel_is_made_of() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    metadata = {"pyproject.toml", "constraints.txt", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert allowed == {*wheel["packages"], *wheel["force-include"], *metadata}


def test_the_base_that_the_test_makes_is_the_one_that_is_named() -> None:
    assert stages()["python"].startswith(f"FROM {BASE.rpartition('/')[2]}\n")


def test_the_docs_name_both_images_with_their_size() -> None:
    text = (DOCS / "deployment.md").read_text()
    for role in ROLES:
        assert re.search(rf"\| `thaw-{role}` \|.*\b\d+ MB", text)
