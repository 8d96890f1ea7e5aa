"""No wrong input ends in a traceback: every parameter of every command is given wrong values.

The commands and their parameters are found by walking the command line, so a new parameter without a row in the table
fails the first test.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from producers.device.agent import Device
from producers.device.ledger import Ledger
from streams.cli.main import cli
from streams.market.books import Books
from streams.settings import TABLE
from tests.support.commands import NOWHERE, Places, check_message, thaw, walk
from tests.support.signing import signing_key
from tests.support.surveys import survey, survey_text
from tests.support.transports import MemoryTransport
from tests.unit.streams.cli.test_main import run
from tests.unit.streams.cli.wrong_values import BY_COMMAND, BY_NAME, Wrong

SETTINGS = frozenset(row.name for row in TABLE)
FREE = frozenset({"kafka_user", "instance", "reason"})
"""Text of any form."""

VALID: dict[str, Callable[[Places], list[str]]] = {
    "audit": lambda _: ["browser"],
    "bulletin": lambda places: ["browser", "--key", signing_key(places.good)],
    "bulletin key": lambda _: ["browser"],
    "deadletters show": lambda _: ["0"],
    "device release": lambda places: [on_demand(places)],
    "device release moment": lambda places: [on_demand(places), "--survey", "colour"],
    "device run": lambda _: ["--survey", SURVEY_URL, "--value-command", "true"],
    "device show": lambda places: [ledger(places)],
    "device withdraw": lambda places: [answered(places)],
    "estimates output": lambda _: ["--csv"],
    "export": lambda places: [f"{places.empty}/export"],
    "fleet surveys": lambda _: [],
    "fleet": lambda places: [places.good],
    "market audit": lambda places: ["--books", books(places)],
    "market buy": lambda places: ["acme", "1", "--books", books(places), "--key", signing_key(places.good)],
    "market buy key": lambda places: ["acme", "1", "--books", books(places)],
    "market deliver": lambda places: ["acme", "--books", books(places), "--key", signing_key(places.good)],
    "market deliver key": lambda places: ["acme", "--books", books(places)],
    "market upgrade": lambda places: ["acme", "1", "--books", books(places), "--key", signing_key(places.good)],
    "market upgrade key": lambda places: ["acme", "1", "--books", books(places)],
    "market offer": lambda places: ["browser", "--rung", "0", "--price", "1", "--books", books(places)],
    "market receipt verify": lambda places: [places.good, "--public-key", f"{'A' * 43}="],
    "plan": lambda _: ["browser"],
    "plan values": lambda _: ["--epsilon", "1"],
    "plan sensitive": lambda _: ["--values", "3", "--epsilon", "1", "--compare"],
    "plan mechanism": lambda _: ["--values", "3", "--epsilon", "1"],
    "plan parameter": lambda _: ["--values", "3", "--epsilon", "1", "--mechanism", "urap", "--sensitive", "1"],
    "plan epsilon": lambda _: ["--values", "3"],
    "plan opens": lambda _: ["--values", "3", "--epsilon", "1,2"],
    "rebuild": lambda _: ["browser"],
    "reproduce": lambda _: ["all"],
    "survey check": lambda places: [places.good],
    "verify redis_ca": lambda _: ["--source", "redis"],
    "verify": lambda _: ["browser"],
}
"""What else a command must be given, or a command with a certain option."""
REQUIRED = {"device release": ("--survey", "colour")}
"""Options without which a command does not look at its arguments."""
SURVEY_URL = "https://127.0.0.1:1/v1/surveys/browser-f812bda1"


def ledger(places: Places) -> str:
    path = Path(places.good).with_name("ledger.sqlite")
    Ledger(path).close()
    return str(path)


def answered(places: Places) -> str:
    """Return the ledger of a device that has answered a survey with withdrawals."""
    path, asked = ledger(places), survey(shards="shards = 16\nwithdrawable = true")
    with Device(path, [asked], MemoryTransport()) as device:
        device.observe(asked, "green")
    return path


def on_demand(places: Places) -> str:
    """Return the ledger of a device that has answered a survey whose levels are released on demand."""
    path, asked = ledger(places), survey(kind='kind = "on_demand"', opens="")
    with Device(path, [asked], MemoryTransport()) as device:
        device.observe(asked, "green")
    return path


def books(places: Places) -> str:
    path = Path(places.good).with_name("books.sqlite")
    Books(path).close()
    return str(path)


def valid_arguments(name: str, option: str, places: Places) -> list[str]:
    found = VALID.get(f"{name} {option}", VALID.get(name))
    return [] if found is None else found(places)


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


ADDRESSES = {row.name for row in TABLE if row.about.address}
SECRET_ADDRESSES = {
    "kafka": ("worker:hunter2@127.0.0.1:1",),
    "redis": (
        "redis://worker:hunter2@h/0",
        "redis://:hunter2@h/0",
        "redis://h/0?password=hunter2",
    ),
    "prometheus": ("http://u:hunter2@h:9090", "http://hunter2@h:9090", "http://h:9090?api_key=hunter2"),
    "runbooks": ("https://u:hunter2@h/runbooks",),
    "demo_gateway": ("https://u:hunter2@h",),
    "gateway_dealer": ("https://u:hunter2@dealer.example",),
}


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        pytest.param(name, parameter, value, id=f"{name} {value}")
        for name, command in walk(cli)
        for parameter in command.params
        if parameter.name in ADDRESSES
        for value in SECRET_ADDRESSES[parameter.name]
    ],
)
def test_an_address_with_a_password_is_no_flag_and_is_not_shown(
    name: str,
    parameter: click.Parameter,
    value: str,
    places: Places,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, setting in NOWHERE.items():
        monkeypatch.setenv(variable, setting)
    status, out, err = run(capfd, *name.split(), *valid_arguments(name, "", places), parameter.opts[0], value)
    assert (status in (1, 2), out) == (True, "")
    assert "hunter2" not in err
    assert parameter.opts[0] in err


def test_a_password_in_a_variable_is_taken_and_never_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THAW_REDIS", "redis://h/0?p%61ssword=hunter2")
    monkeypatch.setenv("THAW_PROMETHEUS", "http://u:hunter2@h:9090")
    status, out, err = run(capfd, "config")
    assert (status, err) == (0, "")
    assert "THAW_PROMETHEUS=http://u:********@h:9090\n" in out
    assert "THAW_REDIS=redis://h/0?p%61ssword=********\n" in out


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
    valid = valid_arguments(name, parameter.name or "", places)
    if isinstance(parameter, click.Argument):
        arguments = [*REQUIRED.get(name, ()), "--", value]
    else:
        arguments = [*valid, parameter.opts[0], value]
    status, out, err = run(capfd, *name.split(), *arguments)
    assert status in (1, 2), (status, err)
    assert out == ""
    check_message(err, {value, parameter.opts[0], f"THAW_{parameter.name}".upper()})


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
