"""Makefile, versions and CI say what they should."""

import importlib.metadata
import re
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
}


def dependencies() -> list[Requirement]:
    optional = PROJECT["optional-dependencies"].values()
    needs = [Requirement(text) for texts in [PROJECT["dependencies"], *optional] for text in texts]
    return [need for need in needs if need.name != PROJECT["name"]]


def test_make_help_lists_every_target_with_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (public,) = re.findall(r"^\.PHONY: (help .*)$", makefile, flags=re.MULTILINE)
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    described = re.findall(r"^  make ([a-z-]+) +\S.*$", shown, flags=re.MULTILINE)
    assert set(described) == set(public.split()) - {"force"}
    assert {"setup", "demo", "check", "test", "kafka", "bench"} <= set(described)


def test_ci_runs_what_a_developer_runs() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "exec make test"


def test_every_constraint_is_one_exact_version() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+]+", line), line


def test_every_dependency_is_pinned() -> None:
    unpinned = [need.name for need in dependencies() if canonicalize_name(need.name) not in PINS]
    assert not unpinned


def test_what_is_installed_is_what_is_pinned() -> None:
    other = {
        found.name: found.version
        for found in importlib.metadata.distributions()
        if canonicalize_name(found.name) not in {"thaw", "setuptools"}
        and PINS.get(canonicalize_name(found.name)) != found.version
    }
    assert not other, "run `make setup`; if the new version is wanted, write it into constraints.txt"


@pytest.mark.parametrize(
    "path", ["Makefile", "constraints.txt", "pyproject.toml", "deploy/setup.sh", "deploy/kafka/pom.xml", ".ci/run"]
)
def test_no_file_says_where_packages_come_from(path: str) -> None:
    text = (ROOT / path).read_text()
    assert not re.search(r"https?://|index-url|find-links|trusted-host|<repositor", text)
