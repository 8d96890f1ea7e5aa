"""`thaw gateway` on a real broker: what arrives, what is refused, what nobody behind it can know."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import json
import re
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pytest
import redis
import schemathesis
from confluent_kafka import Message
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from schemathesis.config import GenerationConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from producers.clock import system_clock
from producers.device.agent import Device
from producers.wire import frames as wire
from producers.wire.http import HttpTransport
from producers.wire.layout import MAX_MESSAGE_BYTES
from streams.gateway import openapi
from streams.gateway.judge import AGAIN
from streams.kafka.reader import end_offsets
from streams.kafka.topics import Topics
from streams.local.kafka import ApacheKafka
from streams.settings import Settings
from tests.integration.workers import Reports, System, headers
from tests.support.certificates import Certificates
from tests.support.deadline import until
from tests.support.exporter_process import start_exporter, until_healthy
from tests.support.gateways import GatewayProcess
from tests.support.services import fresh_name

pytestmark = pytest.mark.real

CLIENT = "127.77.13.9"
"""An address of this machine that nothing else uses."""
YEAR_MS = 365 * 86_400_000
QUESTIONS = 10
"""Random requests per path; boundary values come on top."""

configuration = SchemathesisConfig()
configuration.projects.default.generation = GenerationConfig(deterministic=True, with_security_parameters=False)
schemathesis.serializer.alias(openapi.FRAMES, "application/octet-stream")
schema = schemathesis.openapi.from_dict(openapi.description(), config=configuration)


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


@pytest.fixture
def gateway(system: System, tmp_path: Path) -> Iterator[GatewayProcess]:
    made = GatewayProcess(system.settings, tmp_path)
    yield made
    made.stop()


def body_of(reports: Reports) -> bytes:
    """Return all reports as one request, as a relay sends them."""
    return b"".join(message for messages in reports.messages(1).values() for message in messages)


def test_confirmed_reports_are_counted_and_a_replayed_request_changes_nothing(
    system: System, gateway: GatewayProcess
) -> None:
    reports = system.reports(500)
    status, answer, _ = gateway.post(body_of(reports))
    assert (status, answer["reports"]) == (200, 500)
    assert gateway.post(body_of(reports))[0] == 200
    with system.worker() as worker:
        system.wait_for_tally(reports.tally(), worker)
    assert gateway.metric("thaw_gateway_reports_total", survey=system.survey.id) == 1_000
    assert gateway.metric("thaw_gateway_held_bytes") == 0


def test_nothing_behind_the_gateway_knows_an_address_a_header_or_the_time_of_a_request(
    system: System, gateway: GatewayProcess, kafka_server: ApacheKafka, tmp_path: Path
) -> None:
    reports, topics = system.reports(40), system.settings
    ports, before_ms = [], system_clock()
    for frame in singles(reports):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=120, source_address=(CLIENT, 0))
        connection.connect()
        ports.append(connection.sock.getsockname()[1])
        connection.request(
            "POST", "/v1/frames", frame, {"Content-Type": "application/octet-stream", "X-Secret": "sesame"}
        )
        assert connection.getresponse().status == 200
        connection.close()
    # A malformed request, which aiohttp would log with its address.
    with socket.create_connection(("127.0.0.1", gateway.port), source_address=(CLIENT, 0)) as rude:
        ports.append(rude.getsockname()[1])
        rude.sendall(b"GET \0 HTTP/9\r\nX-Secret: sesame\r\n\r\n")
        rude.recv(1_000)
    after_ms = system_clock()
    # Only now: a moment of the requests' time in what it stores can be from nowhere but the requests.
    with system.worker() as worker:
        system.wait_for_tally(reports.tally(), worker)
        until(lambda: system.store.estimates.read(system.survey.id, system.window_ms), 60, "an estimate")
        estimates = until(lambda: all_of(system, topics.estimates_topic), 60, "a published estimate")
    records, letters = (all_of(system, one) for one in (topics.reports_topic, topics.dead_letters_topic))
    for record in records:
        assert record.key() is None
        assert headers(record) == {"schema": b"thaw.frame.v1"}
    moments = {
        header.sent_ms for record in records for header in wire.headers(record.value() or b"") if is_header(header)
    }
    assert moments <= {system.survey.opening_ms(system.window_ms, rung) for rung in (1, 2)} | {system.window_ms}
    log = gateway.log.read_bytes()
    blobs = [record.value() or b"" for record in records] + kept_in_redis(system.settings)
    blobs += [part for record in [*estimates, *letters] for part in (record.key() or b"", record.value() or b"")]
    log += worker.log.read_bytes()
    told = [*blobs, log, *shown_by_exporter(system, tmp_path), kafka_server.log.read_bytes()]
    packed = socket.inet_aton(CLIENT)
    for blob in told:
        assert b"sesame" not in blob
        assert CLIENT.encode() not in blob
        assert packed not in blob
        assert packed[::-1] not in blob
    for blob in blobs:
        assert not moments_in(blob, before_ms, after_ms)
    assert not any(re.search(rf":{port}\b", log.decode()) for port in ports)
    # A scrape has the time of its own; what it shows must not hold one.
    for line in metrics_of(gateway).splitlines():
        number = float(line.rpartition(" ")[2]) if not line.startswith("#") else 0.0
        assert not any(before_ms <= moment <= after_ms for moment in (number, number * 1_000)), line


def all_of(system: System, topic: str) -> list[Message]:
    """Return what is on a topic."""
    partitions = Topics(system.settings).partitions()[topic]
    return system.read(topic, sum(end_offsets(system.settings, topic, partitions).values()))


def shown_by_exporter(system: System, folder: Path) -> list[bytes]:
    """Return what an exporter of the system shows, and its log."""
    exporter, url = start_exporter(folder, redis_url=system.settings.redis, prefix=system.settings.prefix)
    try:
        window = f"{url}/api/v1/surveys/{system.survey.id}/windows/{system.window_ms}"
        until(lambda: got(window), 60, "the window in the API")
        paths = (window, f"{window}/history", f"{url}/api/v1/surveys", f"{url}/api/v1/health", f"{url}/metrics")
        shown = [got(path) for path in paths]
    finally:
        exporter.kill()
    return [*shown, exporter.log.read_bytes()]


def got(url: str) -> bytes:
    """Return what an address serves; nothing where it serves nothing yet."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            raw: bytes = answer.read()
    except urllib.error.HTTPError:
        return b""
    return raw


