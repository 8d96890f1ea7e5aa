"""What a command tells whom: outputs of any kind, errors that nobody expected, log lines."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli.main import cli, main
from tests.support.commands import Places, check_message, thaw, walk
from tests.support.surveys import survey_text
from tests.unit.streams.cli.test_main import run

PRINTING = [["config"], ["plan", "browser"], ["reproduce", "list"], ["alerts", "render"], ["survey", "check", "--", ""]]


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_an_output_without_the_signs_of_a_result_gets_others(
    arguments: list[str], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit) as end:
        main([word or places.good for word in arguments])
    assert end.value.code == 0
    assert written.getvalue()


def test_closed_outputs_are_nowhere() -> None:
    ended = subprocess.run(["sh", "-c", f"{sys.executable} -m streams.cli config <&- >&- 2>&-"], check=False)
    assert ended.returncode == 0


def test_an_error_that_nobody_expected_is_one_sentence_that_says_how_to_see_more(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise TimeoutError("no answer from redis://u:hunter2@h/0\nfor long")

    monkeypatch.setattr("streams.cli.config.load_settings", fail)
    status, out, err = run(capfd, "config")
    assert (status, out) == (1, "")
    assert err.startswith("Error: unexpected TimeoutError (no answer from redis://u:********@h/0 for long) in ")
    assert len(err.splitlines()) == 1
    assert "THAW_LOG_LEVEL=debug" in err
    for words, variable in ((["--log-level", "debug"], "info"), ([], "debug")):
        monkeypatch.setenv("THAW_LOG_LEVEL", variable)
        status, out, err = run(capfd, "config", *words)
        assert (status, out) == (1, "")
        assert "Traceback" in err
        assert "hunter2" not in err


def test_every_command_writes_its_log_as_it_is_told(
    places: Places, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, command in walk(cli):
        assert {"log_level", "log_format"} <= {parameter.name for parameter in command.params}, name
    (Path(places.folder) / "good.toml").write_text(survey_text())
    plan = ["plan", "colour", "--surveys", places.folder]
    monkeypatch.setenv("THAW_LOG_FORMAT", "json")
    _, _, err = run(capfd, *plan)
    assert [json.loads(line)["level"] for line in err.splitlines()] == ["error"]
    _, _, err = run(capfd, *plan, "--log-format", "human", "--log-level", "info")
    assert [line.split()[1] for line in err.splitlines()] == ["ERROR", "INFO"]
    monkeypatch.setenv("THAW_LOG_LEVEL", "info")
    _, _, err = run(capfd, *plan)
    assert [json.loads(line)["level"] for line in err.splitlines()] == ["error", "info"]
    monkeypatch.setenv("THAW_LOG_LEVEL", "loud")
    assert run(capfd, *plan) == (
        2,
        "",
        "Error: THAW_LOG_LEVEL must be one of debug, info, warning, error; got 'loud'\n",
    )


@pytest.mark.parametrize("level", ["debug", "error"])
def test_the_level_of_a_fleet_takes_effect(level: str, places: Places, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd, "fleet", places.good, "--log-level", level, "--pace", "fast")
    assert (status, "--pace fast needs --windows" in err) == (2, True), "the logs are configured before anything else"
    assert logging.getLogger().level == getattr(logging, level.upper())


def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        process = thaw("config", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    check_message(err, {"the output: No space left on device"})
