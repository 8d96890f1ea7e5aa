"""Kafka and Redis with TLS, passwords and access control, one user for each role, and commands that run as one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

from streams.kafka.rights import rights
from streams.local.process import Child, free_ports
from streams.settings import TABLE, Settings
from streams.store.redis_rights import redis_rights
from tests.support.certificates import Certificates
from tests.support.secured_kafka import SecuredKafka, password_of
from tests.support.secured_redis import SecuredRedis
from tests.support.surveys import survey_text

THAW: Final = (sys.executable, "-m", "streams.cli")
COMMAND_SECONDS: Final = 240
TOKEN: Final = "token-of-the-exporter"

KAFKA_USERS: Final = {
    "creator": "thaw topics create",
    "counter": "thaw worker",
    "sender": "devices, thaw fleet",
    "lister": "thaw deadletters list, show",
    "replayer": "thaw deadletters replay",
    "recounter": "thaw rebuild",
    "verifier": "thaw verify, thaw export",
    "auditor": "thaw audit --kafka",
    "demonstrator": "thaw demo --kafka",
}
"""Users of Kafka, each with the command whose documented rights it has, and no others."""
REDIS_USERS: Final = {
    "counter": "thaw worker, thaw rebuild",
    "reader": "thaw exporter, thaw estimates, thaw recount, thaw verify --source redis",
    "sender": "thaw fleet",
    "canary": "thaw fleet --canary",
}
STRANGER: Final = "stranger"
"""A user with a password and no right, of Kafka and of Redis."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class System:
    """The services, and the settings of their users."""

    def __init__(self, broker: SecuredKafka, store: SecuredRedis, folder: Path) -> None:
        self.broker, self.store, self.folder = broker, store, folder
        self.certificates = Certificates(folder / "exporter")
        surveys = folder / "surveys"
        surveys.mkdir()
        (surveys / "colour.toml").write_text(survey_text(retention='retention = "30m"'))
        common = Settings(prefix="safe.", surveys=str(surveys), tick_ms=200, partitions=2, token=TOKEN)
        self.settings = replace(common, redis_ca=str(store.certificate))
        needed = rights(self.settings)
        for user, command in KAFKA_USERS.items():
            broker.allow(user, needed[command])
        rules = {user: redis_rights(self.settings.prefix)[command].rule() for user, command in REDIS_USERS.items()}
        rules[STRANGER] = "-@all"
        store.close_to_strangers(
            {user: (password_of(user), rule) for user, rule in rules.items()}, password_of("admin")
        )

    def of(self, kafka: str = STRANGER, store: str = STRANGER, **changes: Any) -> Settings:
        """Return the settings of a user of Kafka and a user of Redis."""
        own = replace(self.settings, redis=self.store.tls_url_of(store, password_of(store)))
        return replace(self.broker.settings(kafka, own), **changes)

    def run(self, settings: Settings, *arguments: str) -> Ended:
        """Run a command of `thaw` to its end."""
        done = subprocess.run(
            [*THAW, *arguments],
            env={**os.environ, **environment(settings)},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, name: str, settings: Settings) -> Iterator[Child]:
        """Run a command of `thaw` that serves until it is stopped."""
        child = Child(name, [*THAW, name], log=self.folder / f"{name}.log", env=environment(settings))
        try:
            yield child
        finally:
            child.kill()

    def refused_by_redis(self) -> list[str]:
        """Return what Redis refused to users that have rights, by its own log."""
        client: Any = redis.Redis.from_url(
            self.store.tls_url_of("admin", password_of("admin")), ssl_ca_certs=str(self.store.certificate)
        )
        with client:
            return [
                f"{entry['username']}: {entry['object']}"
                for entry in client.acl_log()
                if entry["username"] in REDIS_USERS and entry["reason"] != "auth"
            ]


def environment(settings: Settings) -> Mapping[str, str]:
    """Return the variables that give these settings."""
    changed = {row.variable: getattr(settings, row.name) for row in TABLE if getattr(settings, row.name) != row.default}
    return {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in changed.items()}


@contextmanager
def secured_system(folder: Path) -> Iterator[System]:
    """Start the services, give their users their rights, and stop them at the end."""
    with SecuredKafka([*KAFKA_USERS, STRANGER]) as broker, SecuredRedis() as store:
        yield System(broker, store, folder)


def free_port() -> int:
    """Return a port that is free now."""
    return free_ports(1)[0]
