"""Every command that talks to services, each as a user with the documented rights and no others."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer

from streams.cli import main as cli
from streams.connections import librdkafka_options
from streams.local.process import Child
from streams.settings import Settings
from tests.secure.system import ONLOOKER, TOKEN, Ended, System, free_port
from tests.support.deadline import until
from tests.support.prometheus import Prometheus

DEVICES = 500
WAIT_SECONDS = 120


class Course:
    """One course of a system, step by step; `done` are the commands that worked."""

    def __init__(self, system: System, tell: Callable[[str], None]) -> None:
        self.system, self._tell = system, tell
        self.done: list[str] = []

    def good(self, what: str, ended: Ended, said: str = "") -> str:
        """Note that a command worked; return what it printed.

        Raises:
            AssertionError: it did not, or printed something else.
        """
        assert ended.status == 0, f"{what}: status {ended.status}: {ended.err or ended.out}"
        assert said in ended.out, f"{what}: expected {said!r} in {ended.out!r}"
        self.note(what)
        return ended.out

    def note(self, what: str) -> None:
        """Note that something worked."""
        self.done.append(what)
        self._tell(f"works: {what}")

    def play(self) -> None:
        """Create, send, count, look, count again in every way there is."""
        system = self.system
        masked = self.good("thaw config", system.run(system.of("counter", "counter"), "config"))
        assert "password-of" not in masked, f"a password is in the output of thaw config: {masked}"
        assert TOKEN not in masked, "the token is in the output of thaw config"
        self.good("thaw topics create", system.run(system.of("creator"), "topics", "create"), ": created")
        port = free_port()
        with system.running("worker", system.of("counter", "counter", worker_port=port)) as worker:
            self._send()
            self._refuse_one()
            self._count(worker)
            self._stamp_by_senders(worker)
        self._export_metrics()
        self._recount()
        fleet = ("--users", "60", "--crashes", "2", "--kafka", system.broker.address, "--json")
        self.good("thaw audit --kafka", system.run(system.of("auditor"), "audit", "colour", *fleet), '"contradictions"')
        demo = ("demo", "--kafka", system.broker.address, "--seconds", "10", "--devices", "500", "--json")
        result = json.loads(self.good("thaw demo --kafka", system.run(system.of("demonstrator"), *demo)))
        assert (result["lost"], result["double"], result["backlog"]) == (0, 0, 0), result

    def _send(self) -> None:
        system = self.system
        past = ("--windows", "1", "--pace", "fast", "--json")
        fleet = ("fleet", "--devices", str(DEVICES), *past)
        self.good("thaw fleet", system.run(system.of("sender", "sender"), *fleet), '"reports"')
        canary = str(Path(system.settings.surveys) / "canary.toml")
        told = system.run(system.of("sender", "canary"), "fleet", canary, "--canary", *past)
        self.good("thaw fleet --canary", told, '"reports"')

    def _refuse_one(self) -> None:
        """Send what no worker can count, as a device may: it becomes a dead letter."""
        settings = self.system.of("sender")
        producer = Producer(librdkafka_options(settings))
        producer.produce(settings.reports_topic, b"THW\x09nonsense", partition=0)
        assert producer.flush(30) == 0

    def _count(self, worker: Child) -> None:
        system = self.system

        def counted() -> bool:
            worker.check()
            ended = system.run(system.of("recounter", "counter"), "rebuild", "colour")
            return ended.status == 0 and f"1 windows: 1 equal; {DEVICES} users" in ended.out

        until(counted, WAIT_SECONDS, "all reports counted", poll_seconds=1)
        self.note("thaw worker")
        self.note("thaw rebuild")
        until(
            lambda: "1 equal" in system.run(system.of("verifier"), "verify", "colour").out,
            WAIT_SECONDS,
            "an estimate of all reports in the topic",
            poll_seconds=1,
        )
        self.note("thaw verify")
        until(system.has_estimates_of_tier, WAIT_SECONDS, "an estimate in the topic of a tier", poll_seconds=0.5)
        self._ask()
        until(
            lambda: '"number":0' in system.run(system.of("lister"), "deadletters", "list", "--json").out,
            WAIT_SECONDS,
            "a dead letter",
            poll_seconds=1,
        )
        self.note("thaw deadletters list")
        self.good("thaw deadletters show", system.run(system.of("lister"), "deadletters", "show", "0"), "bytes")
        # Nonsense stays refused: status 1, and nothing is sent.
        replayed = system.run(system.of("replayer"), "deadletters", "replay", "--dry-run")
        assert (replayed.status, "0 frames would be sent" in replayed.out) == (1, True), replayed
        self.note("thaw deadletters replay")

    def _stamp_by_senders(self, worker: Child) -> None:
        """Let the clocks of devices stamp the reports: a worker that may only read the topic says so."""
        system, topic = self.system, self.system.settings.reports_topic
        for clock, line in (
            ("CreateTime", f"{topic} has message.timestamp.type CreateTime"),
            ("LogAppendTime", f"{topic}: no longer create_time"),
        ):
            assert line not in worker.log.read_text(), line
            system.broker.set_topic(topic, "message.timestamp.type", clock)

            def told(line: str = line) -> bool:
                worker.check()
                self._refuse_one()
                return line in worker.log.read_text()

            until(told, WAIT_SECONDS, f"the worker to say {line!r}", poll_seconds=1)
        self.note("CreateTime is noticed")

    def _ask(self) -> None:
        """Ask for a likelihood, which is written to Redis: a reader may only if the right was given."""
        system, shown = self.system, ("estimates", "vectors", "--json")
        reader = system.of(store="reader")
        until(lambda: '"users"' in system.run(reader, *shown).out, WAIT_SECONDS, "an estimate", poll_seconds=1)
        asked = (*shown, "--view", "likelihood")
        refused = system.run(system.of(store=ONLOOKER), *asked)
        assert (refused.status, "user 'onlooker' lacks a right at Redis" in refused.err) == (1, True), refused
        self.good("thaw estimates --view likelihood", system.run(system.of(store="asker"), *asked), '"likelihood"')

    def _recount(self) -> None:
        system, folder = self.system, str(self.system.folder / "export")
        self.good("thaw export", system.run(system.of("verifier"), "export", folder))
        self.good("thaw recount", system.run(system.of(store="reader"), "recount", folder), "equal")
        stored = ("verify", "colour", "--source", "redis")
        self.good("thaw verify --source redis", system.run(system.of("verifier", "reader"), *stored), "1 equal")
        self.good("thaw estimates", system.run(system.of(store="reader"), "estimates", "--json"), "colour")
        sign = ("bulletin", "wide", "--key", str(system.folder / "key.pem"), "--json")
        self.good("thaw bulletin", system.run(system.of(store="reader"), *sign), '"rung": 1')
        books = ("--books", str(system.folder / "books.sqlite"), "--json")
        offer = ("market", "offer", "colour", "--rung", "0", "--price", "1", *books)
        self.good("thaw market offer", system.run(system.of(store="seller"), *offer), '"price": "1.00"')
        buy = ("market", "buy", "acme", "1", "--key", str(system.folder / "key.pem"), *books)
        self.good("thaw market buy", system.run(system.of(store="seller"), *buy), '"new": true')

    def _export_metrics(self) -> None:
        """Run the exporter with a token and TLS, and a Prometheus that reads it."""
        system, port = self.system, free_port()
        server = str(system.certificates.server)
        settings = system.of(store="reader", exporter_port=port, exporter_cert=server)
        with system.running("exporter", settings) as exporter:
            until(lambda: _status(settings, "/healthz"), WAIT_SECONDS, f"the exporter with TLS, {exporter.log}")
            assert _status(settings, "/metrics") == 401, "metrics without a token"
            assert _status(settings, "/api/v1/surveys", token="wrong") == 401, "the API with a wrong token"
            assert _status(settings, "/metrics", token=TOKEN) == 200, "metrics with the token"
            assert _status(settings, "/", token=None) == 200, "the page, which asks for the token itself"
            assert _status(settings, "/healthz", trusted=system.certificates.stranger) is None, "a foreign authority"
            self.note("thaw exporter")
            with Prometheus(prometheus_config(port, system)) as prometheus:
                until(
                    lambda: _query(prometheus, 'thaw_users{survey=~"colour.*"}'),
                    WAIT_SECONDS,
                    "estimates in a Prometheus that reads with TLS and the token",
                    poll_seconds=0.5,
                )
            self.note("Prometheus")


def prometheus_config(port: int, system: System) -> str:
    """Return the configuration that docs/security.md shows."""
    return f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: thaw
    scheme: https
    tls_config: {{ca_file: {system.certificates.authority}}}
    authorization: {{credentials: {TOKEN}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def _status(settings: Settings, path: str, *, token: str | None = None, trusted: Path | None = None) -> int | None:
    """Return the status that the exporter answers; None if it cannot be reached."""
    authority = trusted or Path(settings.exporter_cert).with_name("ca.pem")
    request = urllib.request.Request(f"https://127.0.0.1:{settings.exporter_port}{path}")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _query(prometheus: Prometheus, expression: str) -> list[Any]:
    with urllib.request.urlopen(
        f"{prometheus.url}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=10
    ) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def left_out(done: Iterable[str]) -> set[str]:
    """Return the commands of `thaw` that talk to Kafka or Redis and are not among those that were run."""
    group = cli.cli
    context = click.Context(group)
    talking = {name for name in group.list_commands(context) if _talks(group.get_command(context, name))}
    return talking - {what.split()[1] for what in done if what.startswith("thaw ")}


def _talks(command: click.Command | None) -> bool:
    """Tell whether a command, or one of a group, can be told where Kafka or Redis is."""
    assert command is not None
    if isinstance(command, click.Group):
        return any(map(_talks, command.commands.values()))
    return any(parameter.name in ("kafka", "redis") for parameter in command.params)
