"""The Dockerfile: what can be said of it without building it. `make image-test` builds and runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from streams.cli import main as cli
from tests.images.__main__ import ROLES
from tests.images.checks import documented_sizes, outdated_sizes
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


def packages(extras: Iterable[str]) -> set[str]:
    """Return what the extras install."""
    found: set[str] = set()
    for need in (need for extra in extras for need in PROJECT["project"]["optional-dependencies"][extra]):
        own = re.fullmatch(r"thaw\[(.*)\]", need)
        found |= packages(own[1].split(",")) if own else {need}
    return found


@pytest.mark.parametrize("role", ROLES)
def test_the_docs_name_the_commands_that_an_image_can_run(role: str) -> None:
    [extras] = re.findall(r"\.\[(.*)\]", stages()[f"build-{role}"])
    held = packages(extras.split(","))
    commands = cli.cli.list_commands(click.Context(cli.cli))
    runs = {name for name in commands if name not in cli.EXTRAS or packages([cli.EXTRAS[name]]) <= held}
    [row] = re.findall(rf"^\| `thaw-{role}` \| (.*?)[;|]", (DOCS / "deployment.md").read_text(), re.MULTILINE)
    # Its extra is for everything that it can start; alone it needs what a worker needs, as in deploy/compose.
    assert set(re.findall(r"`(\w+)`", row)) == runs | ({"fleet"} if role == "worker" else set())


def test_the_docs_state_the_size_of_both_images_and_a_wrong_one_is_named() -> None:
    stated = documented_sizes()
    assert stated.keys() == set(ROLES)
    assert not outdated_sizes({role: round(1.04 * size) for role, size in stated.items()}, stated)
    for change in (0.9, 1.1):
        told = outdated_sizes(stated | {"worker": round(change * stated["worker"])}, stated)
        assert told.startswith("the image of the worker has"), told
