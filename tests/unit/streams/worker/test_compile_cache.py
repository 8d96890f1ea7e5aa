"""Compiled code that was made beforehand is used where nothing can be written, and is never written there."""

from __future__ import annotations

import ast
import importlib
import logging
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core import config

from streams.worker import compile_cache
from streams.worker.compile_cache import SOURCES, sources_hash
from streams.worker.words import compiled


def twice(number: int) -> int:
    return number + number


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes the root read-only, as far as numba can see."""

    def refuse(*_words: Any, **_options: Any) -> None:
        raise OSError(30, "Read-only file system")

    return lambda: monkeypatch.setattr(tempfile, "TemporaryFile", refuse)


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_code_that_was_compiled_beforehand_is_used_on_a_read_only_root(
    cache: Path, read_only: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled(twice)(3) == 6
    before = files(cache)
    assert before
    read_only()
    kept: Any = compiled(twice)
    with caplog.at_level(logging.INFO):
        assert kept(3) == 6
    assert hits(kept) == 1
    assert not caplog.records
    assert files(cache) == before


def test_code_that_is_missing_is_compiled_told_and_not_written(
    cache: Path, read_only: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    compiled(twice)(3)
    before = files(cache)
    read_only()
    kept: Any = compiled(twice)
    with caplog.at_level(logging.INFO):
        assert kept(1.5) == 3.0
    assert hits(kept) == 0
    [line] = caplog.messages
    assert "twice" in line
    assert "float64" in line
    assert str(cache) in line
    assert files(cache) == before


def test_without_any_place_it_is_compiled_at_every_start(cache: Path, read_only: Callable[[], None]) -> None:
    read_only()
    plain: Any = compiled(twice)
    assert plain(np.int64(4)) == 8
    assert hits(plain) == 0
    assert not files(cache)


def test_code_for_another_processor_is_not_used(cache: Path, read_only: Callable[[], None]) -> None:
    compiled(twice)(3)
    index = next(cache.rglob("*.nbi"))
    machine = platform.machine().encode()
    assert machine in index.read_bytes()
    index.write_bytes(index.read_bytes().replace(machine, machine[::-1]))
    read_only()
    kept: Any = compiled(twice)
    assert kept(3) == 6
    assert hits(kept) == 0


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules of this project from which a file imports, each with a name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("streams", "producers"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def source_of(module: str, name: str) -> str | None:
    """Return the file that compiled code takes something from; None for a class, which it cannot take."""
    found = getattr(importlib.import_module(module), name)
    if isinstance(found, type) or module == compile_cache.__name__:
        return None
    return f"{(found.__name__ if isinstance(found, ModuleType) else module).replace('.', '/')}.py"


def test_the_sources_of_compiled_code_are_all_of_them() -> None:
    root = Path(compile_cache.__file__).parents[2]
    taken: set[str | None] = {"streams/worker/words.py"}
    for path in (root / "streams").rglob("*.py"):
        places = list(imports(path))
        if {name for _, name in places} & {"compiled", "inlined"}:
            taken |= {str(path.relative_to(root)), *(source_of(*place) for place in places)}
    assert taken - {None} == set(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_a_change_of_any_source_is_another_hash(tmp_path: Path, name: str) -> None:
    root = Path(compile_cache.__file__).parents[2]
    for source in SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_bytes((root / source).read_bytes())
    assert sources_hash(tmp_path) == sources_hash()
    (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
    assert sources_hash(tmp_path) != sources_hash()


@pytest.mark.parametrize("is_read_only", [False, True])
def test_code_that_was_compiled_from_other_sources_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, read_only: Callable[[], None], is_read_only: bool
) -> None:
    compiled(twice)(3)
    again: Any = compiled(twice)
    again(3)
    assert hits(again) == 1
    monkeypatch.setattr(compile_cache, "_HASH", b"of another vectors.py")
    if is_read_only:
        read_only()
    other: Any = compiled(twice)
    assert other(3) == 6
    assert hits(other) == 0
    assert files(cache)
