"""A run whose secrets are known: nothing of them is in any topic, key, log or metric.

Needles are what must never leave a device: its secret, the name of its file, and the person's true value, each in the
forms in which it could slip out. Tokens are the control: they must be found, or the search looks in the wrong places.
"""

import base64
import hashlib
import logging
import struct
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import tomli_w

from producers.clock import system_clock
from producers.device.agent import Device
from producers.survey.survey import Survey, load_survey
from producers.wire.kafka import KafkaTransport
from streams.kafka.topics import Topics
from streams.local.process import Child, free_ports
from tests.integration.workers import MINUTE_MS, System
from tests.support.deadline import END_SECONDS, until

pytestmark = pytest.mark.real

DEVICES = 12
WINDOWS = 2
RUNGS = 2


def survey_file(name: str, mechanism: dict[str, Any], values: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "question": "What must nobody learn?",
        "values": values,
        "shards": 16,
        "mechanism": mechanism,
        "release": {"kind": "listed", "ladder": [2.0, 6.0], "opens": ["0s", "0s"], "jitter": "0s"},
        "window": {"size": "1m", "retention": "10m"},
        "budget": {"lifetime": 1e6},
    }


def forms(raw: bytes) -> Iterator[bytes]:
    """Return a needle as it is, and as it would look written or hashed by somebody careless."""
    for plain in (raw, hashlib.sha256(raw).digest(), hashlib.md5(raw, usedforsecurity=False).digest()):
        yield plain
        yield plain.hex().encode()
        yield base64.b64encode(plain).rstrip(b"=")
        yield base64.urlsafe_b64encode(plain).rstrip(b"=")
    yield raw[::-1]


def redis_dump(url: str, prefix: str) -> bytes:
    """Return all keys of a prefix and all that they hold."""
    client: Any = redis.Redis.from_url(url)
    readers = {
        b"string": client.get,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"set": client.smembers,
    }
    found = bytearray()
    for key in client.scan_iter(f"{prefix}*"):
        found += key + b"\n" + _flat(readers[client.type(key)](key)) + b"\n"
    client.close()
    return bytes(found)


