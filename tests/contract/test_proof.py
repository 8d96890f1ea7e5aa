"""Proofs of estimates on the store in memory and on a real Redis: what they contain is what they say, and no less."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from estimators.tally import Tally
from producers.survey.survey import Survey
from producers.wire.shards import partition_of
from streams.kafka.messages import FetchBatch, Record
from streams.repair.rebuild import Rebuilder
from streams.store.contract import Store
from streams.store.shape import Key, Shape
from streams.store.shard_counts import ShardCounts
from streams.windows.counted import Counted, ReportsTopic, WindowCounts
from streams.windows.proof import Proof, tally_hash
from streams.worker.applier import Applier
from streams.worker.table import Table
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock
from tests.support.plain_table import PlainTable
from tests.support.rebuild import PARTITIONS, Topic, applier_on
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    WINDOW_MS,
    Report,
    SurveyDict,
    messages_of,
    of_window,
    oracle,
    packed,
    random_reports,
    shard_of,
    token_in,
)

CLOCK = ManualClock(NOW_MS)


def reader(store: Store, *, since_ms: int | None = None) -> WindowCounts:
    """Return what reads counts, with no memory of what it read before."""
    reports = ReportsTopic(TOPIC, PARTITIONS, since_ms=since_ms)
    return WindowCounts(store, reports, fold=Table.of_log, clock=CLOCK, metrics=worker_metrics())


def counted(store: Store, survey: Survey = CATEGORICAL, window_ms: int = WINDOW) -> Counted:
    return reader(store).read(survey, window_ms)


def proof(store: Store, survey: Survey = CATEGORICAL, window_ms: int = WINDOW) -> Proof:
    found = counted(store, survey, window_ms)
    assert found.proof is not None
    assert found.whole
    return found.proof


def winners_by_hand(survey: Survey, reports: Iterable[Report]) -> str:
    """Return what docs/verify.md says the hash of the winning reports is, without the project's table or sort."""
    shape = Shape.of(survey)
    shards: list[list[Report]] = [[] for _ in range(survey.shards)]
    for report in reports:
        shards[shard_of(report.token, survey)].append(report)
    total = hashlib.sha256(b"winning reports 1\n")
    for some in shards:
        table = PlainTable(shape)
        table.fold(packed(survey, some))
        live, size = table.live(), shape.entry_bytes
        entries = sorted(live[at : at + size] for at in range(0, len(live), size))
        total.update(hashlib.sha256(b"".join(entries)).digest())
    return total.hexdigest()


def batches(topic: Topic, *, first: int = 0) -> list[FetchBatch]:
    return topic.batches([first] * PARTITIONS)


@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_hashes_do_not_depend_on_order_repetition_or_the_split_over_workers(store: Store, survey: Survey) -> None:
    reports = random_reports(survey, users=30, count=120, rng=random.Random(3))
    for story in range(4):
        rng, window_ms = random.Random(story), WINDOW - story * WINDOW_MS
        own = of_window(survey, reports, window_ms)
        expected = tally_hash(oracle(survey, own)), winners_by_hand(survey, own)
        sent = own * (1 + story % 2)
        rng.shuffle(sent)
        topic = Topic()
        for start in range(0, len(sent), 17):
            topic.send(survey, sent[start : start + 17], window_ms=window_ms)
        workers = [applier_on(store, survey, CLOCK) for _ in range(1 + story)]
        for batch in batches(topic):
            rng.choice(workers).process([batch])
        found = proof(store, survey, window_ms)
        assert (found.tally, found.winners) == expected
        # A worker that reads everything once more changes nothing.
        applier_on(store, survey, CLOCK).process(batches(topic))
        assert proof(store, survey, window_ms) == found


def everyone(users: int = 12) -> list[Report]:
    return [Report(token_in(user % 4, user, CATEGORICAL), user % 3, bytes([user % 5])) for user in range(users)]


def content(reports: Sequence[Report]) -> Table:
    made = Table(Shape.of(CATEGORICAL))
    made.fold(packed(CATEGORICAL, reports))
    return made


def test_a_changed_answer_a_dropped_token_and_exchanged_tokens_change_the_hashes(store: Store) -> None:
    reports = everyone()
    topic = Topic()
    topic.send(CATEGORICAL, reports)
    applier_on(store, CATEGORICAL, CLOCK).process(batches(topic))
    right = proof(store)
    key = Key(CATEGORICAL.id, WINDOW, 0)
    mine = [report for report in reports if shard_of(report.token, CATEGORICAL) == 0]
    one, other = mine[0], mine[1]
    assert (one.rung, one.answer) != (other.rung, other.answer)
    lies = {
        "changed answer": [one._replace(answer=b"\4"), *mine[1:]],
        "changed rung": [one._replace(rung=3), *mine[1:]],
        "dropped token": mine[1:],
        "token added": [*mine, Report(token_in(0, 99, CATEGORICAL), 0, b"\0")],
        "exchanged tokens": [one._replace(token=other.token), other._replace(token=one.token), *mine[2:]],
    }
    for name, lie in lies.items():
        assert store.log.replace(key, store.log.seen([key])[key], content(lie), limit=1)
        found = proof(store)
        assert found.winners not in (None, right.winners), name
        # Exchanged tokens are all that the counts alone do not show.
        assert (found.tally == right.tally) == (name == "exchanged tokens"), name
    assert store.log.replace(key, store.log.seen([key])[key], content(mine), limit=1)
    assert proof(store) == right