def metrics_of(gateway: GatewayProcess) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.metrics_port}/metrics", timeout=60) as page:
        text: str = page.read().decode()
    assert 'thaw_gateway_reports_total{survey="' in text
    return text


def singles(reports: Reports) -> list[bytes]:
    """Return every report as a frame of its own, as devices send them."""
    return [
        message
        for place in range(len(reports.rungs))
        for messages in dataclasses.replace(
            reports,
            tokens=reports.tokens[place : place + 1],
            answers=reports.answers[place : place + 1],
            rungs=reports.rungs[place : place + 1],
        )
        .messages(1)
        .values()
        for message in messages
    ]


def is_header(found: wire.Header | wire.FrameError) -> TypeGuard[wire.Header]:
    return isinstance(found, wire.Header)


def kept_in_redis(settings: Settings) -> list[bytes]:
    """Return every key of one system and all that it holds."""
    client: Any = redis.Redis.from_url(settings.redis)
    found: list[bytes] = []
    for key in client.scan_iter(match=f"*{settings.prefix}*"):
        kind = client.type(key)
        found.append(key)
        if kind == b"string":
            found.append(client.get(key) or b"")
        elif kind == b"list":
            found += client.lrange(key, 0, -1)
        elif kind == b"hash":
            found += [part for pair in client.hgetall(key).items() for part in pair]
        elif kind == b"zset":
            found += [
                part
                for pair in client.zrange(key, 0, -1, withscores=True)
                for part in (pair[0], repr(pair[1]).encode())
            ]
        else:
            assert kind in (b"set", b"none"), kind
            found += client.smembers(key) if kind == b"set" else []
    client.close()
    assert len(found) > 10
    return found


def moments_in(blob: bytes, first_ms: int, last_ms: int) -> list[int]:
    """Return moments of a span that are in a blob: as decimal digits, or as 64-bit integers or floats at any place."""
    digits = [int(run[at : at + 13]) for run in re.findall(rb"\d{13,}", blob) for at in range(len(run) - 12)]
    words = [int.from_bytes(blob[at : at + 8], "little") for at in range(len(blob) - 7)]
    floats = [struct.unpack_from(form, blob, at)[0] for form in ("<d", ">d") for at in range(len(blob) - 7)]
    seconds = [round(number * 1_000) for number in floats if first_ms / 1_000 <= number <= last_ms / 1_000]
    wide = [round(number) for number in floats if first_ms <= number <= last_ms]
    return [moment for moment in (*digits, *words, *seconds, *wide) if first_ms <= moment <= last_ms]