def _flat(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"\n".join(_flat(key) + b" " + _flat(held) for key, held in value.items())
    if isinstance(value, list | tuple | set):
        return b"\n".join(map(_flat, value))
    return str(value).encode()


def topic_dump(system: System, topic: str, count: int) -> bytes:
    messages = system.read(topic, count)
    return b"\n".join(
        (message.key() or b"") + b"\n" + (message.value() or b"") + b"\n" + repr(message.headers()).encode()
        for message in messages
    )


def fetch(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=END_SECONDS) as answer:
        body: bytes = answer.read()
    return body


def test_no_secret_no_lasting_name_and_no_true_value_leaves_a_device(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Long because one run of devices, worker and exporter is searched in all places where secrets could be."""
    system = System(kafka, redis_url, topic_prefix, tmp_path)
    system.create_topics()
    words = survey_file("words", {"name": "rappor", "bits": 64, "cohorts": 2}, ["known", "other"])
    heights = survey_file("heights", {"name": "mean", "low": 0.0, "high": 1e6}, ["height"])
    surveys = []
    for content in (words, heights):
        path = tmp_path / f"{content['name']}.toml"
        path.write_text(tomli_w.dumps(content))
        surveys.append(load_survey(path))
    needles: dict[str, bytes] = {}
    tokens: list[bytes] = []
    now_ms = system_clock()
    transport = KafkaTransport(kafka, system.settings.reports_topic)
    worker_port, exporter_port = free_ports(2)
    exporter_log = tmp_path / "exporter.log"
    with (
        caplog.at_level(logging.DEBUG, logger="producers"),
        system.worker(port=worker_port, log_level="debug") as worker,
    ):
        env = {
            "THAW_REDIS": redis_url,
            "THAW_PREFIX": topic_prefix,
            "THAW_SURVEYS": str(tmp_path),
            "THAW_EXPORTER_PORT": str(exporter_port),
            "THAW_LOG_LEVEL": "debug",
        }
        exporter = Child("exporter", [sys.executable, "-m", "streams.cli", "exporter"], log=exporter_log, env=env)
        try:
            for number in range(DEVICES):
                tokens += answer(number, surveys, transport, tmp_path, now_ms, needles)
            # A bad frame and one of an unknown survey, so that dead letters are searched too.
            system.produce({0: [b"THW\x09" + struct.pack("<I", 40) + bytes(32), b"THW\x01\x28" + bytes(35)]})
            reports = DEVICES * WINDOWS * RUNGS * len(surveys)

            def counted() -> bool:
                worker.check()
                counters = [system.store.log.counters(survey.id) for survey in surveys]
                seen = sum(some.applied + some.outdated + some.duplicate for some in counters)
                return seen >= reports and not system.store.queue.entries()

            until(counted, 90, "all reports counted and estimated")
            until(lambda: b"thaw_users" in fetch(exporter_port, "/metrics"), 60, "estimates in the metrics")
            partitions = Topics(system.settings).partitions()
            assert partitions[system.settings.dead_letters_topic] == 1
            places = {
                "reports topic": topic_dump(system, system.settings.reports_topic, reports + 2),
                "estimates topic": topic_dump(system, system.settings.estimates_topic, WINDOWS * len(surveys)),
                "dead letters": topic_dump(system, system.settings.dead_letters_topic, 2),
                "Redis": redis_dump(redis_url, topic_prefix),
                "worker metrics": fetch(worker_port, "/metrics"),
                "exporter metrics": fetch(exporter_port, "/metrics"),
                "API": b"".join(
                    fetch(exporter_port, path)
                    for path in (
                        "/api/v1/surveys",
                        "/api/v1/health",
                        *(f"/api/v1/surveys/{survey.id}/windows" for survey in surveys),
                    )
                ),
            }
        finally:
            exporter.kill()
    transport.close()
    places["worker log"] = worker.log.read_bytes()
    places["exporter log"] = exporter_log.read_bytes()
    places["device log"] = "\n".join(
        # What the broker's client tells about itself is not told by the device; it stays on the device anyway.
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("producers")
    ).encode()

    # The control: what must be there is found, so the search sees what it should see.
    for token in tokens:
        assert token in places["reports topic"]
        assert token[:13] in places["Redis"]
    assert len({token[:4] for token in tokens}) == len(tokens), "two windows of a device share the beginning of a token"
    for place in ("estimates topic", "exporter metrics", "API", "Redis"):
        assert surveys[0].id.encode() in places[place], place
    assert b"refused (" in places["worker log"]

    found = [
        f"{what} in {place}"
        for what, needle in needles.items()
        for form in forms(needle)
        for place, held in places.items()
        if form in held
    ]
    assert not found


def answer(
    number: int,
    surveys: list[Survey],
    transport: KafkaTransport,
    folder: Path,
    now_ms: int,
    needles: dict[str, bytes],
) -> list[bytes]:
    """Let one device answer in two windows; note what must not leave it; return its tokens."""
    name = f"phone-of-marie-{number:04d}-imei-35693803{number:06d}"
    # No whole number: Redis has those, as times at which windows end.
    word, height = f"secret word number {number} of this person", 412_345.0625 + 7_919.0 * number
    tokens = []
    with Device(folder / f"{name}.ledger", surveys, transport) as device:
        secret = device._ledger.secret
        needles[f"secret of device {number}"] = secret
        for start in range(0, len(secret), 8):
            needles[f"part {start} of the secret of device {number}"] = secret[start : start + 8]
        needles[f"name of device {number}"] = name.encode()
        needles[f"word of device {number}"] = word.encode()
        needles[f"height of device {number}"] = repr(height).encode()
        needles[f"bytes of the height of device {number}"] = struct.pack("<d", height)
        for moment_ms in (now_ms - 2 * MINUTE_MS, now_ms - MINUTE_MS):
            for survey, value in zip(surveys, (word, height), strict=True):
                [chain] = device.observe(survey, value, moment_ms)
                tokens.append(device._token(survey, chain.window_ms, 0))
            device.tick(moment_ms)
        assert device.tick(now_ms).waiting == 0
    return tokens
