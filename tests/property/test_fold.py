"""The tally is a function of the set of reports, whatever happens to them and to the store on the way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.tally import Tally
from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.layout import HEADER_BYTES
from streams.store.shape import Key, Shape
from streams.worker import kernels
from streams.worker.applier import Applier
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired
from streams.worker.table import Table
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.plain_table import PlainTable
from tests.support.reports import (
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    WINDOW_MS,
    Report,
    SurveyDict,
    TwoPlanes,
    batch_of,
    messages_of,
    of_window,
    oracle,
    packed,
    token_in,
    withdrawal,
)

PARTITIONS = 2
WINDOWS = (WINDOW - WINDOW_MS, WINDOW)


@st.composite
def report_lists(draw: st.DrawFn, survey: Survey, shard: int | None = None, least: int = 0) -> list[Report]:
    """Reports of a handful of users, so that most of them repeat or contradict an earlier one."""
    answer = survey.mechanism.answer
    numbers = st.integers(0, (answer.size if answer.kind == "index" else 1 << answer.size) - 1)
    if isinstance(survey.mechanism, TwoPlanes):
        numbers = numbers.map(lambda bits: bits & ~(~bits << answer.size // 2))
    some = st.builds(
        lambda user, rung, number, group: Report(
            token_in(user % survey.shards if shard is None else shard, user, survey),
            rung,
            number.to_bytes(answer.width, "little"),
            group,
        ),
        st.integers(0, 7),
        st.integers(0, survey.mechanism.rungs - 1 + survey.withdrawable),
        numbers,
        st.integers(0, survey.mechanism.groups - 1),
    ).map(lambda report: withdrawal(survey, report.token) if report.rung == survey.mechanism.rungs else report)
    return draw(st.lists(some, min_size=least, max_size=30))


surveys = st.sampled_from(SURVEYS)


@given(st.data(), surveys)
def test_any_order_and_any_repetition_give_the_oracles_tally(data: st.DataObject, survey: Survey) -> None:
    reports = data.draw(report_lists(survey, shard=0))
    again = data.draw(st.lists(st.sampled_from(reports))) if reports else []
    sent = data.draw(st.permutations(reports + again))
    cut = data.draw(st.integers(0, len(sent)))
    for make in (Table, PlainTable):
        table = make(Shape.of(survey))
        table.fold(packed(survey, sent[:cut]))
        table.fold(packed(survey, sent[cut:]))
        assert table.tally() == oracle(survey, reports)


class Op(NamedTuple):
    """What happens next to one of two workers, or to the store they share."""

    what: str
    worker: int
    amount: int


ops = st.lists(
    st.builds(
        Op,
        st.sampled_from(["read", "read", "read", "crash", "save", "lose", "lose inside", "cut", "kill", "revoke"]),
        st.integers(0, 1),
        st.integers(1, 3),
    ),
    min_size=10,
    max_size=40,
)


def _no_letters(letters: Sequence[DeadLetter]) -> None:
    raise AssertionError(f"good reports were refused: {letters}")


class Killed(BaseException):
    """The process ended here."""


class World:
    """A topic, a store that can lose what it was told last, and two workers that both read everything.

    Worker 0 is the owner of all partitions: what it has read is committed to Kafka, as the worker does after `process`.
    Worker 1 is a zombie: its commits are refused, and it may or may not know that it has lost its partitions.
    """

    def __init__(self, survey: Survey, batches: Sequence[Sequence[Report]]) -> None:
        self.survey, self.clock = survey, ManualClock(NOW_MS)
        self.store = MemoryStore(self.clock)
        self.saved = self.store.snapshot()
        self.topic: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for number, reports in enumerate(batches):
            window_ms = WINDOWS[number % 2]
            own = of_window(survey, reports, window_ms)
            for partition, message in messages_of(survey, own, partitions=PARTITIONS, window_ms=window_ms).items():
                self.topic[partition].append(message)
        self.committed: dict[int, int | None] = dict.fromkeys(range(PARTITIONS))
        self.plan: list[tuple[str, str]] = []
        self.workers = [self.start(), self.start()]

    def start(self) -> tuple[Applier, dict[int, int]]:
        store = FaultyStore(self.store, self.lost)
        applier = Applier(
            store,
            SurveyDict(self.survey),
            _no_letters,
            partitions=PARTITIONS,
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        applier._shards = self.survey.shards  # idle shards would only take time here
        return applier, applier.assigned(TOPIC, self.committed)

    def lost(self, method: str, when: str) -> bool:
        """Lose the connection just before or after the next `apply`, or die there, or let the store lose its memory."""
        if method != "log.apply" or not self.plan or self.plan[0][1] != when:
            return False
        what = self.plan.pop(0)[0]
        if what == "kill":
            raise Killed
        if what == "lose inside":
            self.store.restore(self.saved)
        return what == "cut"

    def read(self, worker: int, count: int) -> None:
        applier, positions = self.workers[worker]
        batches = [
            batch_of(*self.topic[partition][start : start + count], partition=partition, start=start)
            for partition, start in positions.items()
        ]
        try:
            applier.process(batches)
        except (RestartRequired, Killed):
            self.workers[worker] = self.start()
        else:
            positions |= {batch.partition: batch.next_offset for batch in batches}
            if worker == 0:
                self.committed = dict(positions)

    def do(self, op: Op) -> None:
        match op.what:
            case "read":
                self.read(op.worker, op.amount)
            case "crash":
                self.workers[op.worker] = self.start()
            case "save":
                self.saved = self.store.snapshot()
            case "lose":
                self.store.restore(self.saved)
            case "cut" | "kill" | "lose inside":
                self.plan.append((op.what, "before" if op.amount == 1 else "after"))
            case "revoke":
                self.workers[1][0].revoked(TOPIC, [op.amount % PARTITIONS])

    def finish(self) -> None:
        """Let the owner read to the end; if it finds the store behind, it starts again where the store is."""
        ends = dict(enumerate(map(len, self.topic)))
        while self.plan or self.workers[0][1] != ends or self.regressed():
            self.read(0, max(ends.values()))

    def regressed(self) -> bool:
        try:
            self.workers[0][0].verify()
        except (RestartRequired, Killed):
            self.workers[0] = self.start()
            return True
        return False


@settings(max_examples=200)
@given(st.data(), surveys, ops)
def test_crashes_zombies_and_lost_seconds_give_the_oracles_tally(
    data: st.DataObject, survey: Survey, script: list[Op]
) -> None:
    reports = data.draw(report_lists(survey, least=12))
    sent = data.draw(st.permutations(reports + reports[::2]))
    size = data.draw(st.integers(1, 3))
    batches = [sent[start : start + size] for start in range(0, len(sent), size)]
    world = World(survey, batches)
    for op in script:
        world.do(op)
    world.finish()
    shape = Shape.of(survey)
    for number, window_ms in enumerate(WINDOWS):
        expected = oracle(survey, of_window(survey, itertools.chain(*batches[number::2]), window_ms))
        assert world.store.estimates.tally(survey.id, window_ms, survey.shards, shape) == expected
        logs = world.store.log.load(
            [Key(survey.id, window_ms, shard) for shard in range(survey.shards)], shape, Table.of_log
        ).values()
        assert sum((log.content.tally() for log in logs), Tally.empty(*expected.shape)) == expected


def scan(messages: Sequence[bytes]) -> list[tuple[object, ...]]:
    starts, lengths, joined = [], [], b""
    for message in messages:
        starts.append(len(joined))
        lengths.append(len(message))
        joined += message + bytes(-len(message) % 8)
    room = sum(lengths) // HEADER_BYTES + len(messages)
    frames, digests = np.zeros((room, kernels.FRAME_FIELDS), np.int64), np.zeros(room, np.uint64)
    rows = kernels.scan_frames(
        np.frombuffer(joined, np.uint64), np.array(starts, np.int64), np.array(lengths, np.int64), frames, digests
    )
    found: list[tuple[object, ...]] = []
    for row, digest in zip(frames[:rows].tolist(), digests[:rows].tolist(), strict=True):
        message, fault = row[kernels.MESSAGE], kernels.FAULTS[row[kernels.FAULT]]
        start = row[kernels.START] - starts[message]
        if fault:
            resume = start + row[kernels.LENGTH]
            found.append((message, fault, resume if fault in ("version", "count") else None))
        else:
            rest = (row[kernels.WINDOW_MS], row[kernels.SENT_MS], row[kernels.SHARD], row[kernels.COUNT])
            found.append((message, digest.to_bytes(8, "little"), *rest, start, row[kernels.LENGTH]))
    return found


def walk(messages: Sequence[bytes]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for number, message in enumerate(messages):
        for item in wire.headers(message):
            if isinstance(item, wire.FrameError):
                found.append((number, item.reason, item.resume))
            else:
                rest = (item.window_ms, item.sent_ms, item.shard, item.count)
                found.append((number, item.digest, *rest, item.start, item.length))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Frames with some bytes overwritten and the end cut off, or plain noise."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=120))
    survey = draw(surveys)
    reports = draw(report_lists(survey, shard=0))
    frames = messages_of(survey, reports[:3], partitions=1).get(0, b"") * draw(st.integers(1, 3))
    raw = bytearray(frames)
    for position, value in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)):
        if position < len(raw):
            raw[position] = value
    return bytes(raw[: draw(st.integers(0, len(raw))) if draw(st.booleans()) else None])


@given(st.lists(damaged(), max_size=4))
def test_the_compiled_walk_over_frames_sees_what_the_plain_one_sees(messages: list[bytes]) -> None:
    assert scan(messages) == walk(messages)
