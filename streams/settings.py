"""Settings: variables `THAW_*`, overridden by flags. One table gives variables, flags, `thaw config` and the docs."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from streams.folders import deploy_folder
from streams.settings_gateway import About, GatewaySettings, are_origins
from streams.settings_topics import TopicSettings, topic_fault
from streams.urls import MASK, has_secret, is_broker_list, is_loopback, is_web_address, masked, redis_url_fault

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
DriverName = Literal["faust", "plain"]
LogFormat = Literal["auto", "human", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

LOCAL_VARIABLES = frozenset({"THAW_KAFKA_LIBS"})
"""Variables of services that are started on this machine; not settings of a deployed system."""
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


class SettingsError(ValueError):
    """A setting is invalid; the message names the variable, its value and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Settings(TopicSettings, GatewaySettings):
    """All settings of a process. Field `kafka` is the variable `THAW_KAFKA` and the flag `--kafka`, and so on."""

    kafka: Annotated[str, About("Bootstrap brokers of Kafka, host:port, separated by commas.", address=True)] = (
        "127.0.0.1:9092"
    )
    kafka_security: Annotated[Security, About("Security protocol of the connection to Kafka.")] = "PLAINTEXT"
    kafka_ca: Annotated[str, About("CA file for the brokers' certificates; the system's CAs if empty.")] = ""
    kafka_cert: Annotated[str, About("Client certificate file, for brokers that require one.")] = ""
    kafka_key: Annotated[str, About("Key file of the client certificate.")] = ""
    kafka_sasl: Annotated[SaslMechanism, About("SASL mechanism, with a SASL security protocol.")] = "SCRAM-SHA-512"
    kafka_user: Annotated[str, About("SASL user name.")] = ""
    kafka_password: Annotated[str, About("SASL password.", secret=True)] = ""
    redis: Annotated[
        str,
        About(
            "URL of the Redis that holds the counts; rediss:// for TLS, redis+cluster:// for a cluster, unix:// for a "
            "socket; with a password only as a variable.",
            address=True,
        ),
    ] = "redis://127.0.0.1:6379/0"
    redis_ca: Annotated[str, About("CA file for the certificate of Redis; the system's CAs if empty.")] = ""
    surveys: Annotated[str, About("Folder of survey files (TOML); the example surveys if empty.")] = ""
    group: Annotated[str, About("Consumer group of the workers.")] = "thaw-workers"
    instance: Annotated[str, About("Static name of this worker in its group; host name and metrics port if empty.")] = (
        ""
    )
    driver: Annotated[
        DriverName,
        About("What reads Kafka in a worker: Faust, or a plain consumer; all workers of a group have the same one."),
    ] = "faust"
    strict: Annotated[bool, About("Refuse a Redis that may evict keys or has no append-only file.")] = False
    cache_mib: Annotated[int, About("Memory limit of a worker's token tables, in MiB.", low=1, high=1 << 20)] = 512
    tick_ms: Annotated[int, About("Time between two passes over the recompute queue, in ms.", low=10, high=600_000)] = (
        1_000
    )
    patience_seconds: Annotated[
        int,
        About(
            "How long a worker waits for Redis and Kafka, at its start for all together, before it exits with 75.",
            low=1,
            high=86_400,
        ),
    ] = 300
    bind: Annotated[str, About("Address that the exporter listens on, and with THAW_INSECURE workers too.")] = (
        "127.0.0.1"
    )
    exporter_port: Annotated[int, About("Port of the exporter; 0 for a free one.", low=0, high=65_535)] = 9730
    worker_port: Annotated[int, About("Port of a worker's metrics; 0 for a free one.", low=0, high=65_535)] = 9731
    exporter_cert: Annotated[
        str, About("Certificate file with which the exporter listens with TLS; without TLS if empty.")
    ] = ""
    exporter_key: Annotated[str, About("Key file of the exporter's certificate, if not in the same file.")] = ""
    dealer_port: Annotated[int, About("Port of the dealer; 0 for a free one.", low=0, high=65_535)] = 9732
    dealer_file: Annotated[str, About("File in which the dealer keeps what it has dealt; never restore a copy.")] = (
        "dealer.sqlite"
    )
    value_limit: Annotated[
        int, About("Values per survey with series in /metrics, the most frequent first.", low=1, high=10_000)
    ] = 100
    token: Annotated[str, About("Bearer token that the exporter requires; none if empty.", secret=True)] = ""
    tier_tokens: Annotated[
        str, About("File (TOML) of tokens that see tiers of surveys alone, as digests; only the owner's if empty.")
    ] = ""
    prometheus: Annotated[
        str,
        About(
            "URL of the Prometheus whose alerts the page shows; computed from the estimates if empty. With a password "
            "only as a variable.",
            address=True,
        ),
    ] = ""
    runbooks: Annotated[
        str,
        About(
            "URL of the runbooks, for links from alerts; the copies that the exporter serves if empty.", address=True
        ),
    ] = ""
    demo_gateway: Annotated[
        str,
        About(
            "URL of a gateway; the page then offers to answer surveys from the browser. Set by `thaw demo`; leave it "
            "empty anywhere else.",
            address=True,
        ),
    ] = ""
    insecure: Annotated[
        bool, About("Listen on other addresses than loopback without a token: anyone who reaches them may read.")
    ] = False
    tracing: Annotated[
        bool,
        About("Send a span of every batch to OpenTelemetry; variables OTEL_EXPORTER_OTLP_* say where."),
    ] = False
    log_level: Annotated[
        LogLevel, About("Lowest level of log lines to write; in commands that print a result `warning`, if not set.")
    ] = "info"
    log_format: Annotated[LogFormat, About("Format of log lines; auto is human on a terminal and JSON otherwise.")] = (
        "auto"
    )

    def __post_init__(self) -> None:
        for row in TABLE:
            _check(row, getattr(self, row.name))
        fault = topic_fault(self)
        if fault is not None:
            raise SettingsError(fault)

    @property
    def surveys_folder(self) -> Path:
        """The folder of survey files.

        Raises:
            SettingsError: there is no such folder.
        """
        if not self.surveys:
            return deploy_folder("surveys")
        folder = Path(self.surveys)
        if not folder.is_dir():
            raise SettingsError(f"THAW_SURVEYS must be a folder of survey files that exists; got {self.surveys!r}")
        return folder

    @property
    def instance_id(self) -> str:
        """Name of this worker in its group, unique on this machine and the same after a restart.

        Two workers on one machine cannot listen on one port, so the port makes the name unique; with a free port the
        process id does.
        """
        if self.instance:
            return self.instance
        return f"{socket.gethostname()}-{self.worker_port or f'pid{os.getpid()}'}"

    @property
    def worker_bind(self) -> str:
        """Address of a worker's metrics: loopback, as they have no token, unless anyone may read."""
        return self.bind if self.insecure or is_loopback(self.bind) else "127.0.0.1"

    @property
    def brokers(self) -> list[str]:
        """The bootstrap brokers, each host:port."""
        return [server.strip() for server in self.kafka.split(",")]

    def public(self) -> dict[str, Any]:
        """Return all settings by variable, secrets masked."""
        return {row.variable: _masked(row, getattr(self, row.name)) for row in TABLE}


