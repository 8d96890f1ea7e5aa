"""The same system goes on: more partitions, the other driver, devices behind a gateway, all with their rights alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from producers.survey.survey import load_survey
from streams.local.process import Child
from streams.settings import Settings
from tests.secure.allowed import WAIT_SECONDS, Course
from tests.secure.system import Ended, free_port
from tests.support.deadline import until

PARTITIONS: Final = 4
DEVICE_TOKEN: Final = "token-of-the-devices"
_QUIET: Final = ("topics", "migrate", "--quiet", "1s")


def move(course: Course) -> None:
    """Move to a topic with more partitions, while a device answers through a gateway with TLS and a token."""
    system = course.system
    begun = system.run(system.of("migrator", "counter"), "topics", "migrate", "--to", str(PARTITIONS))
    course.good("thaw topics migrate --to", begun, f": created, {PARTITIONS} partitions")
    system.move_to(PARTITIONS)
    worker_settings = system.of("counter", "counter", driver="plain", worker_port=free_port())
    with system.running("worker", worker_settings) as worker, _device(course) as processes:

        def counted() -> bool:
            for process in (worker, *processes):
                process.check()
            return _has_one_answer(system.run(system.of(store="reader"), "estimates", "colour", "--json"))

        until(counted, WAIT_SECONDS, "the answer of a device behind a gateway", poll_seconds=1)
        for done in ("thaw worker --driver plain", "thaw gateway", "thaw device run"):
            course.note(done)
        migrator = system.of("migrator", "counter")
        until(lambda: system.run(migrator, *_QUIET).status == 0, WAIT_SECONDS, "the old topic drained", poll_seconds=1)
        course.note("thaw topics migrate")

    def finished() -> bool:
        ended: Ended = system.run(migrator, *_QUIET, "--finish")
        assert ended.status == 0 or "still read it" in ended.err, ended
        return ended.out.endswith(": deleted\n")

    # The group keeps a worker that was killed for the length of a session.
    until(finished, WAIT_SECONDS, "the old topic to be deleted", poll_seconds=1)
    course.note("thaw topics migrate --finish")


@contextmanager
def _device(course: Course) -> Iterator[list[Child]]:
    """Run a gateway that sends with TLS and a password and listens with TLS, and a device that answers through it."""
    system, port = course.system, free_port()
    place = system.folder / "device"
    place.mkdir()
    credentials, token = place / "credentials.toml", place / "token"
    digest = hashlib.sha256(DEVICE_TOKEN.encode()).hexdigest()
    credentials.write_text(f'[[credential]]\nname = "devices"\ntoken_sha256 = "{digest}"\n')
    token.write_text(DEVICE_TOKEN)
    given = system.of(
        "sender",
        gateway_port=port,
        gateway_metrics_port=free_port(),
        gateway_cert=str(system.certificates.server),
        gateway_credentials=str(credentials),
    )
    with system.running("gateway", given) as gateway:
        survey = load_survey(Path(system.settings.surveys) / "colour.toml").id
        url = f"https://127.0.0.1:{port}/v1/surveys/{survey}"

        def words(authority: Path, ledger: str) -> list[str]:
            asked = ["run", "--survey", url, "--value-command", "echo green", "--ledger", str(place / ledger)]
            return [*asked, "--ca", str(authority), "--token-file", str(token)]

        trusting = words(system.certificates.authority, "ledger.sqlite")
        with system.running("device", Settings(), *trusting) as device:
            with system.running("device-stranger", Settings(), *words(system.certificates.stranger, "other")) as other:
                told = "certificate verify failed"
                until(lambda: told in other.log.read_text(), WAIT_SECONDS, "a device to refuse a foreign authority")
                assert "Traceback" not in other.log.read_text()
            yield [gateway, device]
        for log in (gateway.log, device.log):
            text = log.read_text()
            assert "Traceback" not in text, text
            assert DEVICE_TOKEN not in text, "the token is in a log"


def _has_one_answer(ended: Ended) -> bool:
    """Tell whether there is an estimate of one device alone."""
    return ended.status == 0 and 1 in {record["users"] for record in json.loads(ended.out)}