def test_offsets_are_those_of_the_counts_shard_by_shard(store: Store) -> None:
    topic = Topic()
    for start in range(0, 12, 3):
        topic.send(CATEGORICAL, everyone()[start : start + 3])
    worker = applier_on(store, CATEGORICAL, CLOCK)
    for batch in batches(topic):
        worker.process([batch])
        found = counted(store)
        assert found.proof is not None
        below = [
            report
            for shard in range(CATEGORICAL.shards)
            for report in sent_below(topic, shard, found.proof.offset(shard))
        ]
        assert found.tally == oracle(CATEGORICAL, below)
        assert found.proof.winners == winners_by_hand(CATEGORICAL, below)


def sent_below(topic: Topic, shard: int, offset: int) -> list[Report]:
    """Return the reports of a shard below an offset, as `Topic.send` of everyone three at a time put them."""
    sent = everyone()
    held: dict[int, list[list[Report]]] = {}
    for start in range(0, 12, 3):
        by_partition: dict[int, list[Report]] = {}
        for report in sent[start : start + 3]:
            by_partition.setdefault(partition_of(shard_of(report.token, CATEGORICAL), PARTITIONS), []).append(report)
        for partition, some in by_partition.items():
            held.setdefault(partition, []).append(some)
    partition = partition_of(shard, PARTITIONS)
    assert len(topic.log[partition]) == len(held[partition])
    reports = [report for some in held[partition][:offset] for report in some]
    return [report for report in reports if shard_of(report.token, CATEGORICAL) == shard]


def test_what_a_revoked_worker_counts_is_proved_when_its_successor_has_read_it_too(store: Store) -> None:
    topic = Topic()
    topic.send(CATEGORICAL, everyone(8))
    topic.send(CATEGORICAL, everyone(12)[8:])
    applier_on(store, CATEGORICAL, CLOCK).process(batches(topic)[::2])
    assert proof(store).offsets == [1, 1]
    revoked = applier_on(store, CATEGORICAL, CLOCK)
    revoked.revoked(TOPIC, range(PARTITIONS))
    revoked.process(batches(topic, first=1))
    found = counted(store)
    assert found.tally.total_users == 12
    assert (found.proof, found.whole) == (None, False)
    applier_on(store, CATEGORICAL, CLOCK).process(batches(topic))
    assert proof(store).offsets == [2, 2]
    assert proof(store).winners == winners_by_hand(CATEGORICAL, everyone())


def test_a_rebuilt_window_is_proved_when_workers_have_read_as_far(store: Store) -> None:
    topic = Topic()
    topic.send(CATEGORICAL, everyone(8))
    worker = applier_on(store, CATEGORICAL, CLOCK)
    worker.process(batches(topic))
    topic.send(CATEGORICAL, everyone(12)[8:])
    rebuilder = Rebuilder(store, topic, CATEGORICAL, partitions=PARTITIONS, clock=CLOCK, window_ms=WINDOW)
    assert [count.status for count in rebuilder.run(replace=True)] == ["replaced"]
    assert counted(store).proof is None
    worker.process(batches(topic, first=1))
    assert proof(store).winners == winners_by_hand(CATEGORICAL, everyone())


def test_counts_of_unknown_origin_carry_no_proof(store: Store) -> None:
    """As logs of versions that noted no limit, and rebuilds of a topic that has lost its beginning."""
    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    worker = applier_on(store, CATEGORICAL, CLOCK)
    worker.process(batches(topic))
    key = Key(CATEGORICAL.id, WINDOW, 0)
    mine = [report for report in everyone() if shard_of(report.token, CATEGORICAL) == 0]
    assert store.log.replace(key, store.log.seen([key])[key], content(mine))
    found = counted(store)
    assert (found.proof, found.whole) == (None, True)
    # What is added to them does not make them known.
    topic.send(CATEGORICAL, [Report(token_in(0, 50, CATEGORICAL), 0, b"\1")])
    worker.process(topic.batches([1, len(topic.log[1])]))
    found = counted(store)
    assert found.tally.total_users == 13
    assert (found.proof, found.whole) == (None, True)


def test_windows_from_before_the_topic_was_made_again_carry_no_proof(store: Store) -> None:
    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    applier_on(store, CATEGORICAL, CLOCK).process(batches(topic))
    first_possible_ms = WINDOW - CATEGORICAL.skew_ms
    assert reader(store, since_ms=first_possible_ms + 1).read(CATEGORICAL, WINDOW).proof is None
    assert reader(store, since_ms=first_possible_ms).read(CATEGORICAL, WINDOW).proof == proof(store)


def test_a_window_without_reports_has_the_hash_of_nothing(store: Store) -> None:
    assert proof(store).winners == winners_by_hand(CATEGORICAL, [])
    assert proof(store).tally == tally_hash(Tally.empty(4, 1, 5))