@dataclass(frozen=True)
class Row:
    """One line of the table of settings."""

    name: str
    kind: type
    default: Any
    about: About
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"THAW_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The command line flag."""
        return "--" + self.name.replace("_", "-")


def _rows() -> Iterator[Row]:
    hints = get_type_hints(Settings, include_extras=True)
    # Fields of a base come first in a dataclass, and last in the table.
    bases = (TopicSettings.__annotations__, GatewaySettings.__annotations__)
    fields = sorted(
        dataclasses.fields(Settings), key=lambda member: [member.name in names for names in reversed(bases)]
    )
    for member in fields:
        plain, about = get_args(hints[member.name])
        choices = get_args(plain) if get_origin(plain) is Literal else ()
        yield Row(member.name, type(member.default), member.default, about, choices)


TABLE: tuple[Row, ...] = tuple(_rows())
KAFKA: Final = ("kafka", "kafka_security", "kafka_ca", "kafka_cert", "kafka_key", "kafka_sasl", "kafka_user")
"""The settings of a connection to Kafka that a command takes as flags; the password is a variable only."""
REDIS: Final = ("redis", "redis_ca")
"""The settings of a connection to Redis that a command takes as flags."""
LOGS: Final = ("log_level", "log_format")
PUBLIC: Final = tuple(row.name for row in TABLE if not row.about.secret)
"""All settings that may be flags."""


def _check(row: Row, value: Any) -> None:
    if row.choices and value not in row.choices:
        raise SettingsError(f"{row.variable} must be one of {', '.join(row.choices)}; got {value!r}")
    if row.about.low is not None and row.about.high is not None and not row.about.low <= value <= row.about.high:
        raise SettingsError(f"{row.variable} must be in {row.about.low} to {row.about.high}; got {value}")
    fault = _address_fault(row.name, value) if row.about.address else None
    if fault is not None:
        raise SettingsError(f"{row.variable} {fault}; got {masked(value)!r}")
    if row.name == "gateway_origins" and not are_origins(value):
        raise SettingsError(f"{row.variable} must list origins such as https://a.example, or be *; got {value!r}")
    if row.name == "group" and not value.strip():
        raise SettingsError(f"{row.variable} must not be empty; got {value!r}; {row.default} is the default")


