"""The command line: lazy, with results on stdout, talk on stderr and stable exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from streams import cli as room
from streams.cli import main as cli

COMMANDS = cli.cli.list_commands(click.Context(cli.cli))


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    output = capfd.readouterr()
    return int(end.value.code or 0), output.out, output.err


def test_help_lists_all_commands_without_loading_any() -> None:
    code = (
        "import sys; from streams.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'faust', 'redis', 'numpy', 'confluent_kafka', 'kafka'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert f"\n  {command} " in output


def test_a_command_is_a_file_whose_first_line_is_its_help() -> None:
    folder = Path(room.__path__[0])
    assert set(COMMANDS) == {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__", "main"}
    for name in COMMANDS:
        assert (folder / f"{name}.py").read_text().startswith(f'"""`thaw {name}`: ')
        assert 10 < len(cli.one_line(name)) <= 66, "the list of commands shows it in one line"
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_loads_and_explains_itself(capfd: pytest.CaptureFixture[str], command: str) -> None:
    status, out, _ = run(capfd, command, "--help")
    assert status == 0
    assert out.startswith("Usage: ")


def test_a_missing_package_is_an_error_that_names_the_extra(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "streams.cli.survey", raising=False)
    status, out, err = run(capfd, "survey", "check", "browser.toml")
    assert (status, out) == (1, "")
    assert err == (
        "Error: `thaw survey` needs the package rich, which is not installed; run: pip install 'thaw[survey]'\n"
    )


def test_config_prints_what_holds(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THAW_KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("THAW_GROOP", "x")
    status, out, err = run(capfd, "config", "--json", "--group", "mine", "--strict")
    shown = json.loads(out)
    assert status == 0
    assert (shown["THAW_GROUP"], shown["THAW_STRICT"]) == ("mine", True)
    assert "hunter2" not in out
    assert err == "THAW_GROOP is set but is not a setting; check the spelling\n"
    _, out, _ = run(capfd, "config")
    assert "THAW_STRICT=0\n" in out


def test_a_wrong_setting_is_wrong_use(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THAW_PARTITIONS", "many")
    assert run(capfd, "config") == (2, "", "Error: THAW_PARTITIONS must be a whole number; got 'many'\n")


def test_an_unknown_command_is_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, "wroker")
    assert (status, out) == (2, "")
    assert "No such command 'wroker'" in err


def test_estimates_without_redis_are_not_ready(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, "estimates", "--redis", "redis://127.0.0.1:1/0")
    assert (status, out) == (75, "")
    assert "Redis does not answer" in err


def test_estimates_of_an_unknown_survey_say_which_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd, "estimates", "nobody")
    assert status == 1
    assert "no survey 'nobody' in" in err
    assert "browser-" in err


def test_estimates_are_json_or_csv_but_not_both(capfd: pytest.CaptureFixture[str]) -> None:
    for flags in (("--json", "--csv"), ("--json", "--format", "json"), ("--csv", "--format", "parquet")):
        status, out, err = run(capfd, "estimates", *flags)
        assert (status, out) == (2, "")
        assert "--json, --csv and --format cannot be combined; give one" in err


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")], ids=["unset", "set"])
def test_openblas_is_told_its_threads_before_numpy_is_loaded(given: dict[str, str], threads: str) -> None:
    program = (
        "import os, sys, streams.cli; assert 'numpy' not in sys.modules; import streams.cli.main; "
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == threads
