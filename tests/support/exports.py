"""Exports of topics in memory, and a topic with everything in it that can be counted or refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet

from producers.survey.survey import Survey
from streams.kafka.messages import FetchBatch
from streams.kafka.reader import Bus, Held
from streams.repair.compare import ExportComparison
from streams.repair.engines import Engine
from streams.repair.export import Exporter
from streams.repair.export_files import ESTIMATES, REPORTS, ExportFolder, Part
from streams.repair.verify import Verdict
from streams.store.contract import Store
from tests.support.clock import ManualClock
from tests.support.rebuild import PARTITIONS, Bench, Topic
from tests.support.reports import (
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    WINDOW_MS,
    Report,
    SurveyDict,
    frame_of,
    of_window,
    random_answer,
    random_reports,
    token_in,
)

WINDOWS = 3
STORIES = [(survey, WINDOW - window * WINDOW_MS) for survey in SURVEYS for window in range(WINDOWS)]


class Published:
    """A topic of estimates in memory."""

    def __init__(self, batches: list[FetchBatch] | None = None, partitions: int = 1) -> None:
        self._batches, self._partitions = batches or [], partitions

    def read(self) -> Iterator[list[FetchBatch]]:
        yield self._batches

    def held(self) -> dict[int, Held]:
        return dict.fromkeys(range(self._partitions), Held(0, None))


def export(
    folder: Path,
    reports: Bus,
    surveys: SurveyDict,
    *,
    estimates: Bus | None = None,
    clock: ManualClock | None = None,
    topic: str = TOPIC,
) -> list[Part]:
    """Export, or go on; return all parts."""
    made = ExportFolder(folder)
    with made.writing() as parts:
        if isinstance(reports, Topic):
            reports._at = list(parts[-1].reports.end) if parts else [0] * PARTITIONS
        Exporter(
            made,
            parts,
            reports,
            estimates or Published(),
            surveys,
            topics={REPORTS: (topic, "one"), ESTIMATES: ("estimates", "")},
            clock=clock or ManualClock(NOW_MS),
        ).run()
    return made.committed()


def compared(
    folder: Path, store: Store, surveys: list[Survey], engine: Engine, *, topic: str = TOPIC
) -> list[tuple[Survey, list[Verdict]]]:
    """Count an export and compare it with a store."""
    made = ExportFolder(folder)
    return ExportComparison(made, made.committed(), store, surveys, engine, topic=topic).run()


def rows(folder: Path, kind: str) -> list[dict[str, object]]:
    """Return all rows of one kind, with what their folders say."""
    found = []
    for file in sorted((folder / kind).rglob("*.parquet")):
        place = dict(piece.split("=", 1) for piece in file.relative_to(folder).parts[1:-1])
        found += [row | place for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()]
    return found


def busy_bench(seed: int) -> Bench:
    """Return a bench whose worker has counted a story for each window of surveys of all shapes.

    Few users, so that reports repeat, climb and contradict each other; some come too late, too early, for windows that
    have not begun or surveys that nobody knows, and some are damaged.
    """
    rng, bench = random.Random(seed), Bench()
    sent: list[tuple[Survey, int, list[Report]]] = []
    for survey, window_ms in STORIES:
        reports = random_reports(survey, users=25, count=120, rng=rng)
        # A person with two answers on one rung, whichever the hash prefers.
        reports += [Report(token_in(0, 999, survey), 1, random_answer(survey, rng)) for _ in range(2)]
        reports = of_window(survey, reports, window_ms)
        sent += [(survey, window_ms, reports[start : start + 9]) for start in range(0, len(reports), 9)]
    rng.shuffle(sent)
    for survey, window_ms, reports in sent:
        at_ms = NOW_MS
        if rng.random() < 0.1:
            at_ms = rng.choice([window_ms + 10_000, window_ms + WINDOW_MS + survey.retention_ms, window_ms - WINDOW_MS])
        bench.topic.send(survey, reports, window_ms=window_ms, at_ms=at_ms)
        if rng.random() < 0.05:
            frame = frame_of(survey, reports[:1], window_ms=window_ms)
            damaged = bytearray(frame)
            damaged[rng.choice([0, 3, 4, 8, 16, 32, 34])] ^= 1 << rng.randrange(8)
            bench.topic.log[rng.randrange(PARTITIONS)].append((bytes(damaged) + frame, NOW_MS))
        if rng.random() < 0.2:
            bench.work()
    bench.work()
    return bench
