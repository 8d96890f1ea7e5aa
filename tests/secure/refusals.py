"""Every command without what it needs: a right, the right password, the right authority. It says so in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from streams.local.process import Child
from streams.settings import Settings
from tests.secure.system import KAFKA_USERS, REDIS_USERS, System, free_port
from tests.support.deadline import until
from tests.support.secured_kafka import password_of

Words = Sequence[str]
Case = tuple[str, Words, Settings, str]
"""What is wrong, a command, its settings, and what it must say."""

FLEET: Final = ("fleet", "--windows", "1", "--pace", "fast", "--devices", "10")
OF_KAFKA: Final[dict[str, Words]] = {
    "thaw topics create": ("topics", "create"),
    "thaw fleet": (*FLEET, "--no-truth"),
    "thaw deadletters list": ("deadletters", "list"),
    "thaw deadletters replay": ("deadletters", "replay"),
    "thaw rebuild": ("rebuild", "colour"),
    "thaw verify": ("verify", "colour"),
    "thaw export": ("export", "FOLDER"),
    "thaw audit": ("audit", "colour", "--users", "60", "--crashes", "0", "--kafka", "BROKER"),
}
OF_REDIS: Final[dict[str, Words]] = {
    "thaw estimates": ("estimates", "--json"),
    "thaw recount": ("recount", "EXPORT"),
    "thaw verify --source redis": ("verify", "colour", "--source", "redis"),
    "thaw rebuild": ("rebuild", "colour"),
}
WORST_LINES: Final = 2
"""A sentence, and a line before it that says which seed a fleet has or how far a count came."""


def cases(system: System) -> Iterator[Case]:
    """Return all that must be refused."""
    own = system.of("stranger", "counter")
    missing = "user 'stranger' has no right to "
    for command, words in OF_KAFKA.items():
        yield f"no right at Kafka: {command}", words, own, missing
    reads_redis = system.of("recounter", "stranger")
    for command, words in OF_REDIS.items():
        yield f"no right at Redis: {command}", words, reads_redis, "user 'stranger' lacks a right at Redis"
    list_them: Words = ("deadletters", "list")
    known = system.of("lister", "reader")
    wrong = "does not accept user 'lister' with this password (SCRAM-SHA-512)"
    yield "wrong password of Kafka", list_them, replace(known, kafka_password="wrong"), wrong
    foreign = replace(known, kafka_ca=str(system.certificates.stranger))
    yield "foreign authority of Kafka", list_them, foreign, "no TLS connection to"
    plain = replace(known, kafka_security="SASL_PLAINTEXT")
    yield "Kafka without TLS", list_them, plain, "check THAW_KAFKA and THAW_KAFKA_SECURITY"
    look: Words = ("estimates", "--json")
    address = system.store.tls_url_of("reader", "wrong")
    yield "wrong password of Redis", look, replace(known, redis=address), "does not accept user 'reader'"
    nobody = replace(known, redis=system.store.tls_url)
    yield "no user of Redis", look, nobody, "does not accept the default user without a password; check THAW_REDIS"
    foreign = replace(known, redis_ca=str(system.certificates.stranger))
    yield "foreign authority of Redis", look, foreign, "its certificate is not trusted"
    port = system.store.tls_url.rpartition("@")[2].removeprefix("rediss://")
    yield "Redis without TLS", look, replace(known, redis=f"redis://{port}"), "check THAW_REDIS"
    writes = system.of("verifier", "counter")
    # Rights of one role are no rights of another.
    yield "a reader of reports writes", (*FLEET, "--no-truth"), writes, "user 'verifier' has no right to write"
    sends = system.of("sender", "counter")
    yield "a device reads reports", ("rebuild", "colour"), sends, "user 'sender' has no right to read"
    yield "a device reads estimates", ("verify", "colour"), sends, "user 'sender' has no right to"


def refuse_all(system: System, tell: Callable[[str], None]) -> int:
    """Check that all of it is refused in one sentence; return how many that were."""
    count = 0
    for what, words, settings, said in cases(system):
        paths = {"FOLDER": str(system.folder / "refused"), "EXPORT": str(system.folder / "export")}
        ended = system.run(settings, *(({"BROKER": system.broker.address} | paths).get(word, word) for word in words))
        lines = [line for line in ended.err.splitlines() if line]
        assert ended.status in (1, 75), f"{what}: status {ended.status}; {ended.err}"
        assert said in ended.err, f"{what}: expected {said!r}; got {ended.err!r}"
        assert ended.out == "", f"{what}: printed {ended.out!r}"
        assert len(lines) <= WORST_LINES, f"{what}: expected one sentence; got {lines}"
        _hides_secrets(what, ended.err)
        tell(f"refused: {what}: {lines[-1]}")
        count += 1
    return count + _services_wait(system, tell)


def _services_wait(system: System, tell: Callable[[str], None]) -> int:
    """Check that a worker and a gateway without rights say so in their logs, and wait for them."""
    count, foreign = 0, str(system.certificates.stranger)
    for name, settings, said in (
        ("worker", system.of("stranger", "counter"), "user 'stranger' has no right to describe the topic"),
        ("worker", system.of("counter", "stranger"), "user 'stranger' lacks a right at Redis"),
        ("worker", system.of("counter", "counter", redis_ca=foreign), "certificate is not trusted"),
        ("worker", system.of("counter", "counter", kafka_password="wrong"), "does not accept user 'counter' with this"),
        ("gateway", system.of("stranger"), "user 'stranger' has no right to describe the topic"),
        ("gateway", system.of("sender", kafka_password="wrong"), "does not accept user 'sender' with this password"),
        ("gateway", system.of("sender", kafka_ca=foreign), "no TLS connection to"),
    ):
        count += 1
        own = replace(
            settings,
            instance=f"w{count}",
            worker_port=free_port(),
            gateway_port=free_port(),
            gateway_metrics_port=free_port(),
        )
        with system.running(f"{name}-{count}", own) as child:
            until(partial(_says, child, said), 90, f"{said!r} in the log of a {name}", poll_seconds=0.2)
            assert child.alive()
            text = child.log.read_text()
        _hides_secrets(name, text)
        tell(f"refused: a {name} waits: {said}")
    return count


def _says(child: Child, said: str) -> bool:
    child.check()
    return said in child.log.read_text()


def _hides_secrets(what: str, text: str) -> None:
    assert "Traceback" not in text, f"{what}: {text}"
    shown = [user for user in {*KAFKA_USERS, *REDIS_USERS, "stranger"} if password_of(user) in text]
    assert not shown, f"{what} shows the password of {shown}: {text}"