def test_only_logs_that_changed_are_read_again(store: Store) -> None:
    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    worker = applier_on(store, CATEGORICAL, CLOCK)
    worker.process(batches(topic))
    folded: list[int] = []

    def fold(shape: Shape, entries: bytes) -> Table:
        folded.append(len(entries))
        return Table.of_log(shape, entries)

    counts = WindowCounts(store, ReportsTopic(TOPIC, PARTITIONS), fold=fold, clock=CLOCK, metrics=worker_metrics())
    for expected in (4, 0):
        folded.clear()
        assert counts.read(CATEGORICAL, WINDOW).proof == proof(store)
        assert len(folded) == expected
    topic.send(CATEGORICAL, [Report(token_in(2, 77, CATEGORICAL), 0, b"\1")])
    worker.process(topic.batches([1, 1]))
    folded.clear()
    assert counts.read(CATEGORICAL, WINDOW).proof == proof(store)
    assert len(folded) == 1


def test_a_log_that_changed_while_it_was_read_is_hashed_at_a_later_tick(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    applier_on(store, CATEGORICAL, CLOCK).process(batches(topic))
    expected, counts, right = proof(store), reader(store), store.estimates.counts

    def changed(*place: Any, **options: Any) -> list[ShardCounts]:
        first, *others = right(*place, **options)
        return [replace(first, entries=None, changed=True), *others]

    with monkeypatch.context() as during:
        during.setattr(store.estimates, "counts", changed)
        found = counts.read(CATEGORICAL, WINDOW)
    assert found.proof == msgspec.structs.replace(expected, winners=None)
    assert (found.tally.total_users, found.whole) == (12, False)
    found = counts.read(CATEGORICAL, WINDOW)
    assert (found.proof, found.whole) == (expected, True)


def test_the_hash_of_the_winners_is_taken_less_often_where_it_takes_long(store: Store) -> None:
    clock = ManualClock(NOW_MS)

    def slow(shape: Shape, entries: bytes) -> Table:
        clock.advance(100)
        return Table.of_log(shape, entries)

    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    worker = applier_on(store, CATEGORICAL, CLOCK)
    worker.process(batches(topic))
    counts = WindowCounts(store, ReportsTopic(TOPIC, PARTITIONS), fold=slow, clock=clock, metrics=worker_metrics())

    def read() -> tuple[bool, bool]:
        found = counts.read(CATEGORICAL, WINDOW)
        assert found.proof is not None
        return found.proof.winners is not None, found.whole

    assert read() == (True, True)
    # Four logs took 0.4 s: a tenth of the time is 4 s, of which 0.4 are over.
    clock.advance(3_599)
    assert read() == (False, False)
    clock.advance(1)
    assert read() == (True, True)
    # Nothing had changed, so that took no time.
    assert read() == (True, True)
    assert counts.read(CATEGORICAL, WINDOW).proof == proof(store)


def test_a_worker_notes_the_limit_of_each_batch(store: Store) -> None:
    applier: Applier = applier_on(store, CATEGORICAL, CLOCK)
    topic = Topic()
    topic.send(CATEGORICAL, everyone())
    [first, *_] = batches(topic)
    applier.process([replace(first, next_offset=7)])
    counts = store.estimates.counts(CATEGORICAL.id, WINDOW, Shape.of(CATEGORICAL), topic=TOPIC, partitions=PARTITIONS)
    assert [(shard.limit, shard.offset, shard.exact) for shard in counts] == [
        (7, 7, True),
        (None, 0, True),
        (7, 7, True),
        (None, 0, True),
    ]


def test_a_window_that_two_topics_are_counted_into_has_no_proof_then_or_later(store: Store) -> None:
    reports = everyone()
    topic, other = Topic(), [FetchBatch("other", 0, 0, 1, batches_of_all(reports[6:]))]
    topic.send(CATEGORICAL, reports[:6])
    alone = applier_on(store, CATEGORICAL, CLOCK)
    alone.process(batches(topic))
    assert counted(store).proof is not None
    both = Applier(
        store,
        SurveyDict(CATEGORICAL),
        lambda _: None,
        partitions=PARTITIONS,
        draining={"other": 1},
        clock=CLOCK,
    )
    both.assigned("other", {0: None})
    both.process(other)
    assert counted(store).tally == oracle(CATEGORICAL, reports)
    assert counted(store).proof is None
    # The topic with its own number of partitions is still counted by others, and their offsets say nothing now.
    topic.send(CATEGORICAL, [Report(token_in(0, 99, CATEGORICAL), 0, b"\0")])
    alone.process(batches(topic))
    assert counted(store).proof is None
    assert store.log.offsets("other", 0, range(4)) == dict.fromkeys(range(4), 1), "all shards lie in its one partition"


def batches_of_all(reports: Sequence[Report]) -> list[Record]:
    """Return the record that holds these reports where a topic has one partition."""
    [message] = messages_of(CATEGORICAL, reports, partitions=1).values()
    return [Record(0, NOW_MS, message)]
