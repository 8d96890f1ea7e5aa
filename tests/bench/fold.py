"""How fast messages become counts: check, fold and apply, with a store in memory or a real Redis, without Kafka.

`python -m tests.bench.fold [REDIS_URL]` prints reports per second; `results` compares them with the plain twin of the
compiled table, to tell how much of a worker's time is left to Kafka and Redis.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.shards import partition_of, shards_of
from streams.kafka.messages import FetchBatch, Record
from streams.store.contract import Store
from streams.store.redis import RedisStore
from streams.worker.applier import Applier
from streams.worker.fold import DeadLetter, warm_up
from streams.worker.table import Table
from tests.bench.goals import Measured, Result, Series
from tests.support.memory_store import MemoryStore
from tests.support.plain_table import PlainTable
from tests.support.reports import NOW_MS, TOPIC, WINDOW, AnyAnswer, SurveyDict, survey_of

SURVEY = survey_of(AnyAnswer("index", 100, rungs=5), name="bench", shards=64)
BITS = 64
BIT_SURVEY = survey_of(AnyAnswer("bits", BITS, rungs=5), name="bench-bits", shards=64)
PARTITIONS = 8
MESSAGES_PER_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Rates:
    """Reports per second, the first time the users are seen and when they climb a rung."""

    reports_per_message: int
    new_users_per_second: float
    climbing_per_second: float


def messages(users: int, per_message: int, rung: int, seed: int = 1, survey: Survey = SURVEY) -> dict[int, list[bytes]]:
    """Return messages of one frame each, by partition; the same users for every rung."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 256, size=(users, 16), dtype=np.uint8)
    answer = survey.mechanism.answer
    width, limit = (answer.width, 256) if answer.kind == "bits" else (1, answer.size)
    answers = np.random.default_rng([seed, rung]).integers(0, limit, size=(users, width), dtype=np.uint8)
    shards = shards_of(tokens, survey.shards)
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for shard in range(survey.shards):
        mine = np.flatnonzero(shards == shard)
        for start in range(0, len(mine), per_message):
            some = mine[start : start + per_message]
            columns = wire.Reports(tokens[some], answers[some], np.full(len(some), rung, np.uint8), None)
            frame = wire.encode(survey.digest, WINDOW, NOW_MS, shard, columns, survey.layout)
            found[partition_of(shard, PARTITIONS)].append(frame)
    # Frames of one shard do not come one after the other from a fleet.
    for partition in found.values():
        rng.shuffle(partition)
    return found


def batches(found: dict[int, list[bytes]], start: int) -> list[list[FetchBatch]]:
    """Cut messages into what one fetch brings: about a MiB of each partition."""
    rounds: list[list[FetchBatch]] = []
    for partition, values in found.items():
        size = max(1, MESSAGES_PER_BATCH_BYTES // len(values[0]))
        for number, first in enumerate(range(0, len(values), size)):
            records = [Record(start + first + i, NOW_MS, value) for i, value in enumerate(values[first : first + size])]
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(FetchBatch(TOPIC, partition, start + first, start + first + len(records), records))
    return rounds


def refuse(letters: Sequence[DeadLetter]) -> None:
    """Fail: the reports of a benchmark are all good."""
    raise AssertionError(letters[0].reason)


def rates(store: Store, per_message: int, *, users: int = 500_000, table: type[Table] = Table) -> Rates:
    """Measure one worker on a fresh store."""
    warm_up()
    applier = Applier(store, SurveyDict(SURVEY), refuse, partitions=PARTITIONS, clock=lambda: NOW_MS, table=table)
    applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    speeds = []
    for rung in (0, 1, 2):
        work = batches(messages(users, per_message, rung), start=rung * users)
        begin = time.perf_counter()
        applied = sum(applier.process(batch).counters.applied for batch in work)
        speeds.append(users / (time.perf_counter() - begin))
        if applied != users:
            raise AssertionError(f"expected {users} reports to be applied; got {applied}")
    return Rates(per_message, speeds[0], max(speeds[1:]))


def beside_bits(*, users: int = 200_000, rounds: int = 5) -> tuple[float, float]:
    """Return how many categorical reports one worker counts per CPU second, beside a survey of bit vectors and alone.

    Both workers get the same categorical batches; the first one gets as many bit vectors between them, whose own time
    is not counted. CPU seconds, measured in turns, the least of each. That the work is the same is a test
    (tests/unit/streams/worker/test_beside_bits.py); what is left is the processor's cache.
    """
    warm_up()
    best = {True: float("inf"), False: float("inf")}
    for number in range(rounds):
        for with_bits in (True, False):
            applier = Applier(
                MemoryStore(lambda: NOW_MS),
                SurveyDict(SURVEY, BIT_SURVEY),
                refuse,
                partitions=PARTITIONS,
                clock=lambda: NOW_MS,
            )
            applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
            offset, spent = 0, 0.0
            for rung in (0, 1, 2):
                work = batches(messages(users, 1_000, rung, number), start=offset)
                offset += users
                other = batches(messages(users, 1_000, rung, number, BIT_SURVEY), start=offset) if with_bits else []
                offset += users
                begin = time.process_time()
                applied = sum(applier.process(batch).counters.applied for batch in work)
                spent += time.process_time() - begin
                applied += sum(applier.process(batch).counters.applied for batch in other)
                if applied != users * (1 + with_bits):
                    raise AssertionError(f"expected {users * (1 + with_bits)} reports to be applied; got {applied}")
            best[with_bits] = min(best[with_bits], spent)
    return 3 * users / best[True], 3 * users / best[False]


def results() -> Iterator[Measured]:
    """Compare how fast reports are counted in memory: beside bit vectors or without them, and beside plain Python."""
    beside, alone = beside_bits()
    yield Result("fold-beside-bits", beside / 1e6, "M per CPU-s", "without bit vectors", alone / 1e6, least_ratio=0.8)
    for per_message, users in ((1_000, 500_000), (1, 100_000)):
        ours = rates(MemoryStore(lambda: NOW_MS), per_message, users=users)
        plain = rates(MemoryStore(lambda: NOW_MS), per_message, users=50_000, table=PlainTable)
        yield Result(
            f"fold-{per_message}",
            ours.climbing_per_second / 1e6,
            "M/s",
            "plain Python twin",
            plain.climbing_per_second / 1e6,
        )
    points = [
        (float(users), 1e6 / rates(MemoryStore(lambda: NOW_MS), 1_000, users=users).climbing_per_second)
        for users in (10_000, 100_000, 1_000_000)
    ]
    yield Series("users", "counting, without Kafka and Redis", points)


def main(arguments: list[str]) -> None:
    """Print the rates for messages of several sizes."""
    for per_message in (1, 100, 1_000):
        users = 500_000 if per_message > 1 else 100_000

        def make() -> Store:
            if arguments:
                return RedisStore.connect(arguments[0], prefix=f"bench{secrets.token_hex(4)}:")
            return MemoryStore(lambda: NOW_MS)

        measured = rates(make(), per_message, users=users)
        print(
            f"{per_message:>6} reports a message: {measured.new_users_per_second / 1e6:5.2f} M/s new, "
            f"{measured.climbing_per_second / 1e6:5.2f} M/s climbing"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