def _address_fault(name: str, value: str) -> str | None:
    """Return what an address must be and is not; None if it is fine."""
    if name == "redis":
        return redis_url_fault(value)
    if name == "kafka":
        return None if is_broker_list(value) else "must list brokers as host:port, separated by commas"
    if value and not is_web_address(value):
        return "must be a URL such as http://127.0.0.1:9090, without query and fragment"
    shown = name in ("runbooks", "demo_gateway")
    if shown and value and not re.fullmatch(r"https?://[\w.:/~%+-]+", value, flags=re.ASCII):
        return "must be a URL such as https://example.org/runbooks, which everyone who opens the page may see"
    return None


def readable_file(variable: str, path: str) -> str:
    """Return a path that a setting names; empty if it names none.

    Raises:
        SettingsError: there is no such file, or it cannot be read.
    """
    if path and not (Path(path).is_file() and os.access(path, os.R_OK)):
        raise SettingsError(f"{variable} must be a file that can be read; got {path!r}")
    return path


def _masked(row: Row, value: Any) -> Any:
    if row.about.secret and value:
        return MASK
    return masked(value) if row.about.address else value


def _parse(row: Row, text: str) -> Any:
    if row.kind is bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise SettingsError(f"{row.variable} must be 1 or 0; got {text!r}")
        return word in _TRUE
    if row.kind is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{row.variable} must be a whole number; got {text!r}") from None
    return text


def load_settings(flags: Mapping[str, Any] | None = None, *, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings: flags (None means not given) before environment before defaults."""
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {row.name: _parse(row, source[row.variable]) for row in TABLE if row.variable in source}
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    for row in TABLE:
        if row.about.address and (flags or {}).get(row.name) is not None:
            check_flag(row.flag, row.variable, values[row.name])
    return Settings(**values)


def check_flag(flag: str, variable: str, address: str) -> None:
    """Raise SettingsError if an address given as a flag carries a secret."""
    if has_secret(address):
        raise SettingsError(
            f"{flag} must name no user and no password, since all users of a machine can read the arguments of its "
            f"processes; set the variable {variable} instead; got {masked(address)!r}"
        )


def load_some(
    names: Sequence[str], flags: Mapping[str, Any], *, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return those of these settings that a flag or the environment gives; the others are not looked at."""
    source = os.environ if environment is None else environment
    given: dict[str, Any] = {}
    for row in TABLE:
        if row.name in names and (flags.get(row.name) is not None or row.variable in source):
            flag = flags.get(row.name)
            given[row.name] = _parse(row, source[row.variable]) if flag is None else flag
            _check(row, given[row.name])
    return given


Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Give a click command the flags of these settings, each with its variable and default in the help text.

    Secrets have no flag: all users of a machine can read the arguments of its processes.
    """
    rows = {row.name: row for row in TABLE if not row.about.secret}

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            row = rows[name]
            kind: Any = click.Choice(row.choices) if row.choices else row.kind
            form = f"{row.flag}/--no-{row.flag[2:]}" if row.kind is bool else row.flag
            text = f"{row.about.help} [env: {row.variable}; default: {_shown(row)}]"
            command = click.option(form, row.name, type=None if row.kind is bool else kind, default=None, help=text)(
                command
            )
        return command

    return decorate


def _shown(row: Row) -> str:
    if row.kind is bool:
        return "1" if row.default else "0"
    return str(row.default) if row.default != "" else "empty"


def documentation() -> str:
    """Return the table as Markdown, for docs/settings.md."""
    lines = ["| variable | flag | default | meaning |", "|---|---|---|---|"]
    for row in TABLE:
        text = row.about.help + (
            f" One of {', '.join(f'`{choice}`' for choice in row.choices)}." if row.choices else ""
        )
        if row.about.secret:
            text += " Secret: never printed. A variable only: all users of a machine can read arguments."
        flag = "none" if row.about.secret else f"`{row.flag}`"
        lines.append(f"| `{row.variable}` | {flag} | `{_shown(row)}` | {text} |")
    return "\n".join(lines)


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return variables with the prefix THAW_ that are no setting, most often misspelt ones."""
    known = {row.variable for row in TABLE} | LOCAL_VARIABLES
    source = os.environ if environment is None else environment
    return sorted(name for name in source if name.startswith("THAW_") and name not in known)
