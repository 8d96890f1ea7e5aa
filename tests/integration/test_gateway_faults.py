"""A gateway that is killed, and one whose broker is away: nothing confirmed is lost, nothing is counted twice."""

from __future__ import annotations

import asyncio
import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from producers.wire.http import HttpTransport
from producers.wire.transport import Message, TransportError
from streams.gateway.broker import Broker
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.settings import Settings
from tests.integration.workers import Reports, System
from tests.support.deadline import END_SECONDS, until
from tests.support.gateways import GatewayProcess
from tests.support.processes import hung
from tests.support.telling import Tells

pytestmark = pytest.mark.real


def body_of(reports: Reports) -> bytes:
    """Return all reports as one request, as a relay sends them."""
    return b"".join(message for messages in reports.messages(1).values() for message in messages)


def test_what_waits_in_a_gateway_that_is_killed_is_sent_again_and_counted_once(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    system = System(kafka, redis_url, topic_prefix, tmp_path)
    system.create_topics()
    # Held until there are ten, so that the kill meets a request that nobody has confirmed.
    gateway = GatewayProcess(system.settings, tmp_path, gateway_hold_ms=60_000, gateway_hold_reports=10)
    first, second = system.reports(6), system.reports(4, seed=2)
    heard: list[object] = []

    def send() -> None:
        try:
            heard.append(gateway.post(body_of(first)))
        except (OSError, HTTPException) as error:
            heard.append(error)

    waiting = threading.Thread(target=send)
    waiting.start()
    try:
        until(lambda: gateway.metric("thaw_gateway_held_bytes") > 0, 60, "the request to be held")
        gateway.child.kill()
        waiting.join(END_SECONDS)
        [told] = heard
        assert isinstance(told, Exception), "no answer: the client does not know, and sends the same bytes again"
        gateway.start()
        heard.clear()
        waiting = threading.Thread(target=send)
        waiting.start()
        until(lambda: gateway.metric("thaw_gateway_held_bytes") > 0, 60, "the request to be held again")
        assert gateway.post(body_of(second))[0] == 200
        waiting.join(END_SECONDS)
        # And once more, as a client does whose confirmation was lost.
        assert [answer[0] for answer in heard if isinstance(answer, tuple)] == [200]
        assert gateway.post(body_of(first) + body_of(second))[0] == 200
        with system.worker() as worker:
            system.wait_for_tally(first.tally() + second.tally(), worker)
            again = system.reports(1, seed=3)
            system.produce(again.messages(8))
            system.wait_for_tally(first.tally() + second.tally() + again.tally(), worker)
    finally:
        gateway.stop()


def test_a_broker_that_is_away_is_told_and_the_same_bytes_are_counted_once_when_it_is_back(
    other_kafka: ApacheKafka, redis_url: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    system = System(other_kafka.address, redis_url, topic_prefix, tmp_path)
    system.create_topics()
    gateway = GatewayProcess(system.settings, tmp_path)
    reports = system.reports(20)
    device = HttpTransport(gateway.url)
    frames = [Message(0, raw) for messages in reports.messages(1, limit_bytes=1).values() for raw in messages]
    try:
        with hung(other_kafka.child):
            # Without a request.
            tells.begin()
            tells.log("Brokers do not answer a gateway", gateway.child, "Kafka (for reports) is down")
            status, answer, headers = gateway.post(body_of(reports))
            assert (status, answer["reason"], headers["Retry-After"]) == (503, "broker", "5")
            assert len(answer["error"].split()) > 3
            with pytest.raises(TransportError, match="does not confirm") as error:
                device.send(frames)
            assert error.value.wait_seconds == 5
            assert gateway.metric("thaw_gateway_postponed_total", reason="broker") == 2
            assert gateway.metric("thaw_gateway_kafka_up") == 0
            assert gateway.metric("thaw_gateway_reports_total", survey=system.survey.id) == 0
        until(lambda: gateway.post(body_of(reports))[0] == 200, 60, "the gateway to reach the broker again")
        device.send(frames)
        with system.worker() as worker:
            system.wait_for_tally(reports.tally(), worker)
            last = system.reports(1, seed=3)
            system.produce(last.messages(8))
            system.wait_for_tally(reports.tally() + last.tally(), worker)
        assert gateway.metric("thaw_gateway_held_bytes") == 0
        assert gateway.metric("thaw_gateway_kafka_up") == 1
    finally:
        device.close()
        gateway.stop()


def test_an_error_in_an_acknowledgement_leaves_no_request_waiting(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(kafka=kafka, prefix=topic_prefix)
    Topics(settings).create(wanted(settings, []))

    def failing(_broker: Broker, _delivered: object) -> None:
        raise ValueError("nobody knows why")

    monkeypatch.setattr(Broker, "_compare", failing)

    async def send() -> None:
        broker = Broker(settings)
        await broker.start()
        try:
            async with asyncio.timeout(END_SECONDS):
                for _ in range(2):
                    await broker.send([Message(partition, b"frame") for partition in range(3)])
        finally:
            await broker.stop()

    asyncio.run(send())
    assert len([record for record in caplog.records if "goes on" in record.message]) == 1, "one kind is told once"
