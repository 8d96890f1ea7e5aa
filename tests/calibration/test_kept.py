"""An interrupted calibration goes on where it was, and never with numbers of other code."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.calibration.judge import Stage
from tests.calibration.kept import COUNTING, Kept, imported
from tests.calibration.suite import Form, NoSuchCellError, run

FORM = Form("tiny", (Stage(2),), 1, 1, 1, 1e-6)


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


def test_a_part_depends_on_the_modules_that_it_runs_and_on_no_others(tmp_path: Path) -> None:
    texts = {
        "estimators/one.py": "from estimators.room import two",
        "estimators/room/__init__.py": "",
        "estimators/room/two.py": "import estimators.three",
        "estimators/three.py": "1",
        "estimators/other.py": "1",
        **{f"tests/calibration/{name}.py": "1" for name in (*COUNTING, "report")},
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def folder() -> Path:
        imported.cache_clear()
        return Kept.of("key", under=tmp_path, sources=tmp_path, modules=["estimators.one"]).folder

    before = folder()
    for name in texts:
        (tmp_path / name).write_text(texts[name] + "\n")
        same = name in ("estimators/other.py", "tests/calibration/report.py")
        assert (folder() == before) == same, name
        before = folder()


def test_a_run_that_goes_on_finds_the_same(tmp_path: Path) -> None:
    def keep(*key: object, modules: Collection[str] = ()) -> Kept:
        return Kept.of(*key, under=tmp_path, modules=modules)

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
