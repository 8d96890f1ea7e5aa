"""`thaw audit`: what it prints for people and programs, its exit status, and what it cannot audit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, survey_file
from tests.support.paths import ROOT
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
    texts = re.findall(r"<text[^>]*>([^<]*[a-z][^<]*)</text>", picture.read_text())
    assert "empirical lower bound, level alone" in texts
    # The picture of the page has other chains, as every recording has, and the same words.
    page = (ROOT / "docs" / "images" / "audit.svg").read_text()
    assert [text for text in texts if f">{text}</text>" not in page and "chains attacked" not in text] == []


def test_what_promises_nothing_is_not_audited(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (example,) = (example for example in EXAMPLES if example.name == "improved_christofides")
    path = tmp_path / "cards.toml"
    path.write_text(tomli_w.dumps(survey_file(example)))
    status, out, _ = run(capfd, "audit", str(path))
    assert (status, "not audited: improved_christofides promises nothing" in out) == (0, True)
    status, out, _ = run(capfd, "audit", str(path), "--json")
    assert status == 0
    assert json.loads(out)["audited"] is False
    status, out, err = run(capfd, "audit", str(path), "--self-test")
    assert (status, "not audited: improved_christofides promises nothing" in out, err) == (0, True, "")


def test_defects_are_not_planted_where_answers_are_repeated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "standing.toml"
    path.write_text(survey_text().replace("[window]\n", "[window]\nstanding = true\n"))
    for flags in ([], ["--self-test"]):
        status, out, _ = run(capfd, "audit", str(path), *flags, "--json")
        assert status == 0
        assert "repeats answers in every window" in json.loads(out)["reason"]


@pytest.mark.parametrize(
    "flags", [("--svg", "x.svg"), ("--kafka", "127.0.0.1:1"), ("--kafka-ca", "ca.pem"), ("--kafka-user", "me")]
)
def test_flags_that_change_nothing_beside_the_self_test_are_refused(
    flags: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capfd, "audit", "--self-test", *flags)
    assert (status, out) == (2, "")
    assert f"{flags[0]} changes nothing beside --self-test" in err
    assert list(tmp_path.iterdir()) == []


def test_without_a_survey_there_is_nothing_to_audit(capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd, "audit")
    assert status == 2
    assert "--self-test" in err
