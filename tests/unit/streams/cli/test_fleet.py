"""`thaw fleet` refuses what it could only simulate wrongly, before it connects to anything."""

from __future__ import annotations

from pathlib import Path

import tomli_w
from click.testing import CliRunner

from streams.cli.fleet import command
from tests.support.examples import EXAMPLES, survey_file


def test_a_dealt_deck_has_one_dealer(tmp_path: Path) -> None:
    [example] = [example for example in EXAMPLES if example.name == "improved_christofides"]
    path = tmp_path / "dealt.toml"
    path.write_text(tomli_w.dumps(survey_file(example)))
    arguments = [str(path), "--devices", "65537", "--windows", "1", "--pace", "fast", "--no-truth"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "one dealer, for at most 65536 devices; got 65537" in result.output


def test_the_past_needs_an_end() -> None:
    result = CliRunner().invoke(command, ["--pace", "fast"])
    assert result.exit_code == 2
    assert "--pace fast needs --windows" in result.output
