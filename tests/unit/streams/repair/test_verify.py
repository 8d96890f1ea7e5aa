"""Checking stored estimates against the topic: equal, different in what, and what cannot be said."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from producers.survey.survey import Survey
from streams.cli.terminal.verdicts import closing_line
from streams.cli.verify import as_data
from streams.kafka.messages import FetchBatch, Outgoing, Record
from streams.repair.verify import Verdict, Verifier, published, stored
from streams.store.shape import Key, Shape
from streams.windows.counted import ReportsTopic
from streams.windows.recompute import Recomputer
from streams.windows.record import EstimateRecord, decode_estimate
from streams.worker.table import Table
from tests.support.rebuild import PARTITIONS, Bench, Topic
from tests.support.reports import TOPIC, WINDOW, WINDOW_MS, Report, SurveyDict, random_reports
from tests.support.surveys import INDEPENDENT, survey

COLOUR = survey()
ONE_MORE = (16, 40)
"""Where a stored tally of three rungs holds the users of the first, and how many of them gave the first answer."""


class Collector(Bench):
    """A topic, a worker that counts and estimates, and somebody who checks."""

    def __init__(self, known: Survey = COLOUR) -> None:
        super().__init__(known)
        self.published: list[Outgoing] = []
        self.recomputer = Recomputer(
            self.store,
            SurveyDict(known),
            self.published.extend,
            "estimates",
            ReportsTopic(TOPIC, PARTITIONS, "one"),
            fold=Table.of_log,
            clock=self.clock,
        )

    def send(self, count: int = 60, *, seed: int = 1, window_ms: int = WINDOW) -> None:
        reports = random_reports(self.survey, users=30, count=count, rng=random.Random(seed))
        for start in range(0, count, 7):
            self.topic.send(self.survey, reports[start : start + 7], window_ms=window_ms)

    def estimate(self) -> None:
        self.work()
        self.recomputer.tick()
        self.clock.advance(1_000)

    def records(self) -> list[EstimateRecord]:
        return list(stored(self.store.estimates, [self.survey]).values())

    def verify(
        self, records: list[EstimateRecord] | None = None, *, known: Survey | None = None, topic_id: str = "one"
    ) -> list[Verdict]:
        self.topic.rewind()
        verifier = Verifier(
            self.topic, known or self.survey, partitions=PARTITIONS, topic_id=topic_id, clock=self.clock
        )
        return verifier.run(self.records() if records is None else records)


def changed(record: EstimateRecord, **fields: object) -> EstimateRecord:
    return msgspec.structs.replace(record, **fields)


@pytest.mark.parametrize("lifetime", ["lifetime = 100", INDEPENDENT], ids=["any", "independent"])
def test_every_window_is_checked_up_to_its_own_offsets(lifetime: str) -> None:
    collector = Collector(survey(lifetime=lifetime))
    for window in range(3):
        collector.send(seed=window, window_ms=WINDOW - window * WINDOW_MS)
        collector.estimate()
    offsets = {tuple(record.proof.offsets) for record in collector.records() if record.proof is not None}
    assert len(offsets) == 3
    # Late reports of all windows that no estimate contains yet.
    for window in range(3):
        collector.send(seed=9, window_ms=WINDOW - window * WINDOW_MS)
    found = collector.verify()
    assert [(verdict.window_ms, verdict.status, verdict.winners, verdict.identical) for verdict in found] == [
        (WINDOW - window * WINDOW_MS, "equal", True, True) for window in (2, 1, 0)
    ]
    assert closing_line(found) == "3 windows: 3 equal"
    before = collector.records()
    collector.estimate()
    assert collector.records() != before
    assert {verdict.status for verdict in collector.verify()} == {"equal"}
    # An old estimate can be checked as long as the topic has its reports.
    assert {verdict.status for verdict in collector.verify(before)} == {"equal"}


def test_the_newest_published_estimate_of_every_window_is_checked() -> None:
    collector = Collector()
    for seed in range(3):
        collector.send(seed=seed)
        collector.estimate()
    assert len(collector.published) == 3
    payloads = [message.value for message in collector.published]
    other = Topic()
    values = [payloads[2], payloads[0], b"no estimate", None]
    batch = FetchBatch("estimates", 0, 0, 4, [Record(at, 0, value) for at, value in enumerate(values)])
    other.read = lambda: iter([[batch]])  # type: ignore[method-assign]
    found = published(other)
    assert found == {(COLOUR.id, WINDOW): decode_estimate(payloads[2])}
    assert [verdict.status for verdict in collector.verify(list(found.values()))] == ["equal"]


def test_a_forged_log_is_named() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    shape, key = Shape.of(COLOUR), Key(COLOUR.id, WINDOW, 1)
    forged = Table.of_log(shape, collector.store.log.load([key], shape, Table.of_log, whole=True)[key].entries)
    entries = bytearray(forged.live())
    entries[14] = (entries[14] + 1) % 3
    limit = len(collector.topic.log[1])
    seen = collector.store.log.seen([key])[key]
    assert collector.store.log.replace(key, seen, Table.of_log(shape, bytes(entries)), limit=limit)
    collector.store.queue.put([(COLOUR.id, WINDOW)])
    collector.estimate()
    [found] = collector.verify()
    assert (found.status, set(found.differences)) == ("different", {"tally", "winners", "estimate"})
    assert "recounted" in found.differences["estimate"]
    assert closing_line([found]) == "1 windows: 1 different"


def test_a_count_that_was_doubled_is_named() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    key = Key(COLOUR.id, WINDOW, 1)
    tally = collector.store.stored_tally(key)
    for place in ONE_MORE:
        tally[place : place + 8] = (int.from_bytes(tally[place : place + 8], "little") + 1).to_bytes(8, "little")
    collector.store.queue.put([(COLOUR.id, WINDOW)])
    collector.estimate()
    [found] = collector.verify()
    assert (found.status, set(found.differences)) == ("different", {"tally", "estimate"})
    assert found.differences["tally"] == f"counted for {found.users} users; the topic has {found.users - 1}"


def test_a_changed_estimate_is_named_and_the_last_digits_are_not() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    [record] = collector.records()
    first, *others = record.values
    assert first.estimate is not None
    lie = changed(record, values=[msgspec.structs.replace(first, estimate=first.estimate + 1e-6), *others])
    [found] = collector.verify([lie])
    assert (found.status, list(found.differences)) == ("different", ["estimate"])
    assert found.differences["estimate"].startswith("values[red].estimate is ")
    rounded = changed(record, values=[msgspec.structs.replace(first, estimate=first.estimate * (1 + 1e-12)), *others])
    [found] = collector.verify([rounded])
    assert (found.status, found.identical) == ("equal", False)
    for lie in (changed(record, users=record.users + 1), changed(record, notes=["x"]), changed(record, values=others)):
        assert list(collector.verify([lie])[0].differences) == ["estimate"]


def test_another_survey_file_is_named_and_nothing_else_then() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    asked_otherwise = replace(COLOUR, question="Which colour do you hate most?")
    [found] = collector.verify(known=asked_otherwise)
    assert (found.status, list(found.differences)) == ("different", ["survey"])
    # What only operators see may change.
    assert [verdict.status for verdict in collector.verify(known=replace(COLOUR, end_ms=1))] == ["equal"]


def test_what_retention_has_deleted_cannot_be_checked() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    collector.topic.deleted = 2
    [found] = collector.verify()
    assert found.status == "unchecked"
    assert found.reason == (
        "partition 0 of the topic begins at offset 2, and reports of this window may have been before it"
    )
    assert closing_line([found]) == "1 windows: 1 cannot be checked"


def test_a_deleted_beginning_without_reports_of_the_window_does_no_harm() -> None:
    collector = Collector()
    collector.send(window_ms=WINDOW - WINDOW_MS)
    lengths = [len(records) for records in collector.topic.log]
    collector.send()
    collector.estimate()
    collector.topic.deleted = min(lengths)
    assert [verdict.status for verdict in collector.verify()][1] == "equal"


def test_offsets_of_another_topic_cannot_be_checked() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    [found] = collector.verify(topic_id="two")
    assert (found.status, found.reason) == ("unchecked", "it was counted from another topic (id one; this one has two)")
    assert [verdict.status for verdict in collector.verify(topic_id="")] == ["equal"]
    [record] = collector.records()
    assert record.proof is not None
    more = changed(record, proof=msgspec.structs.replace(record.proof, offsets=[*record.proof.offsets, 0]))
    [found] = collector.verify([more])
    assert (found.status, found.reason) == ("unchecked", "it was counted from 3 partitions, and the topic has 2")
    for records in collector.topic.log:
        del records[-5:]
    [found] = collector.verify()
    assert found.status == "unchecked"
    assert "partition 0 of the topic ends at offset" in found.reason


def test_reports_from_before_partitions_were_added_cannot_be_checked() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    collector.topic.log[1], collector.topic.log[0] = collector.topic.log
    assert "partitions were added" in collector.verify()[0].reason


def test_an_estimate_of_an_older_version_carries_no_proof() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    [record] = collector.records()
    old = {name: value for name, value in msgspec.to_builtins(record).items() if name != "proof"}
    found = collector.verify([decode_estimate(msgspec.json.encode(old))])
    assert [verdict.status for verdict in found] == ["unproven"]
    assert closing_line(found) == "1 windows: 1 without proof"
    assert closing_line([]) == "0 windows: no estimate to check"


def test_a_report_that_workers_refuse_is_refused_here_too() -> None:
    collector = Collector()
    collector.send()
    token = bytes(13) + (1).to_bytes(3, "little")
    # Rung 2 opens 30 s after the window's end; the broker took it before.
    collector.topic.send(COLOUR, [Report(token, 2, b"\1")], at_ms=WINDOW + WINDOW_MS)
    collector.estimate()
    assert [verdict.status for verdict in collector.verify()] == ["equal"]


def test_data_has_stable_keys() -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    told = as_data("topic", [(COLOUR, collector.verify())])
    assert list(told) == ["source", "thaw", "windows", "equal", "different", "unchecked", "unproven", "surveys"]
    assert told["surveys"][0]["windows"][0] | {"thaw": ""} == {
        "start_ms": WINDOW,
        "status": "equal",
        "users": 26,
        "differences": {},
        "reason": "",
        "winners_compared": True,
        "identical": True,
        "thaw": "",
    }
