"""Records that any producer can send, and what a disk can do to them: none may stop a worker or be counted wrongly."""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError, Message, Producer

from streams.connections import librdkafka_options
from streams.local.kafka import ApacheKafka
from streams.local.process import free_ports
from streams.store.counters import UNDECODABLE, UNKNOWN_SURVEY
from streams.worker.dead_letters import CUT_HEADER, DETAIL_HEADER, OFFSET_HEADER, REASON_HEADER
from tests.integration.workers import Reports, System, headers, run_thaw
from tests.support.deadline import END_SECONDS, until
from tests.support.segments import DAMAGES, damage
from tests.support.telling import Tells

pytestmark = pytest.mark.real

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


def parts(reports: Reports, count: int) -> list[Reports]:
    return [
        Reports(reports.survey, reports.window_ms, reports.tokens[cut], reports.answers[cut], reports.rungs[cut])
        for cut in np.array_split(np.arange(len(reports.rungs)), count)
    ]


def send(system: System, messages: Mapping[int, Sequence[bytes | None]], **options: object) -> None:
    """Produce with options of librdkafka (with _ for .), in batches as they come."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer(librdkafka_options(system.settings) | {"message.max.bytes": 100 << 20} | named)
    errors: list[KafkaError] = []

    def arrived(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    for partition, values in messages.items():
        for value in values:
            producer.produce(system.settings.reports_topic, value, partition=partition, on_delivery=arrived)
    assert producer.flush(END_SECONDS) == 0
    assert not errors, errors[0].str()


def metric(port: int, name: str) -> float:
    """Return the sum of a metric over its labels."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=END_SECONDS).read().decode()
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_every_codec_is_read_and_what_cannot_be_decoded_becomes_a_dead_letter(
    system: System, kafka_server: ApacheKafka, tells: Tells
) -> None:
    reports = parts(system.reports(6_000), len(CODECS) + 1)
    for codec, some in zip(CODECS, reports, strict=False):
        send(system, some.messages(8, limit_bytes=4_096), compression_type=codec)
    bad = [b"to be damaged %d" % number * 100 for number in range(len(DAMAGES))]
    topic, first = system.settings.reports_topic, 0
    # 3 is a partition like any other; batches of one record each, so that one damage is one batch.
    first = len([message for some in reports[:-1] for message in some.messages(8, limit_bytes=4_096).get(3, [])])
    for value in bad:
        send(system, {3: [value]})
    for number, change in enumerate(DAMAGES):
        damage(kafka_server, topic, 3, first + number, change)
    # Kilobytes on the wire, more than any batch may hold in memory; and a null value.
    send(system, {3: [bytes(40 << 20), None]}, compression_type="zstd", linger_ms=0, batch_num_messages=1)
    send(system, reports[-1].messages(8), compression_type="lz4")
    everyone = system.reports(6_000).tally()
    with system.worker() as worker:
        system.wait_for_tally(everyone, worker)
        letters = system.read(system.settings.dead_letters_topic, len(DAMAGES) + 2)
        tells.log("A record batch that cannot be decoded", worker, "record batch refused (batch: ", after="assigned")
        tells.log("A null value", worker, "frame refused (empty)", after="assigned")
    found = {headers(letter)[OFFSET_HEADER].decode(): headers(letter) for letter in letters}
    assert found.keys() == {f"{topic}[3]@{first + n}-{first + n}" for n in range(len(DAMAGES) + 1)} | {
        f"{topic}[3]@{first + len(DAMAGES) + 1}"
    }
    details = [found[f"{topic}[3]@{first + n}-{first + n}"].get(DETAIL_HEADER, b"").decode() for n in range(6)]
    for told, expected in zip(
        details, ("checksum", "format version 9", "codec 7", "", "damaged", "more than 16777216"), strict=True
    ):
        assert expected in told
    reasons = [told[REASON_HEADER].decode() for told in found.values()]
    assert sorted(reasons) == [UNDECODABLE] * 6 + ["empty"]
    assert system.store.log.counters(UNKNOWN_SURVEY).rejected[UNDECODABLE] >= 6
    # The others who read the topic judge the same.
    rebuilt = run_thaw(system.settings, "rebuild", "colour", "--json")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert [window["status"] for window in json.loads(rebuilt.stdout)[0]["windows"]] == ["equal"]
    assert rebuilt.stderr.count("cannot be decoded") >= 6
    assert " records read, 1 windows compared\n" in rebuilt.stderr
    shown = run_thaw(system.settings, "deadletters", "list", "--reason", UNDECODABLE)
    assert "wrong checksum" in shown.stdout


