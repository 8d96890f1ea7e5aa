"""No wrong input ends in a traceback: every parameter of every command is given wrong values.

The commands and their parameters are found by walking the command line, so a new parameter without a row in the table
fails the first test.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from streams.cli.main import cli
from streams.settings import TABLE
from tests.support.surveys import survey_text
from tests.unit.streams.cli.test_main import run

NOWHERE = {"THAW_KAFKA": "127.0.0.1:1", "THAW_REDIS": "redis://127.0.0.1:1/0"}
"""Services that no command may wait for when its input is wrong."""


class Places(NamedTuple):
    """Files and folders that are not what a command needs."""

    good: str
    missing: str
    folder: str
    empty: str
    broken: str
    text: str
    below_file: str


class Wrong(NamedTuple):
    """A wrong value: as it is, or named by a field of `Places`; with variables that make the value matter."""

    value: str
    place: bool = False
    env: tuple[tuple[str, str], ...] = ()


def at(name: str, *env: tuple[str, str]) -> Wrong:
    return Wrong(name, place=True, env=env)


TLS = ("THAW_KAFKA_SECURITY", "SSL")
REDISS = ("THAW_REDIS", "rediss://127.0.0.1:1/0")
NUMBER = (Wrong("many"), Wrong("-1"))
FILES = (at("missing"), at("broken"))

BY_NAME: dict[str, tuple[Wrong, ...]] = {
    "kafka": (Wrong("broker"), Wrong("broker:0"), Wrong("broker:70000"), Wrong(":9092")),
    "kafka_security": (Wrong("TLS"),),
    "kafka_ca": (at("missing", TLS), at("folder", TLS), at("text", TLS)),
    "kafka_cert": (at("missing", TLS), at("text", TLS)),
    "kafka_key": (at("missing", TLS),),
    "kafka_sasl": (Wrong("MD5"),),
    "redis": (Wrong("localhost"), Wrong("http://h"), Wrong("redis://h:port/0"), Wrong("redis://h:6379/x")),
    "redis_ca": (at("missing", REDISS), at("text", REDISS)),
    "surveys": (at("missing"), at("text")),
    "prefix": (Wrong("two words"), Wrong("a/b")),
    "group": (Wrong(" "),),
    "partitions": (*NUMBER, Wrong("0"), Wrong("5000")),
    "replication": NUMBER,
    "cache_mib": NUMBER,
    "tick_ms": NUMBER,
    "patience_seconds": NUMBER,
    "bind": (Wrong("999.0.0.1"),),
    "exporter_port": (*NUMBER, Wrong("70000")),
    "worker_port": (*NUMBER, Wrong("70000")),
    "value_limit": NUMBER,
    "prometheus": (Wrong("ftp://h"),),
    "log_level": (Wrong("loud"),),
    "log_format": (Wrong("xml"),),
    "seed": NUMBER,
    "devices": (*NUMBER, Wrong("0")),
    "scenario": (Wrong("town"), Wrong("flights")),
    "windows": (*NUMBER, Wrong("0")),
    "output": (at("folder"), at("below_file")),
    "limit": (*NUMBER, Wrong("0")),
    "number": NUMBER,
    "numbers": NUMBER,
    "seconds": (*NUMBER, Wrong("5")),
    "files": FILES,
    "every": (*NUMBER, Wrong("0")),
    "jump": (Wrong("soon"), Wrong("1:2"), Wrong("1:99:0.5"), Wrong("1:0:2"), Wrong("-1:0:0.5")),
    "rate": (*NUMBER, Wrong("0")),
    "pace": (Wrong("slow"), Wrong("fast")),
    "processes": (*NUMBER, Wrong("65")),
    "first_window_ms": NUMBER,
    "journal": (at("text"), at("below_file")),
    "api_version": (Wrong("new"), Wrong("2"), Wrong("2.x")),
    "users": (*NUMBER, Wrong("0")),
    "attackers": (*NUMBER, Wrong("99999999")),
    "band": (*NUMBER, Wrong("0")),
    "window": (Wrong("noon"), Wrong("7")),
    "places": (*FILES, at("empty")),
    "names": (Wrong("nobody"),),
    "svg": (at("text"), at("below_file")),
    "survey": (Wrong("nobody"), at("broken"), at("missing")),
}
"""By name of the parameter; the setting of that name first."""

BY_COMMAND: dict[tuple[str, str], tuple[Wrong, ...]] = {
    ("alerts render", "surveys"): (*FILES, at("folder")),
    ("config", "bind"): (),
    ("config", "kafka_ca"): (),
    ("config", "kafka_cert"): (),
    ("config", "kafka_key"): (),
    ("config", "redis_ca"): (),
    ("config", "surveys"): (),
    ("demo", "kafka"): (Wrong("apache"), Wrong("broker:0")),
    ("fleet", "files"): (*FILES, at("folder")),
    ("fleet", "surveys"): (at("missing"), at("text"), at("empty"), at("folder")),
    ("topics create", "surveys"): (at("missing"), at("text"), at("empty"), at("folder")),
    ("worker", "bind"): (),
}
"""Where a command differs. `thaw config` prints settings and opens nothing; a worker binds when Redis answers."""

SETTINGS = frozenset(row.name for row in TABLE)
FREE = frozenset({"kafka_user", "instance", "reason", "runbooks"})
"""Text of any form."""

VALID: dict[str, Callable[[Places], list[str]]] = {
    "deadletters show": lambda _: ["0"],
    "fleet surveys": lambda _: [],
    "fleet": lambda places: [places.good],
    "plan": lambda _: ["browser"],
    "rebuild": lambda _: ["browser"],
    "reproduce": lambda _: ["all"],
    "survey check": lambda places: [places.good],
}
"""What else a command must be given, or a command with a certain option."""


def walk(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from walk(found, f"{name} {part}".strip())
    else:
        yield name, command


def is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


def wrong_values(name: str, parameter: click.Parameter) -> tuple[Wrong, ...]:
    assert parameter.name is not None
    found = BY_COMMAND.get((name, parameter.name), BY_NAME.get(parameter.name, ()))
    # All commands read settings in the same way: one command is given all wrong values, the others one each.
    is_repeated = name != "config" and ("config", parameter.name) not in BY_COMMAND and parameter.name in SETTINGS
    return found[:1] if is_repeated else found


CASES = [
    pytest.param(name, parameter, wrong, id=f"{name} {parameter.name}={wrong.value}")
    for name, command in walk(cli)
    for parameter in command.params
    if not is_flag(parameter)
    for wrong in wrong_values(name, parameter)
]


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


def test_every_parameter_of_every_command_has_wrong_values() -> None:
    found = {
        (name, parameter.name) for name, command in walk(cli) for parameter in command.params if not is_flag(parameter)
    }
    assert len(found) > 100
    missing = {place for place in found if place not in BY_COMMAND and place[1] not in {*BY_NAME, *FREE}}
    assert not missing, "give each of them a wrong value, or say that it can have none"
    assert not BY_COMMAND.keys() - found
    assert not VALID.keys() - {name for name, _ in found} - {f"{name} {parameter}" for name, parameter in found}


def test_no_secret_is_a_flag() -> None:
    secrets = {row.name for row in TABLE if row.about.secret}
    assert secrets == {"kafka_password", "token"}
    assert not secrets & {parameter.name for _, command in walk(cli) for parameter in command.params}


@pytest.mark.parametrize(("name", "parameter", "wrong"), CASES)
def test_a_wrong_value_is_an_error_that_names_it(
    name: str,
    parameter: click.Parameter,
    wrong: Wrong,
    places: Places,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, setting in (*NOWHERE.items(), *wrong.env):
        monkeypatch.setenv(variable, setting)
    value = getattr(places, wrong.value) if wrong.place else wrong.value
    valid = VALID.get(f"{name} {parameter.name}", VALID.get(name, lambda _: []))(places)
    arguments = ["--", value] if isinstance(parameter, click.Argument) else [*valid, parameter.opts[0], value]
    status, out, err = run(capfd, *name.split(), *arguments)
    assert status in (1, 2), (status, err)
    assert out == ""
    check_message(err, {value, parameter.opts[0], f"THAW_{parameter.name}".upper()})


def check_message(err: str, named: set[str]) -> None:
    """One error, short, which names what is wrong; no traceback."""
    assert "Traceback" not in err
    lines = err.splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith(("Error:", "refused:"))]
    message = "\n".join(lines[first:])
    assert 20 < len(message) < 700, err
    assert any(name in message for name in named), err


def test_one_bad_survey_in_a_folder_is_named_and_the_others_are_used(places: Places) -> None:
    (Path(places.folder) / "good.toml").write_text(survey_text())
    process = thaw("plan", "colour", "--surveys", places.folder, stdout=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "colour-" in out
    assert "Traceback" not in err
    assert "broken.toml: shards: " in err


def test_survey_check_takes_files_and_folders_and_ends_with_a_sum(
    places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capfd, "survey", "check", "--json", places.good, places.folder)
    assert status == 1
    assert [line.count('"file"') for line in out.splitlines()] == [1, 1]
    assert "refused: " in err
    assert "2 files: 1 valid, 1 refused, " in err


def test_a_port_in_use_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = run(capfd, "exporter", "--exporter-port", str(port))
    assert (status, out) == (1, "")
    check_message(err, {f"127.0.0.1:{port}"})
    assert "THAW_EXPORTER_PORT" in err


def thaw(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streams.cli", *arguments], stderr=subprocess.PIPE, text=True, **options
    )


def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        process = thaw("config", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    check_message(err, {"the output: No space left on device"})
