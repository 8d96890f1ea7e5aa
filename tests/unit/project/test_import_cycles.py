"""No module imports itself by way of others, typing-only imports included; imports stand at the top of a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("estimators", "producers", "streams")


def modules() -> dict[str, Path]:
    """Return the files of all packages by module name."""
    found = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield the modules of our packages that a module imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in known)
            if node.module in known and not all(name in known for name in inner):
                yield node.module


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for following in graph[name]:
            if following not in index:
                visit(following)
                low[name] = min(low[name], low[following])
            elif following in stack:
                low[name] = min(low[name], index[following])
        if low[name] == index[name]:
            place = stack.index(name)
            component = set(stack[place:])
            del stack[place:]
            if len(component) > 1:
                found.append(component)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_modules_import_each_other_without_cycles() -> None:
    files = modules()
    graph = {name: set(imported(ast.parse(file.read_text()), set(files))) - {name} for name, file in files.items()}
    assert cycles(graph) == []


def test_rooms_import_each_other_without_cycles() -> None:
    files = modules()
    rooms: dict[str, set[str]] = {}
    for name, file in files.items():
        room = room_of(name)
        rooms.setdefault(room, set()).update(
            room_of(other) for other in imported(ast.parse(file.read_text()), set(files)) if room_of(other) != room
        )
    assert cycles(rooms) == []


def room_of(module: str) -> str:
    """Return the folder of a module: package and room, or the module itself where it is in no room."""
    return ".".join(module.split(".")[:2])


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert cycles({"a": {"b"}, "b": set()}) == []


def test_estimators_import_at_the_top_of_a_module() -> None:
    inside = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / "estimators").rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert inside == []