def test_a_dead_letter_of_any_size_is_sent_whole_or_cut(system: System, tells: Tells) -> None:
    sizes = (2_097_072, 3 << 20, 12 << 20)
    good = system.reports(1_000)
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        until(lambda: "assigned" in worker.log.read_text(), 60, "a worker that reads")
        for size in sizes:
            tells.begin()
            send(system, {0: [bytes(size)]}, compression_type="gzip" if size > 2 << 20 else "none")
        tells.log("A dead letter larger than its topic takes", worker, "dead letter of 12582912 bytes cut to 4194304")
        system.produce(good.messages(8))
        system.wait_for_tally(good.tally(), worker)
        letters = system.read(system.settings.dead_letters_topic, len(sizes))
        assert [headers(letter).get(CUT_HEADER) for letter in letters] == [None, None, b"12582912"]
        assert [len(letter.value() or b"") for letter in letters] == [2_097_072, 3 << 20, 4 << 20]
        assert metric(port, "thaw_worker_dead_letters_cut_total") == 1
    shown = run_thaw(system.settings, "deadletters", "list")
    assert "4194304 bytes of 12582912, cut" in shown.stdout
    replayed = run_thaw(system.settings, "deadletters", "replay")
    assert replayed.returncode == 1
    assert "0 frames sent" in replayed.stdout


def test_only_committed_records_count_and_the_lag_returns_to_0(system: System) -> None:
    committed, aborted, open_, plain = parts(system.reports(4_000), 4)
    topic = system.settings.reports_topic

    def transaction(name: str) -> Producer:
        producer = Producer(librdkafka_options(system.settings) | {"transactional.id": f"{topic}-{name}"})
        producer.init_transactions(END_SECONDS)
        return producer

    def produce(producer: Producer, some: Reports) -> None:
        producer.begin_transaction()
        for partition, values in some.messages(8, limit_bytes=2_048).items():
            for value in values:
                producer.produce(topic, value, partition=partition)
        producer.flush(END_SECONDS)

    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        writer = transaction("writer")
        for some, end in ((committed, writer.commit_transaction), (aborted, writer.abort_transaction)) * 2:
            produce(writer, some)
            end(30)
        system.wait_for_tally(committed.tally(), worker)
        until(lambda: metric(port, "thaw_worker_lag_records") == 0, 30, "no lag behind the markers")
        waiting = transaction("waiting")
        produce(waiting, open_)
        system.produce(plain.messages(8))
        until(lambda: metric(port, "thaw_worker_uncommitted_records") > 0, 30, "records behind an open transaction")
        assert system.tally() == committed.tally()
        rebuilt = run_thaw(system.settings, "rebuild", "colour", "--json")
        assert rebuilt.returncode == 0, rebuilt.stdout
        waiting.commit_transaction(END_SECONDS)
        expected = committed.tally() + open_.tally() + plain.tally()
        system.wait_for_tally(expected, worker)
        until(lambda: metric(port, "thaw_worker_lag_records") == 0, 30, "no lag")
        until(lambda: metric(port, "thaw_worker_uncommitted_records") == 0, 30, "nothing behind a transaction")
        assert "deleted unread" not in worker.log.read_text()
        worker.kill()
    with system.worker() as again:
        more = system.reports(500, seed=2)
        system.produce(more.messages(8))
        system.wait_for_tally(expected + more.tally(), again)
        assert "deleted unread" not in again.log.read_text()
