"""Settings: the table, its sources and its messages."""

import os

import click
import pytest
from click.testing import CliRunner

from deploy.docs import generated_block
from streams.connections import kafka_python_options, librdkafka_options
from streams.settings import (
    TABLE,
    Settings,
    SettingsError,
    documentation,
    load_settings,
    settings_options,
    unknown_variables,
)
from streams.urls import MASK
from streams.worker.faust_connection import faust_credentials
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "settings.md"


def test_flags_overrule_the_environment_which_overrules_defaults() -> None:
    environment = {"THAW_GROUP": "from-environment", "THAW_PREFIX": "p."}
    found = load_settings({"group": "from-flag", "prefix": None}, environment=environment)
    assert (found.group, found.prefix, found.partitions) == ("from-flag", "p.", 8)


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THAW_TICK_MS", "250")
    assert load_settings().tick_ms == 250


@pytest.mark.parametrize(("word", "meaning"), [("1", True), ("true", True), ("0", False), ("no", False), ("", False)])
def test_words_for_yes_and_no(word: str, meaning: bool) -> None:
    assert load_settings(environment={"THAW_STRICT": word}).strict is meaning


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("THAW_STRICT", "maybe", "THAW_STRICT must be 1 or 0; got 'maybe'"),
        ("THAW_PARTITIONS", "many", "THAW_PARTITIONS must be a whole number; got 'many'"),
        ("THAW_PARTITIONS", "0", "THAW_PARTITIONS must be in 1 to 4096; got 0"),
        ("THAW_KAFKA", "broker", "THAW_KAFKA must list brokers as host:port, separated by commas; got 'broker'"),
        ("THAW_KAFKA_SECURITY", "TLS", "THAW_KAFKA_SECURITY must be one of PLAINTEXT, SSL"),
        (
            "THAW_REDIS",
            "localhost",
            "THAW_REDIS must be a URL such as redis://127.0.0.1:6379/0",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable_and_the_remedy(variable: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings(environment={variable: value})
    assert str(refusal.value).startswith(message)


def test_secrets_are_never_shown() -> None:
    settings = Settings(kafka_password="hunter2", redis="rediss://user:hunter3@example:6380/1")
    shown = settings.public()
    assert "hunter" not in str(shown)
    assert shown["THAW_KAFKA_PASSWORD"] == MASK
    assert shown["THAW_REDIS"] == f"rediss://user:{MASK}@example:6380/1"


def test_a_refused_redis_address_does_not_tell_its_password() -> None:
    with pytest.raises(SettingsError) as refusal:
        Settings(redis="http://user:hunter3@example")
    assert "hunter3" not in str(refusal.value)


def test_misspelt_variables_are_noticed() -> None:
    environment = {"THAW_KAFKA": "a:1", "THAW_KAFAK": "a:1", "THAW_KAFKA_LIBS": "/x", "PATH": "/bin"}
    assert unknown_variables(environment) == ["THAW_KAFAK"]


def test_two_workers_on_one_machine_have_different_names_and_keep_them() -> None:
    first, second = Settings(worker_port=9731), Settings(worker_port=9732)
    assert first.instance_id != second.instance_id
    assert first.instance_id == Settings(worker_port=9731).instance_id
    assert str(os.getpid()) in Settings(worker_port=0).instance_id
    assert Settings(instance="mine", worker_port=0).instance_id == "mine"


def test_every_client_library_is_told_the_same() -> None:
    settings = Settings(
        kafka="a:1, b:2", kafka_security="SASL_SSL", kafka_sasl="SCRAM-SHA-256", kafka_user="u", kafka_password="p"
    )
    python, rdkafka, ours = kafka_python_options(settings), librdkafka_options(settings), faust_credentials(settings)
    assert python["bootstrap_servers"] == ["a:1", "b:2"]
    assert rdkafka["bootstrap.servers"] == "a:1,b:2"
    assert python["security_protocol"] == rdkafka["security.protocol"] == ours.protocol.value == "SASL_SSL"
    assert python["sasl_mechanism"] == rdkafka["sasl.mechanism"] == ours.mechanism.value == "SCRAM-SHA-256"
    assert (python["sasl_plain_username"], rdkafka["sasl.username"], ours.username) == ("u", "u", "u")
    assert (python["sasl_plain_password"], rdkafka["sasl.password"], ours.password) == ("p", "p", "p")
    assert ours.ssl_context is not None
    assert faust_credentials(Settings()) is None


def test_a_flag_names_its_variable_and_default() -> None:
    @click.command()
    @settings_options("tick_ms", "strict", "log_format")
    def command(tick_ms: int | None, strict: bool | None, log_format: str | None) -> None:
        click.echo(f"{tick_ms} {strict} {log_format}")

    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "env: THAW_TICK_MS; default: 1000" in text
    assert "--strict / --no-strict" in text
    assert CliRunner().invoke(command, []).output == "None None None\n"
    assert CliRunner().invoke(command, ["--tick-ms", "5", "--strict"]).output == "5 True None\n"
    assert CliRunner().invoke(command, ["--log-format", "xml"]).exit_code == 2


@pytest.mark.parametrize(
    ("bind", "insecure", "address"),
    [
        ("127.0.0.1", False, "127.0.0.1"),
        ("::1", False, "::1"),
        ("0.0.0.0", False, "127.0.0.1"),
        ("worker.example", False, "127.0.0.1"),
        ("0.0.0.0", True, "0.0.0.0"),
    ],
)
def test_metrics_of_a_worker_leave_the_machine_only_if_anyone_may_read(bind: str, insecure: bool, address: str) -> None:
    assert Settings(bind=bind, insecure=insecure, token="for the exporter").worker_bind == address


def test_every_setting_is_documented() -> None:
    assert generated_block(DOCS, "settings") == documentation()
    assert all(row.about.help.endswith(".") for row in TABLE)
