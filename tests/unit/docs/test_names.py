"""Commands, variables, metrics, make targets and files that the documentation names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import click
import pytest

from streams.cli.main import cli
from tests.support.paths import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
"""The only page that names what is gone."""
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"} - {CHANGELOG})
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
_IDS = [str(page.relative_to(ROOT)) for page in PAGES]

every_page = pytest.mark.parametrize("page", PAGES, ids=_IDS)


def commands(group: click.Command, name: str = "thaw") -> dict[str, click.Command]:
    """Return all commands by their full names."""
    found = {name: group}
    if isinstance(group, click.Group):
        context = click.Context(group)
        for child in group.list_commands(context):
            command = group.get_command(context, child)
            assert command is not None
            found |= commands(command, f"{name} {child}")
    return found


COMMANDS = commands(cli)


def quoted(text: str) -> list[str]:
    """Return everything in code: spans and lines of blocks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [*spans, *(line for block in blocks for line in block.splitlines())]


@every_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    for code in quoted(TEXT[page]):
        words = code.split("#")[0].removeprefix("$ ").removeprefix(".venv/bin/").split()
        if words[:1] != ["thaw"] or words[1:2] == ["--help"]:
            continue
        length = next((length for length in (4, 3) if " ".join(words[:length]) in COMMANDS), 2)
        name = " ".join(words[:length])
        assert name in COMMANDS, code
        known = {
            option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words[length:] if word.startswith("--")} <= known | {"--help"}, code


@every_page
def test_every_variable_is_on_the_page_of_settings(page: Path) -> None:
    variables = re.compile(r"\bTHAW_[A-Z_]*[A-Z]\b")
    assert set(variables.findall(TEXT[page])) <= set(variables.findall(TEXT[ROOT / "docs" / "settings.md"]))


@every_page
def test_every_metric_is_in_the_table(page: Path) -> None:
    known = set(re.findall(r"^\| `(thaw_\w+)`", TEXT[ROOT / "docs" / "metrics.md"], re.MULTILINE))
    assert known
    assert set(re.findall(r"`(thaw_\w+)[`{]", TEXT[page])) <= known


@every_page
def test_every_make_target_exists(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {code.split()[1] for code in quoted(TEXT[page]) if re.match(r"make [a-z]", code)}
    assert named <= known


@every_page
def test_every_file_exists(page: Path) -> None:
    """Names in capitals stand for something that the reader chooses."""
    for code in quoted(TEXT[page]):
        for path in re.findall(r"^(?:(?:estimators|producers|streams|deploy|tests|docs)/[\w./-]*\w)", code):
            assert re.search(r"[A-Z]{2}", path) or (ROOT / path).exists(), code


def resolves(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or a name inside of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").exists() or path.is_dir():
            found: Any = importlib.import_module(".".join(parts[:length]))
            for name in parts[length:]:
                found = getattr(found, name, None)
            return found is not None
    return False


@every_page
def test_every_dotted_name_exists(page: Path) -> None:
    for code in quoted(TEXT[page]):
        for dotted in re.findall(r"\b(?:estimators|producers|streams)(?:\.\w+)+", code):
            assert dotted.endswith(".toml") or resolves(dotted), code


def test_every_room_is_on_the_page_of_architecture() -> None:
    page = TEXT[ROOT / "docs" / "architecture.md"]
    for package in ("estimators", "producers", "streams"):
        for room in (ROOT / package).glob("*/__init__.py"):
            assert f"[{package}/{room.parent.name}]" in page