def test_every_bad_request_gets_its_status_a_reason_and_a_counter(system: System, gateway: GatewayProcess) -> None:
    good = body_of(system.reports(5))
    frame = singles(system.reports(1))[0]

    def at_window(window_ms: int) -> bytes:
        return singles(Reports.draw(system.survey, 1, seed=3, window_ms=window_ms))[0]

    step_ms = system.survey.windows.step_ms
    now_ms = system_clock() // step_ms * step_ms
    kind = {"Content-Type": "text/plain"}
    packed = {"Content-Encoding": "gzip"}
    cases: list[tuple[str, int, bytes, dict[str, str]]] = [
        ("empty", 422, b"", {}),
        ("length", 422, good[:-8], {}),
        ("length", 422, good + b"THW", {}),
        ("magic", 422, b"x" * 80, {}),
        ("survey", 422, frame[:8] + bytes(8) + frame[16:], {}),
        ("version", 422, frame[:3] + b"\xee" + frame[4:], {}),
        ("count", 422, frame[:34] + bytes(4) + frame[38:], {}),
        ("token", 422, frame[:53] + bytes([frame[53] ^ 1]) + frame[54:], {}),
        ("answer", 422, frame[:56] + b"\x77" + frame[57:], {}),
        ("rung", 422, frame[:64] + b"\x77" + frame[65:], {}),
        ("window", 422, at_window(now_ms + 1), {}),
        ("future", 422, at_window(now_ms + YEAR_MS // step_ms * step_ms), {}),
        ("expired", 422, at_window(now_ms - YEAR_MS // step_ms * step_ms), {}),
        ("early", 422, closed_rung(system, now_ms), {}),
        ("type", 415, good, kind),
        ("type", 415, good, packed),
        ("large", 413, bytes(MAX_MESSAGE_BYTES + 1), {}),
    ]
    counted: dict[str, int] = {}
    for reason, status, body, extra in cases:
        found, answer, _ = gateway.post(body, headers=extra)
        assert (found, answer["reason"]) == (status, reason), answer
        assert len(answer["error"].split()) > 3
        assert abs(answer["now_ms"] - system_clock()) < 3_600_000
        if status == 422:
            assert all(one["again"] == (one["reason"] in AGAIN) for one in answer["frames"])
            assert answer["frames"]
        counted[reason] = counted.get(reason, 0) + 1
    for reason, times in counted.items():
        assert gateway.metric("thaw_gateway_refused_total", reason=reason) == times
    # One bad frame: nothing is taken, and the answer says which one to leave out.
    status, answer, _ = gateway.post(frame + at_window(now_ms + 1) + frame)
    assert (status, [one["frame"] for one in answer["frames"]]) == (422, [1])
    assert gateway.post(b"", path="/nowhere")[0] == 404
    assert gateway.post(b"", method="PUT")[0] == 405
    assert gateway.metric("thaw_gateway_reports_total", survey=system.survey.id) == 0
    assert gateway.metric("thaw_gateway_held_bytes") == 0
    assert gateway.post(good)[0] == 200


def closed_rung(system: System, window_ms: int) -> bytes:
    """Return a report of a rung that opens later."""
    reports = Reports.draw(system.survey, 1, seed=5, window_ms=window_ms)
    return singles(dataclasses.replace(reports, rungs=np.array([2], dtype=np.uint8)))[0]


def test_devices_with_a_certificate_are_let_in_and_their_late_answers_are_taken_out_of_the_outbox(
    system: System, tmp_path: Path
) -> None:
    made = Certificates(tmp_path / "certificates")
    files = {"gateway_cert": made.server, "gateway_key": made.server, "gateway_client_ca": made.authority}
    credentials = tmp_path / "credentials"
    credentials.write_text(credential_of(made.server, request_bytes=1_000))
    gateway = GatewayProcess(system.settings, tmp_path, gateway_credentials=credentials, **files)
    known = ssl.create_default_context(cafile=made.authority)
    stranger = HttpTransport(gateway.url.replace("http", "https"), tls=known)
    known_too = ssl.create_default_context(cafile=made.authority)
    known_too.load_cert_chain(made.server)
    friend = HttpTransport(gateway.url.replace("http", "https"), tls=known_too)
    try:
        until_healthy(gateway.child, gateway.url.replace("http", "https"), known_too)
        now_ms = system_clock()
        with Device(tmp_path / "one.ledger", [system.survey], friend) as device:
            # Of a window that nobody counts any more, and of this one.
            device.observe(system.survey, "red", now_ms - YEAR_MS)
            device.observe(system.survey, "red", now_ms)
            until(lambda: device.tick(now_ms + system.survey.jitter_ms).waiting == 0, 60, "an empty outbox")
            assert device.next_ms() is not None
        with Device(tmp_path / "two.ledger", [system.survey], stranger) as device:
            device.observe(system.survey, "red", now_ms)
            tick = device.tick(now_ms + system.survey.jitter_ms)
            assert (tick.sent, tick.waiting) == (0, 1)
        [record] = system.read(system.settings.reports_topic, 1)
        [header] = wire.headers(record.value() or b"")
        assert is_header(header)
        assert (header.count, header.window_ms) == (1, system.survey.windows.latest(now_ms))
        assert gateway.metric("thaw_gateway_refused_total", reason="expired") == 1
        # Without a certificate, with one of another CA, and without TLS at all: no answer, and a counter.
        foreign = ssl.create_default_context(cafile=made.authority)
        foreign.load_cert_chain(Certificates(tmp_path / "foreign").server)
        before = gateway.metric("thaw_gateway_refused_total", reason="tls")
        assert before >= 1
        for context in (known, foreign):
            assert not answered(gateway, context)
        assert not answered(gateway, None)
        until(lambda: gateway.metric("thaw_gateway_refused_total", reason="tls") == before + 3, 60, "three counts")
        assert answered(gateway, known_too)
        # A certificate has limits of its own.
        assert posted(gateway, known_too, bytes(1_001)) == (413, "large")
        assert posted(gateway, known_too, bytes(1_000)) == (422, "magic")
        assert CLIENT not in gateway.log.read_text()
    finally:
        friend.close()
        stranger.close()
        gateway.stop()


def credential_of(certificate: Path, *, request_bytes: int) -> str:
    """Return a file of credentials with one certificate of a PEM file."""
    pem = certificate.read_text()
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") :].partition("-----END CERTIFICATE-----")
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0] + first[1])).hexdigest()
    return f'[[credential]]\nname = "box"\ncertificate_sha256 = "{digest}"\nrequest_bytes = {request_bytes}\n'


def posted(gateway: GatewayProcess, context: ssl.SSLContext, body: bytes) -> tuple[int, str]:
    """Send a request with TLS, and return its status and reason."""
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, timeout=120, context=context)
    connection.request("POST", "/v1/frames", body, {"Content-Type": "application/octet-stream"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())["reason"]
    connection.close()
    return found


def answered(gateway: GatewayProcess, context: ssl.SSLContext | None) -> bool:
    """Tell whether a request from a known address gets an HTTP answer; with TLS 1.3 a client hears late that not."""
    try:
        raw = socket.create_connection(("127.0.0.1", gateway.port), source_address=(CLIENT, 0))
        with raw, raw if context is None else context.wrap_socket(raw, server_hostname="127.0.0.1") as way:
            way.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            return way.recv(1_000).startswith(b"HTTP")
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.fixture(scope="module")
def described(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("described")
    url: str = request.getfixturevalue("redis_server").url
    system = System(request.getfixturevalue("kafka"), url, fresh_name() + ".", folder)
    system.create_topics()
    made = GatewayProcess(system.settings, folder)
    yield made
    made.child.check()
    assert "Traceback" not in made.log.read_text()
    made.stop()


@schema.parametrize()
@hypothesis_settings(max_examples=QUESTIONS, suppress_health_check=list(HealthCheck))
def test_every_answer_has_a_status_and_a_body_that_the_description_promises(
    case: schemathesis.Case[Any], described: GatewayProcess
) -> None:
    # No schema can say which bytes are frames.
    case.call_and_validate(base_url=described.url, excluded_checks=[positive_data_acceptance])
