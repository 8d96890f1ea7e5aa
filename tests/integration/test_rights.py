"""A broker with TLS, passwords, access control: commands run with the documented rights, and say which they lack."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from redis import Redis as Client

from producers.clock import system_clock
from producers.survey.survey import parse_survey
from streams.kafka.rights import Right, rights
from streams.local.process import Child, free_ports
from streams.local.redis import Redis
from streams.settings import DriverName, Settings
from streams.store.contract import StoreDeniedError
from streams.store.redis import RedisStore
from streams.store.redis_rights import redis_rights
from streams.windows.likelihood import Likelihoods
from tests.integration.test_poison import metric
from tests.integration.workers import THAW
from tests.support.deadline import END_SECONDS, until
from tests.support.secured_kafka import SecuredKafka, password_of
from tests.support.services import fresh_name, running
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

VECTORS = parse_survey(survey_text().replace('name = "grr"', 'name = "sue"'), "vectors.toml")
READS = "thaw exporter, thaw estimates, thaw recount, thaw bulletin, thaw verify --source redis"
ASKS = "thaw exporter, thaw estimates, to ask for a likelihood too"
USERS = {
    "creator": "thaw topics create",
    "counter": "thaw worker",
    "sender": "devices, thaw gateway, thaw fleet",
    "lister": "thaw deadletters list, show",
    "replayer": "thaw deadletters replay",
    "recounter": "thaw rebuild",
    "auditor": "thaw verify, thaw export",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    with running(lambda: SecuredKafka([*USERS, "stranger", "blind"])) as service:
        yield service


@pytest.fixture(scope="module")
def settings(redis_server: Redis, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("surveys")
    (folder / "colour.toml").write_text(survey_text(retention='retention = "30m"'))
    return Settings(redis=redis_server.url, prefix=fresh_name() + ".", surveys=str(folder), tick_ms=200, partitions=2)


def environment(settings: Settings) -> dict[str, str]:
    names = ["kafka", "kafka_security", "kafka_ca", "kafka_sasl", "kafka_user", "kafka_password"]
    names += ["redis", "prefix", "surveys", "tick_ms", "partitions"]
    return {f"THAW_{name.upper()}": str(getattr(settings, name)) for name in names}


def start(settings: Settings, *arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*THAW, *arguments],
        env={**os.environ, **environment(settings), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=END_SECONDS)
    assert "Traceback" not in err
    return process.returncode, out, err


COMMANDS: tuple[Sequence[str], ...] = (
    ("topics", "create"),
    ("deadletters", "list"),
    ("rebuild", "colour"),
    ("fleet", "--windows", "1", "--pace", "fast", "--devices", "10", "--no-truth"),
)


def test_a_wrong_password_is_named(broker: SecuredKafka, settings: Settings) -> None:
    known = broker.settings("creator", settings)
    processes = [start(known, *command, THAW_KAFKA_PASSWORD="wrong") for command in COMMANDS]
    for process in processes:
        status, out, err = ended(process)
        assert (status, out) == (1, "")
        assert "does not accept user 'creator' with this password (SCRAM-SHA-512); check THAW_KAFKA_USER" in err
        assert password_of("creator") not in err


def test_a_missing_right_is_named_before_the_topics_exist_and_after(broker: SecuredKafka, settings: Settings) -> None:
    """Long because one course of a system is played: created, filled, counted, listed, counted again, all by users
    with the documented rights; and a stranger is told at each step what he lacks."""
    needed = rights(settings)
    for user, command in USERS.items():
        broker.allow(user, needed[command])
    broker.allow("blind", [Right("topic", settings.reports_topic, ("Describe",))])
    stranger = broker.settings("stranger", settings)

    def refused(*commands: Sequence[str]) -> None:
        for process in [start(stranger, *command) for command in commands]:
            status, out, err = ended(process)
            assert (status, out) == (1, ""), err
            assert f"user 'stranger' has no right to describe the topic {settings.prefix}thaw." in err
            assert "docs/settings.md#rights-at-the-broker" in err

    refused(("topics", "create"))
    status, out, err = ended(start(broker.settings("creator", settings), "topics", "create"))
    assert (status, out.count(": created")) == (0, 3), err
    refused(*COMMANDS)
    ports = free_ports(2)
    log = Path(settings.surveys)
    lost = Child(
        "worker of a stranger",
        [*THAW, "worker"],
        log=log / "stranger.log",
        env=environment(stranger) | {"THAW_WORKER_PORT": str(ports[0])},
    )
    worker = Child(
        "worker",
        [*THAW, "worker"],
        log=log / "worker.log",
        env=environment(broker.settings("counter", settings)) | {"THAW_WORKER_PORT": str(ports[1])},
    )
    try:
        fleet = ("fleet", "--windows", "1", "--pace", "fast", "--devices", "500", "--no-truth", "--json")
        status, out, err = ended(start(broker.settings("sender", settings), *fleet))
        assert status == 0, err

        def counted() -> bool:
            worker.check()
            status, out, _ = ended(start(broker.settings("recounter", settings), "rebuild", "colour"))
            return status == 0 and "1 windows: 1 equal; 500 users" in out

        until(counted, 90, "a worker with the documented rights counts everything", poll_seconds=1)
        no_redis = "redis://127.0.0.1:1/0"
        auditor = broker.settings("auditor", settings)
        status, out, _ = ended(start(auditor, "verify", "colour", THAW_REDIS=no_redis))
        assert (status, out.splitlines()[-1]) == (0, "1 windows: 1 equal")
        until(
            lambda: "'stranger' has no right to describe the topic" in lost.log.read_text(),
            60,
            "the stranger's worker says what it lacks",
        )
        assert lost.alive()
    finally:
        lost.kill()
        worker.kill()
    for user, name in (("lister", "list"), ("replayer", "replay")):
        status, _, err = ended(start(broker.settings(user, settings), "deadletters", name))
        assert status == 0, err
    status, out, err = ended(start(broker.settings("blind", settings), "rebuild", "colour"))
    assert (status, out) == (1, "")
    assert f"user 'blind' has no right to read the topic {settings.reports_topic}; " in err


@pytest.mark.parametrize("driver", get_args(DriverName))
def test_a_worker_that_may_only_read_says_that_devices_clocks_stamp_the_records(
    broker: SecuredKafka, settings: Settings, driver: DriverName
) -> None:
    """Its documented rights let it read the topic and not ask for its settings: the records tell."""
    own = replace(settings, prefix=fresh_name() + ".")
    for user in ("creator", "counter", "sender"):
        broker.allow(user, rights(own)[USERS[user]])
    status, _, err = ended(start(broker.settings("creator", own), "topics", "create"))
    assert status == 0, err
    [port] = free_ports(1)
    env = environment(broker.settings("counter", own)) | {"THAW_WORKER_PORT": str(port), "THAW_DRIVER": driver}
    worker = Child("worker", [*THAW, "worker"], log=Path(own.surveys) / f"reads-{driver}.log", env=env)
    fault = 'thaw_worker_topic_faults{reason="create_time"}'

    def after_reports(clock: str, line: str, present: float) -> None:
        broker.set_topic(own.reports_topic, "message.timestamp.type", clock)

        def told() -> bool:
            worker.check()
            fleet = ("fleet", "--windows", "1", "--pace", "fast", "--devices", "20", "--no-truth")
            status, _, err = ended(start(broker.settings("sender", own), *fleet))
            assert status == 0, err
            return line in worker.log.read_text() and metric(port, fault) == present

        until(told, 90, f"the worker says {line!r}", poll_seconds=0.5)

    try:
        after_reports("LogAppendTime", "assigned", 0)
        assert "CreateTime" not in worker.log.read_text()
        after_reports("CreateTime", "has message.timestamp.type CreateTime", 1)
        after_reports("LogAppendTime", "no longer create_time", 0)
    finally:
        worker.kill()


def test_only_a_reader_with_the_right_asks_for_a_likelihood() -> None:
    window_ms = system_clock()
    with running(Redis) as service, Client.from_url(service.url) as client:

        def likelihoods(user: str, command: str) -> Likelihoods:
            rule = redis_rights("safe.")[command].rule()
            client.execute_command("ACL", "SETUSER", user, "on", ">secret", *rule.split())
            url = service.url.replace("://", f"://{user}:secret@")
            return Likelihoods(RedisStore.connect(url, prefix="safe.").states)

        reader, asker = likelihoods("reader", READS), likelihoods("asker", ASKS)
        with pytest.raises(StoreDeniedError, match="user 'reader' lacks a right at Redis"):
            reader.ask(VECTORS, window_ms, 10, window_ms)
        assert asker.ask(VECTORS, window_ms, 10, window_ms).state == "asked"
        assert reader.asked(VECTORS) == [window_ms]
