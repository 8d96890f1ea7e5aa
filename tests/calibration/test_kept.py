"""An interrupted calibration goes on where it was, and never with numbers of other code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calibration.judge import Stage
from tests.calibration.kept import Kept
from tests.calibration.suite import Form, NoSuchCellError, run

FORM = Form("tiny", (Stage(2),), 1, 1, 1e-6)


def test_a_part_is_found_once(tmp_path: Path) -> None:
    kept, asked = Kept(tmp_path), []

    def find() -> list[int]:
        asked.append(1)
        return [7]

    assert [list(kept.get(name, find)) for name in ("a", "a", "b")] == [[7]] * 3
    assert len(asked) == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ""]


def test_other_code_another_seed_or_another_form_is_another_run(tmp_path: Path) -> None:
    source = tmp_path / "estimators" / "a.py"
    source.parent.mkdir()
    source.write_text("1")
    one = Kept.of("long", 1, under=tmp_path, sources=tmp_path)
    assert one == Kept.of("long", 1, under=tmp_path, sources=tmp_path)
    assert one != Kept.of("long", 2, under=tmp_path, sources=tmp_path)
    source.write_text("2")
    assert one != Kept.of("long", 1, under=tmp_path, sources=tmp_path)


def test_a_run_that_goes_on_finds_the_same(tmp_path: Path) -> None:
    def keep(*key: object) -> Kept:
        return Kept.of(*key, under=tmp_path)

    whole = run(FORM, 1, only=["warner"], processes=1)
    first = run(FORM, 1, only=["warner"], processes=1, keep=keep)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert files
    files[0].unlink()
    again = run(FORM, 1, only=["warner"], processes=1, keep=keep)
    assert whole.outcomes == first.outcomes == again.outcomes


def test_a_pattern_without_cells_is_said_aloud() -> None:
    with pytest.raises(NoSuchCellError, match="no cell"):
        run(FORM, 1, cells_like="no such cell", processes=1)
