"""`thaw audit`: what it prints for people and programs, its exit status, and what it cannot audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, survey_file
from tests.support.surveys import survey_text
from tests.unit.streams.cli.test_main import run

tomli_w = pytest.importorskip("tomli_w")


@pytest.fixture
def colour(tmp_path: Path) -> str:
    path = tmp_path / "colour.toml"
    path.write_text(survey_text())
    return str(path)


def test_a_sound_device_passes_and_a_picture_is_drawn(
    colour: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """False alarms: 1e-6."""
    picture = tmp_path / "audit.svg"
    status, out, _ = run(capfd, "audit", colour, "--users", "96", "--crashes", "1", "--svg", str(picture))
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("colour-")
    assert [line.split()[:2] for line in lines if line.startswith(("level ", "chain "))] == [
        ["level", "0"],
        ["level", "1"],
        ["level", "2"],
        ["chain", "up"],
        ["chain", "up"],
    ]
    assert lines[-1] == "chains 96, reports 288, crashes 1, contradictions 0"
    assert "empirical lower bound" in picture.read_text()


def test_what_promises_nothing_is_not_audited(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (example,) = (example for example in EXAMPLES if example.name == "improved_christofides")
    path = tmp_path / "cards.toml"
    path.write_text(tomli_w.dumps(survey_file(example)))
    status, out, _ = run(capfd, "audit", str(path))
    assert (status, "not audited: improved_christofides promises nothing" in out) == (0, True)
    status, out, _ = run(capfd, "audit", str(path), "--json")
    assert status == 0
    assert json.loads(out)["audited"] is False


def test_without_a_survey_there_is_nothing_to_audit(capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd, "audit")
    assert status == 2
    assert "--self-test" in err
