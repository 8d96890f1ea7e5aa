"""What tests of the command line share: wrong files, and logging that is left as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Places
from tests.support.surveys import survey_text


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("folder", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "good.toml").write_text(survey_text())
    (tmp_path / "folder" / "broken.toml").write_text('name = "broken"\nshards = "many"\n')
    (tmp_path / "text").write_text("neither TOML nor PEM [")
    return Places(
        good=str(tmp_path / "good.toml"),
        missing=str(tmp_path / "missing"),
        folder=str(tmp_path / "folder"),
        empty=str(tmp_path / "empty"),
        broken=str(tmp_path / "folder" / "broken.toml"),
        text=str(tmp_path / "text"),
        below_file=str(tmp_path / "text" / "below"),
    )


@pytest.fixture(autouse=True)
def logging_is_left_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
