"""What every driver does, on a real Kafka: Faust, and the plain consumer."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # no __all__

from streams.kafka.batches import LEAST_WALKED
from streams.local.kafka import ApacheKafka
from streams.local.process import Child
from streams.settings import DriverName
from tests.support.deadline import END_SECONDS, until
from tests.support.processes import hung
from tests.support.segments import damage, flip_a_byte

pytestmark = pytest.mark.real


class Bench:
    """Topics of one test, and processes that read them."""

    def __init__(self, kafka: ApacheKafka, driver: str, prefix: str, folder: Path) -> None:
        self.kafka, self.driver, self.prefix, self.folder = kafka, driver, prefix, folder
        self.group = f"{prefix}thaw-workers"
        self.admin = AdminClient({"bootstrap.servers": kafka.address})
        self._started = 0

    def topic(self, short: str, partitions: int, **config: str) -> str:
        name = f"{self.prefix}{short}"
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(30)
        return name

    def send(
        self,
        topic: str,
        partition: int,
        values: Sequence[str],
        *,
        transaction: str = "",
        together: bool = False,
        codec: str = "none",
    ) -> None:
        """Send each value as a record of its own batch, or all in one; `transaction` is "", "commit" or "abort"."""
        # What a broker refuses at first, since it has only just made the topic, must not come behind what it took.
        options = {"enable.idempotence": True} | ({"transactional.id": f"{topic}-{partition}"} if transaction else {})
        count = len(values) if together else 1
        batching = {"batch.num.messages": count, "linger.ms": 10_000 if together else 0, "compression.type": codec}
        producer = Producer({"bootstrap.servers": self.kafka.address} | batching | options)
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=partition)
        assert producer.flush(END_SECONDS) == 0
        if transaction:
            (producer.commit_transaction if transaction == "commit" else producer.abort_transaction)(30)

    @contextmanager
    def process(self, *topics: str, instance: str = "one", **plan: Any) -> Iterator[Reader]:
        self._started += 1
        notes = self.folder / f"notes-{self._started}.jsonl"
        notes.touch()
        arguments = [sys.executable, "-m", "tests.support.driver_process", str(notes), json.dumps(plan), *topics]
        env = {
            "THAW_KAFKA": self.kafka.address,
            "THAW_PREFIX": self.prefix,
            "THAW_DRIVER": self.driver,
            "THAW_INSTANCE": instance,
        }
        child = Child(f"driver {instance}", arguments, log=self.folder / f"driver-{self._started}.log", env=env)
        try:
            yield Reader(child, notes)
        finally:
            child.kill()

    def ends(self, topic: str, partitions: int) -> dict[str, int]:
        consumer = Consumer({"bootstrap.servers": self.kafka.address, "group.id": "unused"})
        try:
            return {
                f"{topic}:{partition}": consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=END_SECONDS
                )[1]
                for partition in range(partitions)
            }
        finally:
            consumer.close()

    def committed(self) -> dict[str, int]:
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
        found = asked[self.group].result(END_SECONDS).topic_partitions
        return {f"{place.topic}:{place.partition}": place.offset for place in found}


class Reader:
    """A process, and what its feed noted."""

    def __init__(self, child: Child, notes: Path) -> None:
        self.child, self._notes = child, notes

    def calls(self, call: str) -> list[dict[str, Any]]:
        lines = self._notes.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in found if line["call"] == call]

    def wait(self, call: str, count: int = 1) -> list[dict[str, Any]]:
        def reached() -> list[dict[str, Any]]:
            found = self.calls(call)
            if len(found) < count:
                self.child.check()
            return found if len(found) >= count else []

        return until(reached, 60, f"{count} calls of {call}")

    def wait_for(self, ends: Mapping[str, int]) -> None:
        """Wait until everything below these offsets was handed over."""

        def reached() -> bool:
            self.child.check()
            return self.places() >= ends.items()

        until(reached, 60, f"batches up to {dict(ends)}")

    def places(self) -> set[tuple[str, int]]:
        """How far each partition was handed over."""
        return {(line["place"], line["next"]) for line in self.calls("handle")}

    def values(self, place: str) -> list[str]:
        return [value for line in self.calls("handle") if line["place"] == place for value in line["values"]]

    def check_no_gap(self) -> None:
        """Every batch of a partition begins where the one before ended."""
        reached: dict[str, int] = {}
        for line in self.calls("handle"):
            assert line["start"] == reached.get(line["place"], line["start"]), line
            reached[line["place"]] = line["next"]

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(END_SECONDS)
        assert self.child.returncode == 0, self.child.tail()


@pytest.fixture(params=get_args(DriverName))
def bench(request: pytest.FixtureRequest, kafka_server: ApacheKafka, topic_prefix: str, tmp_path: Path) -> Bench:
    return Bench(kafka_server, request.param, topic_prefix, tmp_path)


def test_two_topics_are_read_from_where_the_feed_says_without_a_gap_and_committed(bench: Bench) -> None:
    numbers = [str(number) for number in range(10)]
    first, second = bench.topic("first", 4), bench.topic("second", 1)
    bench.send(first, 0, numbers)
    bench.send(first, 1, ["a", "b"], transaction="commit")
    bench.send(first, 1, ["never"], transaction="abort")
    bench.send(first, 1, ["c"], transaction="commit")
    bench.send(first, 2, numbers)
    for future in bench.admin.delete_records([TopicPartition(first, 2, 5)]).values():
        future.result(END_SECONDS)
    bench.send(first, 3, ["good", "bad", "good too"])
    damage(bench.kafka, first, 3, 1, flip_a_byte)
    bench.send(second, 0, ["other"])
    ends = bench.ends(first, 4) | bench.ends(second, 1)
    with bench.process(first, second, starts={f"{first}:0": 3}) as reader:
        [start] = reader.wait("start_at")
        assert start["committed"] == dict.fromkeys(ends)
        reader.wait_for(ends)
        reader.check_no_gap()
        begin = {line["place"]: line["start"] for line in reversed(reader.calls("handle"))}
        assert begin == dict.fromkeys(ends, 0) | {f"{first}:0": 3}
        assert reader.values(f"{first}:0") == numbers[3:]
        assert reader.values(f"{first}:1") == ["a", "b", "c"]
        assert reader.values(f"{first}:2") == numbers[5:]
        assert [line["missing"] for line in reader.calls("handle") if line["missing"]] == [5]
        assert reader.values(f"{first}:3") == ["good", "good too"]
        assert [line["undecodable"] for line in reader.calls("handle") if line["undecodable"]] == [["wrong checksum"]]
        assert reader.values(f"{second}:0") == ["other"]
        until(lambda: bench.committed() == ends, 60, "everything to be committed while it runs")
        bench.send(second, 0, ["later"])
        later = bench.ends(second, 1)
        reader.wait_for(later)
        until(lambda: reader.calls("lags")[-1]["lags"] == dict.fromkeys(ends, 0), 60, "no lag")
        reader.wait("verify")
        reader.stop()
    assert bench.committed() == ends | later, "what was counted last is committed at the end"
    with bench.process(first, second) as reader:
        [start] = reader.wait("start_at")
        assert start["committed"] == ends | later
        bench.send(first, 0, ["new"])
        [line] = reader.wait("handle")
        assert (line["start"], line["values"]) == (10, ["new"])


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_of_many_records_are_read_from_any_place_in_order(bench: Bench, codec: str) -> None:
    """Compiled code walks them; those above are too short for it."""
    several = 4 * LEAST_WALKED
    topic = bench.topic("topic", 1)
    batches = [[f"{number}.{record}" for record in range(several)] for number in range(4)]
    bench.send(topic, 0, batches[0], together=True, codec=codec)
    bench.send(topic, 0, ["never"] * several, transaction="abort", together=True, codec=codec)
    bench.send(topic, 0, batches[1], transaction="commit", together=True, codec=codec)
    bench.send(topic, 0, ["alone"])
    bench.send(topic, 0, batches[2], together=True, codec=codec)
    with bench.process(topic, starts={f"{topic}:0": 5}) as reader:
        ends = bench.ends(topic, 1)
        reader.wait_for(ends)
        reader.check_no_gap()
        expected = [*batches[0][5:], *batches[1], "alone", *batches[2]]
        assert reader.values(f"{topic}:0") == expected
        until(lambda: bench.committed() == ends, 60, "everything to be committed")
        bench.send(topic, 0, batches[3], together=True, codec=codec)
        reader.wait_for(bench.ends(topic, 1))
        assert reader.values(f"{topic}:0") == [*expected, *batches[3]]
        reader.stop()
    assert bench.committed() == bench.ends(topic, 1)


def test_a_worker_that_comes_back_with_other_topics_reads_them(bench: Bench) -> None:
    """Kafka gives a member that comes back under its name the partitions that it had."""
    first, second = bench.topic("first", 2), bench.topic("second", 2)
    for topics in ((first, second), (second,)):
        with bench.process(*topics) as reader:
            [start] = reader.wait("start_at")
            assert set(start["committed"]) == {f"{topic}:{partition}" for topic in topics for partition in range(2)}
            ends = {}
            for topic in topics:
                bench.send(topic, 1, ["record"])
                ends[f"{topic}:1"] = bench.ends(topic, 2)[f"{topic}:1"]
            reader.wait_for(ends)
            reader.stop()


def test_no_record_is_left_out_while_partitions_are_assigned_again_and_again(bench: Bench) -> None:
    """A request for records that was made before an assignment may be answered with records of it."""
    partitions, done = 3, threading.Event()
    topic = bench.topic("topic", partitions)
    sent: list[int] = []

    def send() -> None:
        producer = Producer({"bootstrap.servers": bench.kafka.address, "batch.num.messages": 1})
        while not done.is_set():
            producer.produce(topic, str(len(sent)).encode(), partition=len(sent) % partitions)
            sent.append(len(sent))
            producer.flush(END_SECONDS)
        assert producer.flush(END_SECONDS) == 0

    with bench.process(topic) as reader:
        reader.wait("start_at")
        sender = threading.Thread(target=send)
        sender.start()
        try:
            for assignment in range(2, 14):
                reader.child.send_signal(signal.SIGUSR1)
                reader.wait("start_at", assignment)
        finally:
            done.set()
            sender.join()
        reader.wait_for(bench.ends(topic, partitions))
        assert [line for line in reader.calls("handle") if line["missing"]] == []
        for partition in range(partitions):
            values = {int(value) for value in reader.values(f"{topic}:{partition}")}
            assert values == {number for number in sent if number % partitions == partition}


def test_whose_clock_stamped_the_records_is_told_by_the_records(bench: Bench) -> None:
    """A worker may read a topic, and need not be allowed to ask for its settings."""
    first = bench.topic("first", 1, **{"message.timestamp.type": "LogAppendTime"})
    second = bench.topic("second", 1, **{"message.timestamp.type": "CreateTime"})
    bench.send(first, 0, ["by the broker"] * 2)
    bench.send(second, 0, ["by the sender"] * 2)
    with bench.process(first, second) as reader:
        told = reader.wait("stamped", 2)
        assert {line["topic"]: line["by_broker"] for line in told} == {first: True, second: False}


def test_what_was_not_counted_is_not_acknowledged(bench: Bench) -> None:
    topic = bench.topic("topic", 1)
    bench.send(topic, 0, ["one", "two"])
    for fail, status, told in (("restart", 75, "the plan says so"), ("error", 1, "a batch could not be counted")):
        with bench.process(topic, fail=fail) as reader:
            assert reader.child.wait(END_SECONDS), "the process ends"
            assert reader.child.returncode == status
            assert f"exiting with status {status}: {told}" in reader.child.log.read_text()
            assert reader.values(f"{topic}:0") == ["one", "two"]
    with bench.process(topic, fail="hang") as reader:
        reader.wait("handle")
        reader.child.kill()
    with bench.process(topic) as reader:
        [start] = reader.wait("start_at")
        assert start["committed"] == {f"{topic}:0": None}
        reader.wait_for(bench.ends(topic, 1))
        assert reader.values(f"{topic}:0") == ["one", "two"]


def test_a_second_process_takes_over_what_was_counted_and_nothing_else(bench: Bench) -> None:
    topic = bench.topic("topic", 4)
    places = [f"{topic}:{partition}" for partition in range(4)]
    with bench.process(topic, instance="one") as one:
        for partition in range(4):
            bench.send(topic, partition, ["early"])
        one.wait_for(bench.ends(topic, 4))
        with bench.process(topic, instance="two") as two:
            [taken] = two.wait("start_at")
            [_, kept] = one.wait("start_at", 2)
            assert sorted([*taken["committed"], *kept["committed"]]) == places
            assert len(taken["committed"]) == 2, "partitions are shared"
            assert set(taken["committed"].values()) == {1}, "what was counted before was committed before"
            for partition in range(4):
                bench.send(topic, partition, ["late"])
            for reader, mine in ((one, kept), (two, taken)):
                reader.wait_for(dict.fromkeys(mine["committed"], 2))
                reader.check_no_gap()
            assert sorted(value for place in places for value in two.values(place)) == ["late", "late"]


@pytest.mark.parametrize("driver", get_args(DriverName))
def test_nothing_is_said_of_what_waits_at_brokers_that_do_not_answer(
    other_kafka: ApacheKafka, driver: str, topic_prefix: str, tmp_path: Path
) -> None:
    """What the consumer remembers of the end of a partition is no answer."""
    bench = Bench(other_kafka, driver, topic_prefix, tmp_path)
    topic = bench.topic("topic", 1)
    bench.send(topic, 0, ["record"])
    even = {f"{topic}:0": 0}
    with bench.process(topic) as reader:
        reader.wait_for(bench.ends(topic, 1))

        def told(lags: Mapping[str, int]) -> bool:
            return bool(reader.wait("lags")[-1]["lags"] == lags)

        until(lambda: told(even), 60, "no lag")
        with hung(other_kafka.child):
            until(lambda: told({}), 60, "no lag to be told")
        until(lambda: told(even), 60, "no lag to be told again")
