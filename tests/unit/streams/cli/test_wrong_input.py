"""No wrong input ends in a traceback: every parameter of every command is given wrong values.

The commands and their parameters are found by walking the command line, so a new parameter without a row in the table
fails the first test.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from producers.device.ledger import Ledger
from streams.cli.main import cli
from streams.settings import TABLE
from tests.support.commands import NOWHERE, Places, check_message, thaw, walk
from tests.support.surveys import survey_text
from tests.unit.streams.cli.test_main import run


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
NOT_FINITE = (Wrong("nan"), Wrong("inf"))
FILES = (at("missing"), at("broken"))

BY_NAME: dict[str, tuple[Wrong, ...]] = {
    "kafka": (
        Wrong("broker"),
        Wrong("broker:0"),
        Wrong("broker:70000"),
        Wrong(":9092"),
        Wrong("a..b:9092"),
        Wrong("SSL://b:9092"),
    ),
    "kafka_security": (Wrong("TLS"),),
    "kafka_ca": (at("missing", TLS), at("folder", TLS), at("text", TLS)),
    "kafka_cert": (at("missing", TLS), at("text", TLS)),
    "kafka_key": (at("missing", TLS),),
    "kafka_sasl": (Wrong("MD5"),),
    "redis": (
        Wrong("redis://127.0.0.1:1/0?foo=bar"),
        Wrong("localhost"),
        Wrong("http://h"),
        Wrong("redis://h:port/0"),
        Wrong("redis://h:6379/x"),
        Wrong("redis://h/\N{SUPERSCRIPT TWO}"),
        Wrong("redis://a..b/0"),
        Wrong("redis://h/0#part"),
        Wrong("redis://h/0?socket_timeout=x"),
        Wrong("redis://h/0?max_connections=x"),
        Wrong("redis://h/0?db=x"),
        Wrong("redis://h/0?ssl_ca_certs="),
        Wrong("redis://h/0?ssl_certfile=x"),
        Wrong("rediss://h/0?ssl_cert_reqs=x"),
        Wrong("unix://"),
        Wrong("unix://folder/socket"),
        Wrong("unix:///a%00b"),
    ),
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
    "exporter_cert": (at("missing"), at("text")),
    "exporter_key": (at("missing"), at("text")),
    "worker_port": (*NUMBER, Wrong("70000")),
    "dealer_port": (*NUMBER, Wrong("70000")),
    "dealer_file": (at("folder"), at("text")),
    "value_limit": NUMBER,
    "runbooks": (Wrong("two words"), Wrong("https://u@h/runbooks")),
    "prometheus": (Wrong("ftp://h"), Wrong("http://"), Wrong("http://h:port"), Wrong("http://h?x=1")),
    "log_level": (Wrong("loud"),),
    "log_format": (Wrong("xml"),),
    "seed": NUMBER,
    "devices": (*NUMBER, Wrong("0")),
    "scenario": (Wrong("town"), Wrong("flights")),
    "data": (Wrong("invented"),),
    "windows": (*NUMBER, Wrong("0"), Wrong("99999999999999999999")),
    "output": (at("folder"), at("below_file")),
    "table": (Wrong("xlsx"), Wrong("CSV")),
    "view": (Wrong("best"), Wrong("Simplex")),
    "limit": (*NUMBER, Wrong("0")),
    "number": NUMBER,
    "numbers": NUMBER,
    "seconds": (*NUMBER, Wrong("5")),
    "files": FILES,
    "every": (*NUMBER, *NOT_FINITE, Wrong("0")),
    "jump": (Wrong("1:0:nan"), Wrong("soon"), Wrong("1:2"), Wrong("1:99:0.5"), Wrong("1:0:2"), Wrong("-1:0:0.5")),
    "rate": (*NUMBER, *NOT_FINITE, Wrong("0")),
    "pace": (Wrong("slow"), Wrong("fast")),
    "processes": (*NUMBER, Wrong("65")),
    "first_window_ms": NUMBER,
    "journal": (at("text"), at("below_file")),
    "api_version": (Wrong("new"), Wrong("2"), Wrong("2.x")),
    "users": (*NUMBER, Wrong("0")),
    "crashes": NUMBER,
    "alpha": (*NOT_FINITE, *NUMBER, Wrong("0"), Wrong("1")),
    "attackers": (*NUMBER, Wrong("99999999")),
    "band": (*NUMBER, *NOT_FINITE, Wrong("0"), Wrong("1e-300"), Wrong("1e300")),
    "window": (Wrong("noon"), Wrong("7")),
    "places": (*FILES, at("empty")),
    "names": (Wrong("nobody"),),
    "svg": (at("text"), at("below_file")),
    "source": (Wrong("memory"),),
    "survey": (Wrong("nobody"), at("broken"), at("missing")),
    "shares": (Wrong("a,b"), Wrong("0.5,0.5"), Wrong("1,1,1,-1,-1,0")),
    "stops": (Wrong("half"), Wrong("0.5,0.5"), Wrong("1,1,1")),
    "changes": (*NUMBER, Wrong("-1")),
    "values": (Wrong("a,a"), Wrong("99999"), Wrong("1")),
    "sensitive": (Wrong("9"), Wrong("nobody")),
    "mechanism": (Wrong("grrr"),),
    "parameter": (Wrong("theta"), Wrong("theta=2"), Wrong("colour=3")),
    "engine": (Wrong("polars"),),
    "export": (at("missing"), at("text"), at("empty")),
    "folder": (at("text"), at("below_file")),
    "master": (Wrong("spark://h:7077"),),
    "epsilon": (Wrong("high"), *NOT_FINITE, Wrong("2,1"), Wrong("0"), Wrong("99")),
    "opens": (Wrong("soon"), Wrong("0s"), Wrong("0s,1d,2d")),
    "assume": (Wrong("nothing"),),
    "notice": (*NUMBER, *NOT_FINITE, Wrong("0"), Wrong("0.9")),
    "value": (Wrong("nobody"),),
    "threshold": (*NUMBER, *NOT_FINITE, Wrong("2")),
    "power": (*NUMBER, *NOT_FINITE, Wrong("0.2"), Wrong("1")),
    "within": (Wrong("soon"), Wrong("1d")),
    "plot": (at("folder"), at("below_file")),
    "ledger": (at("missing"), at("folder"), at("text")),
    "html": (at("folder"), at("below_file")),
    "suspicion": (Wrong("some"), *NOT_FINITE, Wrong("0"), Wrong("1")),
}
"""By name of the parameter; the setting of that name first."""

BY_COMMAND: dict[tuple[str, str], tuple[Wrong, ...]] = {
    ("audit", "svg"): (at("folder"), at("below_file")),
    ("alerts render", "surveys"): (*FILES, at("folder")),
    ("config", "bind"): (),
    ("config", "dealer_file"): (),
    ("config", "exporter_cert"): (),
    ("config", "exporter_key"): (),
    ("config", "kafka_ca"): (),
    ("config", "kafka_cert"): (),
    ("config", "kafka_key"): (),
    ("config", "redis_ca"): (),
    ("config", "surveys"): (),
    ("demo", "kafka"): (Wrong("apache"), Wrong("broker:0")),
    ("export", "folder"): (at("text"), at("folder"), at("below_file")),
    ("recount", "folder"): (at("text"), at("empty"), at("missing")),
    ("fleet", "files"): (*FILES, at("folder")),
    ("fleet", "surveys"): (at("missing"), at("text"), at("empty"), at("folder")),
    ("plan", "alpha"): (*NUMBER, *NOT_FINITE, Wrong("0"), Wrong("0.6")),
    ("topics create", "surveys"): (at("missing"), at("text"), at("empty"), at("folder")),
    ("worker", "bind"): (),
}
"""Where a command differs. `thaw config` prints settings and opens nothing; a worker binds when Redis answers."""

SETTINGS = frozenset(row.name for row in TABLE)
FREE = frozenset({"kafka_user", "instance", "reason"})
"""Text of any form."""

VALID: dict[str, Callable[[Places], list[str]]] = {
    "audit": lambda _: ["browser"],
    "deadletters show": lambda _: ["0"],
    "device show": lambda places: [ledger(places)],
    "estimates output": lambda _: ["--csv"],
    "export": lambda places: [f"{places.empty}/export"],
    "fleet surveys": lambda _: [],
    "fleet": lambda places: [places.good],
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


def ledger(places: Places) -> str:
    path = Path(places.good).with_name("ledger.sqlite")
    Ledger(path).close()
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
    arguments = ["--", value] if isinstance(parameter, click.Argument) else [*valid, parameter.opts[0], value]
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
