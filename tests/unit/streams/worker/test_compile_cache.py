"""Compiled code that was made beforehand is used where nothing can be written, and is never written there."""

from __future__ import annotations

import logging
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import config

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
