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

from streams.kafka.migration import name_for
from streams.kafka.reader import end_offsets
from streams.kafka.rights import rights
from streams.local.process import Child, free_ports
from streams.settings import TABLE, Settings
from streams.settings_topics import tier_topic
from streams.store.redis_rights import redis_rights
from tests.support.certificates import Certificates
from tests.support.secured_kafka import ADMIN, SecuredKafka, password_of
from tests.support.secured_redis import SecuredRedis
from tests.support.signing import signer_in, while_wide_text
from tests.support.surveys import survey_text

THAW: Final = (sys.executable, "-m", "streams.cli")
COMMAND_SECONDS: Final = 240
TOKEN: Final = "token-of-the-exporter"
TIER: Final = "public"
"""An audience of a survey, which has estimates in a topic of its own."""

KAFKA_USERS: Final = {
    "creator": "thaw topics create",
    "counter": "thaw worker",
    "sender": "devices, thaw gateway, thaw fleet",
    "lister": "thaw deadletters list, show",
    "replayer": "thaw deadletters replay",
    "recounter": "thaw rebuild",
    "verifier": "thaw verify, thaw export",
    "auditor": "thaw audit --kafka",
    "demonstrator": "thaw demo --kafka",
    "migrator": "thaw topics migrate",
}
"""Users of Kafka, each with the command whose documented rights it has, and no others."""
FOR_TIERS: Final = {
    "creator": "thaw topics create, for surveys with tiers",
    "counter": "thaw worker, for surveys with tiers",
}
"""Rights that two of them have as well, since a survey here has tiers."""
REDIS_USERS: Final = {
    "counter": "thaw worker, thaw rebuild, thaw topics migrate",
    "reader": "thaw exporter, thaw estimates, thaw recount, thaw bulletin, thaw verify --source redis",
    "asker": "thaw exporter, thaw estimates, to ask for a likelihood too",
    "sender": "thaw fleet",
    "seller": "thaw market",
    "canary": "thaw fleet --canary",
}
ONLOOKER: Final = "onlooker"
"""A user of Redis with the rights of a reader, who is refused what a reader may not do."""
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
        wide = while_wide_text(signer_in(folder), 0.01, name='name = "wide"', retention='retention = "30m"')
        (surveys / "wide.toml").write_text(wide)
        tiered = survey_text(name='name = "tiered"', retention='retention = "30m"')
        (surveys / "tiered.toml").write_text(f"{tiered}\n[tiers]\n{TIER} = 0\nowner = 2\n")
        vectors = survey_text(name='name = "vectors"', retention='retention = "30m"').replace('"grr"', '"sue"')
        (surveys / "vectors.toml").write_text(vectors)
        common = Settings(prefix="safe.", surveys=str(surveys), tick_ms=200, partitions=2, token=TOKEN)
        self.settings = replace(common, redis_ca=str(store.certificate))
        self._allow()
        rules = {user: redis_rights(self.settings.prefix)[command].rule() for user, command in REDIS_USERS.items()}
        rules |= {ONLOOKER: rules["reader"], STRANGER: "-@all"}
        store.close_to_strangers(
            {user: (password_of(user), rule) for user, rule in rules.items()}, password_of("admin")
        )

    def _allow(self) -> None:
        needed = rights(self.settings)
        for user, command in (*KAFKA_USERS.items(), *FOR_TIERS.items()):
            self.broker.allow(user, needed[command])

    def move_to(self, partitions: int) -> None:
        """From now on reports go to another topic with so many partitions, and workers read both."""
        before = self.settings.reports
        self.settings = replace(self.settings, reports=name_for(partitions), partitions=partitions, draining=before)
        self._allow()

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
    def running(self, name: str, settings: Settings, *arguments: str) -> Iterator[Child]:
        """Run a command of `thaw` that serves until it is stopped; its first word is what `name` begins with."""
        command = [*THAW, name.partition("-")[0], *arguments]
        child = Child(name, command, log=self.folder / f"{name}.log", env=environment(settings))
        try:
            yield child
        finally:
            child.kill()

    def has_estimates_of_tier(self) -> bool:
        """Tell whether the topic of a tier has an estimate."""
        topic = tier_topic(self.settings.estimates_topic, TIER)
        admin = self.broker.settings(ADMIN, self.settings)
        return sum(end_offsets(admin, topic, admin.partitions).values()) > 0

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
