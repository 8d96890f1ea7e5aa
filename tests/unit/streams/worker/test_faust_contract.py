"""What worker/faust_batches.py relies on in Faust and aiokafka: fails when a new version changes it."""

import asyncio
import hashlib
import inspect
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from faust.tables.recovery import Recovery
from faust.transport import consumer as base
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.kafka.batches import LEAST_WALKED
from streams.kafka.messages import FetchBatch, Record, RecordRun, RunRecords
from streams.worker.faust_batches import BatchApp, BatchConsumer, BatchThread, BatchTopic, BatchTransport

TOPIC = "reports"


def test_the_pinned_versions_are_the_ones_that_were_looked_at() -> None:
    assert (version("faust-streaming"), version("mode-streaming"), version("aiokafka")) == ("0.15.3", "0.7.1", "0.14.0")


def fingerprint(thing: Any) -> str:
    source = textwrap.dedent(inspect.getsource(thing))
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def test_taking_over_a_partition_late_is_no_error() -> None:
    """Faust's own check compares with the start of the process; ours must not touch what it was not given."""
    inherited = inspect.getsource(driver.AIOKafkaConsumerThread.verify_event_path)
    assert "secs_since_started >= self.tp_stream_timeout_secs" in inherited
    assert driver.Consumer.verify_event_path is BatchConsumer.verify_event_path, "it asks the thread"
    BatchThread.verify_event_path(BatchThread.__new__(BatchThread), 1e9, TP(TOPIC, 0))


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        (base.Consumer._drain_messages, "8f35dd7a1114"),
        (base.Consumer._new_offset, "2b29afe4dd9a"),
        (base.Consumer._wait_next_records, "ba40cd367132"),
        (base.Consumer.perform_seek, "2b4ceebd23de"),
        (base.Consumer.on_partitions_revoked, "652177e770ee"),
        (base.Consumer.ack, "5548cf0f7584"),
        (base.Consumer.wait_empty, "53195dca246c"),
        (driver.AIOKafkaConsumerThread._fetch_records, "9e7369fc572d"),
        (driver.AIOKafkaConsumerThread._create_worker_consumer, "c179c0bdb975"),
        (fetcher.Fetcher._proc_fetch_request, "ace04969424f"),
        (fetcher.Fetcher.fetched_records, "e20ce0c8117f"),
        (fetcher.FetchResult, "d7db13f06de8"),
        (fetcher.PartitionRecords, "94aa0da0dbec"),
        (Recovery._resume_streams, "fbe0f747b84c"),
        (faust.Stream.noack_take, "ad0a704eef3c"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_we_override_or_lean_on_is_unchanged(function: Any, seen: str) -> None:
    # A change here is no fault, but a reason to read the new text beside streams/worker/faust_batches.py and app.py.
    assert fingerprint(function) == seen


def test_overridden_methods_exist_with_the_same_parameters() -> None:
    for ours, theirs in (
        (BatchConsumer, driver.Consumer),
        (BatchThread, driver.AIOKafkaConsumerThread),
        (BatchTopic, faust.Topic),
        (BatchApp, faust.App),
    ):
        for name, method in vars(ours).items():
            if inspect.isfunction(method) and hasattr(theirs, name) and name != "__init__":
                expected = list(inspect.signature(getattr(theirs, name)).parameters)
                assert list(inspect.signature(method).parameters) == expected, f"{ours.__name__}.{name}"
    assert BatchTransport.Consumer is BatchConsumer
    assert hasattr(AIOKafkaConsumer, "committed")


class FakeThread:
    """Stands for the thread of aiokafka's consumer; notes where it was asked to seek."""

    def __init__(self, committed: Mapping[TP, int | None]) -> None:
        self.committed_offsets = committed
        self.sought: dict[TP, int] = {}

    def _ensure_consumer(self) -> "FakeThread":
        return self

    async def call_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await function(*arguments)

    def assignment(self) -> set[TP]:
        return set(self.committed_offsets)

    async def committed(self, tp: TP) -> int | None:
        return self.committed_offsets[tp]

    def seek(self, tp: TP, offset: int) -> None:
        self.sought[tp] = offset


def record(offset: int) -> Record:
    return Record(offset, 1_000, b"x")


class Bench:
    """A consumer without a broker: fetches are a list, hand-overs are kept."""

    def __init__(self, committed: Mapping[int, int | None], starts: Mapping[int, int]) -> None:
        async def start_offsets(found: Mapping[TP, int | None]) -> Mapping[TP, int]:
            assert found == {TP(TOPIC, partition): offset for partition, offset in committed.items()}
            return {TP(TOPIC, partition): offset for partition, offset in starts.items()}

        def stamped(_topic: str, _by_broker: bool) -> None: ...

        self.app = BatchApp(
            "test", start_offsets=start_offsets, stamped=stamped, broker="kafka://127.0.0.1:1", web_enabled=False
        )
        self.batches: list[FetchBatch] = []
        self.consumer: Any = BatchConsumer(
            self.app.transport, self.take, self.nothing, self.nothing, loop=asyncio.get_running_loop()
        )
        self.thread: Any = FakeThread({TP(TOPIC, partition): offset for partition, offset in committed.items()})
        self.consumer._thread.thread_loop.close()
        setattr(self.consumer, "_thread", self.thread)  # noqa: B010  # not of the type that mypy infers
        self.app.consumer_generation_id = 1

    async def nothing(self, *_arguments: Any) -> None: ...

    async def take(self, message: Any) -> None:
        self.batches.append(message.value)

    async def drain(self, *fetches: Callable[[], Mapping[int, list[Any]]]) -> None:
        """Let the consumer see these fetches, and then stop."""
        script = iter(fetches)
        service = SimpleNamespace(_stopped=asyncio.Event())

        async def wait_next_records(timeout: float) -> tuple[dict[TP, list[Any]], set[TP]]:
            step = next(script, None)
            if step is None:
                service._stopped.set()
                return {}, set()
            return {TP(TOPIC, p): records for p, records in step().items()}, set(self.thread.committed_offsets)

        self.consumer._wait_next_records = wait_next_records
        await self.consumer._drain_messages(service)

    @property
    def places(self) -> list[tuple[int, int, int, int]]:
        return [(batch.partition, batch.start, batch.next_offset, len(batch.records)) for batch in self.batches]


def test_reading_starts_where_the_store_says() -> None:
    async def talk() -> None:
        bench = Bench({0: 7, 1: None}, {0: 3, 1: 0})
        await bench.consumer.perform_seek()
        assert bench.thread.sought == {TP(TOPIC, 0): 3, TP(TOPIC, 1): 0}
        await bench.drain(lambda: {0: [record(3), record(4)], 1: [record(0)]}, lambda: {0: [record(5)]})
        assert bench.places == [(0, 3, 5, 2), (1, 0, 1, 1), (0, 5, 6, 1)]

    asyncio.run(talk())


def test_records_below_the_start_are_cut_off() -> None:
    async def talk() -> None:
        bench = Bench({0: 5}, {0: 5})
        await bench.consumer.perform_seek()
        await bench.drain(lambda: {0: [record(3), record(4)]}, lambda: {0: [record(4), record(5), record(6)]})
        assert bench.places == [(0, 5, 7, 2)]

    asyncio.run(talk())


def test_a_fetch_of_an_older_generation_is_dropped_and_read_again() -> None:
    async def talk() -> None:
        bench = Bench({0: 0}, {0: 0})
        await bench.consumer.perform_seek()

        def late() -> Mapping[int, list[Any]]:
            bench.app.consumer_generation_id += 1
            return {0: [record(0), record(1)]}

        bench.thread.sought.clear()
        await bench.drain(late, lambda: {0: [record(0), record(1)]})
        assert bench.thread.sought == {TP(TOPIC, 0): 0}, "fetch again from where the last batch ended"
        assert bench.places == [(0, 0, 2, 2)]

    asyncio.run(talk())


def test_a_gap_is_read_again_before_it_is_accepted() -> None:
    async def talk() -> None:
        bench = Bench({0: 0}, {0: 0})
        await bench.consumer.perform_seek()
        bench.thread.sought.clear()
        await bench.drain(lambda: {0: [record(10)]}, lambda: {0: [record(0)]}, lambda: {0: [record(10)]})
        assert bench.thread.sought == {TP(TOPIC, 0): 1}
        assert bench.places == [(0, 0, 1, 1)], "the first hole was none; the second was seen only once"
        await bench.drain(lambda: {0: [record(10)]})
        assert bench.places[1:] == [(0, 1, 11, 1)], "batches leave no gap between them, whatever the offsets"

    asyncio.run(talk())


def test_a_suspended_flow_does_not_move_the_place() -> None:
    async def talk() -> None:
        bench = Bench({0: 0}, {0: 0})
        await bench.consumer.perform_seek()

        async def hang(_message: Any) -> None:
            bench.consumer.suspend_flow.set()
            await asyncio.Event().wait()

        bench.consumer.callback = hang
        await bench.drain(lambda: {0: [record(0)]})
        assert bench.consumer._read_offset[TP(TOPIC, 0)] == 0

    asyncio.run(talk())


def test_commits_go_behind_the_highest_acknowledged_chunk() -> None:
    async def talk() -> None:
        bench = Bench({0: None}, {0: 0})
        tp = TP(TOPIC, 0)
        assert bench.consumer._new_offset(tp) is None
        bench.consumer._acked[tp] += [9, 4]
        assert bench.consumer._new_offset(tp) == 10
        assert bench.consumer._new_offset(tp) is None

    asyncio.run(talk())


def fetched(first: int, values: list[bytes | None]) -> fetcher.FetchResult:
    """What aiokafka makes of bytes from a broker."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 16)
    for number, value in enumerate(values):
        builder.append(number, 1_000 + number, None, value, [])
    raw = bytearray(builder.build())
    raw[:8] = first.to_bytes(8, "big")  # the broker's part; the checksum begins behind it
    tp = TP(TOPIC, 0)
    unpacked = fetcher.PartitionRecords(tp, fetcher.MemoryRecords(bytes(raw)), [], first, None, None, True, 0)
    assignment = SimpleNamespace(
        active=True,
        tps=[tp],
        state_value=lambda _tp: SimpleNamespace(
            paused=False, has_valid_position=True, position=first, consumed_to=lambda _offset: None
        ),
    )
    return fetcher.FetchResult(tp, assignment=assignment, partition_records=unpacked, backoff=0)


def test_records_are_ours_from_the_first_fetch_on() -> None:
    """Also those that were fetched before anybody asked; an error is passed on as it is."""

    async def talk() -> None:
        bench = Bench({}, {})
        thread = bench.consumer._new_consumer_thread()
        thread.thread_loop.close()
        error = fetcher.FetchError(error=ValueError("broken"), backoff=0)
        many: list[bytes | None] = [None, *[b"a"] * LEAST_WALKED]
        early, late = fetched(5, many), fetched(7, [b"b"] * LEAST_WALKED)

        class Fetcher:
            _closed = False
            _subscriptions = SimpleNamespace(fetch_context=nullcontext)

            def __init__(self) -> None:
                self._records: Any = OrderedDict({TP(TOPIC, 0): early, TP(TOPIC, 1): error})

            async def fetched_records(self, _active: Any, **_options: Any) -> dict[TP, Any]:
                self._records[TP(TOPIC, 2)] = late
                return {tp: result.getall() for tp, result in self._records.items() if result is not error}

        consumer = SimpleNamespace(_fetcher=Fetcher(), _closed=False)
        found = await thread._fetch_records(consumer, None, timeout=0.0)
        assert {tp: list(RunRecords(runs)) for tp, runs in found.items()} == {
            TP(TOPIC, 0): [Record(5 + number, 1_000 + number, value) for number, value in enumerate(many)],
            TP(TOPIC, 2): [Record(7 + number, 1_000 + number, b"b") for number in range(LEAST_WALKED)],
        }
        assert all(isinstance(run, RecordRun) for runs in found.values() for run in runs)
        assert consumer._fetcher._records[TP(TOPIC, 1)] is error

    asyncio.run(talk())
