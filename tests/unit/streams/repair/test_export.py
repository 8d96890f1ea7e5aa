"""Exports: everything exactly once, whatever kills them; read back, they are the topic that they were made of."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from estimators.tally import Tally
from streams.cli.export import as_data, closing_line
from streams.kafka.messages import FetchBatch, Record, Undecodable
from streams.repair import export as exporting
from streams.repair.engines import DuckDB
from streams.repair.export import check_source
from streams.repair.export_bus import ExportedEstimates, ExportedReports
from streams.repair.export_files import ESTIMATES, REFUSED, REPORTS, ExportError, ExportFolder
from streams.repair.recount import Recount
from streams.repair.verify import Verifier, published
from tests.support.exports import Published, busy_bench, compared, export, rows
from tests.support.keys import key_of
from tests.support.precedence import tie_hash
from tests.support.rebuild import PARTITIONS, Bench
from tests.support.reports import (
    BITS_IN_GROUPS,
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    WINDOW_MS,
    WITHDRAWABLE,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    oracle,
    random_reports,
    shard_of,
    token_in,
)
from tests.unit.streams.repair.test_verify import COLOUR, ONE_MORE, Collector

KNOWN = SurveyDict(*SURVEYS)


class Killed(BaseException):
    """The process dies here."""


def test_a_report_is_exported_with_its_place_and_its_order(tmp_path: Path) -> None:
    bench = Bench(BITS_IN_GROUPS)
    report = Report(token_in(1, 7, BITS_IN_GROUPS), 2, bytes(range(16)), 1)
    bench.topic.send(BITS_IN_GROUPS, [report])
    plain = Report(token_in(0, 3, CATEGORICAL), 0, b"\4")
    bench.topic.send(CATEGORICAL, [plain, plain])
    export(tmp_path, bench.topic, KNOWN)
    found = {row["survey"]: row for row in rows(tmp_path, REPORTS)}
    bits = found[BITS_IN_GROUPS.id]
    assert bits == {
        "kafka_partition": 1,
        "kafka_offset": 0,
        "broker_ms": NOW_MS,
        "sent_ms": NOW_MS,
        "token": report.token[:13],
        "rung": 2,
        "tie": tie_hash(report.token, report.answer + b"\1\0") - (1 << 63),
        "group_number": 1,
        "answer": None,
        "bits": report.answer[::-1].hex(),
        "survey": BITS_IN_GROUPS.id,
        "window_ms": str(WINDOW),
        "shard": "1",
    }
    assert (found[CATEGORICAL.id]["answer"], found[CATEGORICAL.id]["bits"]) == (4, None)
    assert len(rows(tmp_path, REPORTS)) == 3


def test_what_does_not_count_is_exported_with_its_reason(tmp_path: Path) -> None:
    good = frame_of(CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 0, b"\1")])
    late = NOW_MS + CATEGORICAL.retention_ms + WINDOW_MS
    batches = [
        batch_of(good + b"rest", good[:8] + bytes(8) + good[16:], None),
        batch_of(good, start=3, timestamp_ms=late),
        FetchBatch(TOPIC, 0, 4, 9, [], [Undecodable(4, 8, "checksum", b"raw")]),
    ]
    parts = export(tmp_path, Published(batches, PARTITIONS), KNOWN)
    found = [(row["kafka_offset"], row["last_offset"], row["reason"], row["frame"]) for row in rows(tmp_path, REFUSED)]
    assert sorted(found, key=lambda row: (row[0], row[2])) == [
        (0, None, "length", b"rest"),
        (1, None, "survey", good[:8] + bytes(8) + good[16:]),
        (2, None, "empty", b""),
        (3, None, "expired", good),
        (4, 8, "batch", b"raw"),
    ]
    assert [row["broker_ms"] for row in rows(tmp_path, REFUSED) if row["reason"] == "expired"] == [late]
    assert len(rows(tmp_path, REPORTS)) == 1
    assert parts[-1].reports.end == [9, 0]
    assert as_data(tmp_path, 0, parts)["reasons"] == dict.fromkeys(["batch", "empty", "expired", "length", "survey"], 1)
    assert "1 reports, 5 refused frames (1 batch, 1 empty, 1 expired" in closing_line(tmp_path, parts)


def test_a_killed_export_continues_without_duplicates_or_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(6):
        reports = [Report(token_in(number % 4, user, CATEGORICAL), 0, b"\1") for user in range(number, number + 3)]
        bench.topic.send(CATEGORICAL, reports, window_ms=WINDOW - number % 2 * WINDOW_MS)
    bench.topic.log[0].append((b"damaged", NOW_MS))
    export(tmp_path / "whole", bench.topic, KNOWN)

    def ordered(folder: Path, kind: str) -> list[str]:
        return sorted(map(repr, rows(folder, kind)))

    monkeypatch.setattr(exporting, "PART_BYTES", 1)
    steps = 0
    write, rename = pyarrow.parquet.write_table, Path.rename

    def dying(action: Callable[..., Any]) -> Callable[..., Any]:
        """Die before a step, or after it, when its turn has come."""

        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise Killed
            done = action(*arguments, **named)
            steps -= 1
            if steps == 0:
                raise Killed
            return done

        return step

    monkeypatch.setattr(pyarrow.parquet, "write_table", dying(write))
    monkeypatch.setattr(Path, "rename", dying(rename))
    deaths = 0
    while True:
        folder = tmp_path / f"killed-{deaths}"
        steps = deaths + 1
        try:
            export(folder, bench.topic, KNOWN)
        except Killed:
            deaths += 1
            seen = rows(folder, REPORTS) if (folder / REPORTS).exists() else []
            assert len(seen) == len(set(map(repr, seen)))
        else:
            break
        parts = export(folder, bench.topic, KNOWN)
        for kind in (REPORTS, REFUSED):
            assert ordered(folder, kind) == ordered(tmp_path / "whole", kind), f"killed at step {deaths}"
        for before, after in pairwise(parts):
            assert before.reports.end == after.reports.start
        listed = {str(folder / file.path) for part in parts for file in part.files}
        assert listed == {str(file) for file in folder.rglob("*.parquet")}
    assert deaths > 10


def test_it_goes_on_where_it_stopped_and_has_nothing_to_do_twice(tmp_path: Path) -> None:
    bench = Bench()
    first = Report(token_in(0, 1, CATEGORICAL), 0, b"\1")
    bench.topic.send(CATEGORICAL, [first])
    export(tmp_path, bench.topic, KNOWN)
    assert len(export(tmp_path, bench.topic, KNOWN)) == 1
    assert closing_line(tmp_path, []) == f"{tmp_path}: nothing new"
    bench.topic.send(CATEGORICAL, [first])
    parts = export(tmp_path, bench.topic, KNOWN)
    assert [(part.reports.start, part.reports.end) for part in parts] == [([0, 0], [1, 0]), ([1, 0], [2, 0])]
    assert [row["kafka_offset"] for row in rows(tmp_path, REPORTS)] == [0, 1]
    assert parts[-1].reports.held()[0].first_ms == NOW_MS


def test_an_export_is_verified_like_its_topic(tmp_path: Path) -> None:
    collector = Collector()
    for seed in range(3):
        collector.send(seed=seed, window_ms=WINDOW - seed * WINDOW_MS)
        collector.estimate()
    # Rung 2 is not open then: workers refuse it, and so must whoever counts the export.
    token = bytes(13) + (1).to_bytes(3, "little")
    collector.topic.send(COLOUR, [Report(token, 2, b"\1")], at_ms=WINDOW + WINDOW_MS)
    collector.send(seed=9)
    collector.estimate()
    messages = [Record(at, NOW_MS, message.value) for at, message in enumerate(collector.published)]
    estimates = Published([FetchBatch("estimates", 0, 0, len(messages), messages)])
    export(tmp_path, collector.topic, SurveyDict(COLOUR), estimates=estimates)
    folder = ExportFolder(tmp_path)
    parts = folder.committed()
    found = published(ExportedEstimates(folder, parts))
    assert found == published(estimates)
    assert [row["users"] for row in rows(tmp_path, ESTIMATES)] == [
        msgspec.json.decode(message.value or b"")["users"] for message in messages
    ]

    def verdicts() -> list[Any]:
        bus = ExportedReports(folder, parts, COLOUR)
        verifier = Verifier(bus, COLOUR, partitions=bus.partitions, topic_id=bus.topic_id, clock=collector.clock)
        return verifier.run(collector.records())

    assert [verdict.status for verdict in verdicts()] == ["equal"] * 3
    assert verdicts() == collector.verify()
    with DuckDB() as engine:
        [(_, counted)] = compared(tmp_path, collector.store, [COLOUR], engine)
    assert [(verdict.status, verdict.users) for verdict in counted] == [
        ("equal", verdict.users) for verdict in verdicts()
    ]
    tally = collector.store.stored_tally(next(key for key in _keys(collector) if key.window_ms == WINDOW))
    for place in ONE_MORE:
        tally[place : place + 8] = (int.from_bytes(tally[place : place + 8], "little") + 1).to_bytes(8, "little")
    with DuckDB() as engine:
        [(_, counted)] = compared(tmp_path, collector.store, [COLOUR], engine)
    assert [verdict.status for verdict in counted] == ["equal", "equal", "different"]
    users = counted[-1].users
    assert counted[-1].differences == {"tally": f"Redis has {users} users, the export {users - 1}"}


def _keys(collector: Collector) -> list[Any]:
    from streams.store.shape import Key

    return [Key(COLOUR.id, WINDOW, shard) for shard in range(COLOUR.shards)][1:]


def test_a_changed_estimate_is_named(tmp_path: Path) -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    export(tmp_path, collector.topic, SurveyDict(COLOUR))
    [record] = collector.records()
    forged = msgspec.structs.replace(record, users=5).encode()
    secret = collector.store.queue.lock(COLOUR.id, WINDOW, 1_000)
    assert secret is not None
    assert collector.store.estimates.save(COLOUR.id, WINDOW, secret, forged, NOW_MS + 10**9)
    with DuckDB() as engine:
        [(_, [found])] = compared(tmp_path, collector.store, [COLOUR], engine)
    assert found.status == "different"
    assert list(found.differences) == ["estimate"]
    assert found.differences["estimate"].startswith("users is 5, recounted ")


def test_what_the_export_lacks_cannot_be_checked(tmp_path: Path) -> None:
    collector = Collector()
    collector.send()
    collector.estimate()
    short = tmp_path / "short"
    export(short, collector.topic, SurveyDict(COLOUR))
    collector.send(seed=5)
    collector.estimate()
    collector.topic.deleted = 3
    gone = tmp_path / "gone"
    parts = export(gone, collector.topic, SurveyDict(COLOUR))
    assert (parts[0].reports.missing, parts[0].reports.first[0][0]) == ([3, 3], 3)
    unknown = tmp_path / "unknown"
    collector.topic.deleted = 0
    export(unknown, collector.topic, SurveyDict(CATEGORICAL))
    for folder, reason in (
        (short, "of the export ends at offset"),
        (gone, "without a gap from offset 3 on"),
        (unknown, "were exported while the survey was not known"),
    ):
        with DuckDB() as engine:
            [(_, [found])] = compared(folder, collector.store, [COLOUR], engine)
        assert found.status == "unchecked", folder
        assert reason in found.reason


def test_an_export_of_another_topic_is_not_continued(tmp_path: Path) -> None:
    bench = Bench()
    bench.topic.send(CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 0, b"\1")])
    [part] = export(tmp_path, bench.topic, KNOWN)
    check_source(part.reports, TOPIC, "one", {0: 1, 1: 0})
    check_source(None, "any", "id", {})
    for arguments, message in (
        (("other", "one", {0: 1, 1: 0}), f"is of topic {TOPIC}, and the settings say other"),
        ((TOPIC, "two", {0: 1, 1: 0}), "was deleted and made again"),
        ((TOPIC, "one", {0: 1}), "has 1 partitions, and 2 were exported"),
        ((TOPIC, "", {0: 0, 1: 0}), "ends at offset 0, and the export has it up to 1"),
    ):
        with pytest.raises(ExportError, match=re.escape(message)):
            check_source(part.reports, *arguments)


def test_a_folder_that_is_no_export_or_is_incomplete_is_refused(tmp_path: Path) -> None:
    bench = busy_bench(1)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("mine")
    with pytest.raises(ExportError, match="files that are no export"):
        export(full, bench.topic, KNOWN)
    with pytest.raises(ExportError, match="holds no export; make one with `thaw export"):
        ExportFolder(tmp_path / "none").committed()
    good = tmp_path / "good"
    [part] = export(good, bench.topic, KNOWN)
    with ExportFolder(good).writing(), pytest.raises(ExportError, match="another `thaw export` writes"):
        export(good, bench.topic, KNOWN)
    (good / part.files[0].path).unlink()
    for action in (ExportFolder(good).committed, lambda: export(good, bench.topic, KNOWN)):
        with pytest.raises(ExportError, match=re.escape(f"lacks {part.files[0].path} of part 1")):
            action()
    manifest = good / "_thaw" / "part-000001.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ExportError, match="has format 2; this version reads 1"):
        ExportFolder(good).parts()
    manifest.write_text("{}")
    with pytest.raises(ExportError, match="is no manifest of an export"):
        ExportFolder(good).parts()


def test_reports_with_keys_are_checked_again_when_an_export_is_counted(tmp_path: Path) -> None:
    bench = Bench(WITHDRAWABLE)
    reports = random_reports(WITHDRAWABLE, 20, 90, random.Random(4))
    bench.topic.send(WITHDRAWABLE, reports)
    token = next(report.token for report in reports if report.rung == 0)
    forged = bytearray(frame_of(WITHDRAWABLE, [Report(token, 2, b"\5")]))
    forged[-16:] = key_of(token, 0)
    shard = shard_of(token, WITHDRAWABLE)
    bench.topic.log[shard % PARTITIONS].append((bytes(forged), NOW_MS))
    bench.work()
    assert bench.tally() == oracle(WITHDRAWABLE, reports)
    parts = export(tmp_path, bench.topic, SurveyDict(WITHDRAWABLE))
    assert parts[-1].refused == {"key": 1}
    told = rows(tmp_path, REPORTS)
    assert {row["key"] for row in told} == {key_of(report.token, report.rung) for report in reports}
    bus = ExportedReports(ExportFolder(tmp_path), parts, WITHDRAWABLE)
    recount = Recount(bus, WITHDRAWABLE, partitions=PARTITIONS, clock=bench.clock)
    recount.catch_up()
    assert sum((table.tally() for table in recount.tables.values()), Tally.empty(4, 1, 6)) == bench.tally()
