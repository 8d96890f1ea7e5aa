"""A survey of bit vectors does not slow a categorical one beside it: the work for its reports is the very same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from producers.survey.survey import Survey
from streams.store.contract import ShardBatch
from streams.store.shape import Shape
from streams.worker import kernels
from tests.support.applier import PARTITIONS, Bench
from tests.support.reports import AnyAnswer, Report, batch_of, messages_of, survey_of, token_in

DEVICES, RUNGS, SHARDS = 600, 3, 8
WORDS = survey_of(AnyAnswer("index", 100, rungs=RUNGS), name="categorical", shards=SHARDS)
BITS = survey_of(AnyAnswer("bits", 1_024, rungs=RUNGS), name="vectors", shards=SHARDS)

Loops = Counter[tuple[str, int, int]]
"""Calls of compiled loops on categorical reports, by name, rows and words of a row."""
LOOPS = {"pack_frames": 10, "fold_entries": 3}
"""By name, which argument has a row for each report."""


def message_of(survey: Survey, rung: int, partition: int) -> bytes:
    """Return the message of all devices for one rung."""
    rng = np.random.default_rng([rung, len(survey.name)])
    answer = survey.mechanism.answer
    limit = 100 if answer.kind == "index" else 256
    drawn = rng.integers(0, limit, size=(DEVICES, answer.width), dtype=np.uint8)
    reports = [Report(token_in(i % SHARDS, i, survey), rung, drawn[i].tobytes()) for i in range(DEVICES)]
    return messages_of(survey, reports, partitions=PARTITIONS)[partition]


def counted(monkeypatch: pytest.MonkeyPatch, *surveys: Survey) -> tuple[Loops, list[Any], int]:
    """Count all rungs, each batch with messages of all surveys.

    Returns the loops over categorical reports, what the store was asked to change for them, and how often it was asked.
    """
    bench, loops, asked = Bench(surveys=surveys), Loops(), 0
    changes: list[Any] = []
    own = {name: getattr(kernels, name) for name in LOOPS}
    apply = bench.store.log.apply

    def watched(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            rows, words = arguments[LOOPS[name]].shape
            if words == Shape.of(WORDS).entry_words:
                loops[name, rows, words] += 1
            return own[name](*arguments)

        return call

    def noted(batches: Sequence[ShardBatch]) -> Any:
        nonlocal asked
        asked += 1
        mine = (one for batch in batches for one in batch.changes if one.key.survey_id == WORDS.id)
        changes.extend((one.key, one.entries, one.rewrite, one.log_entries, one.patches, one.counters) for one in mine)
        return apply(batches)

    with monkeypatch.context() as patch:
        for name in own:
            patch.setattr(kernels, name, watched(name))
        patch.setattr(bench.store.log, "apply", noted)
        for rung in range(RUNGS):
            for partition in range(PARTITIONS):
                values = [message_of(survey, rung, partition) for survey in surveys]
                bench.process(batch_of(*values, partition=partition, start=rung * len(surveys)))
    assert bench.letters == []
    return loops, changes, asked


def test_the_loops_over_categorical_reports_and_what_is_stored_are_the_same_beside_bit_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = counted(monkeypatch, WORDS)
    beside = counted(monkeypatch, WORDS, BITS)
    assert beside == alone
    loops, changes, asked = alone
    assert sum(rows * calls for (name, rows, _), calls in loops.items() if name == "pack_frames") == RUNGS * DEVICES
    assert sum(rows * calls for (name, rows, _), calls in loops.items() if name == "fold_entries") >= RUNGS * DEVICES
    assert len(changes) == RUNGS * SHARDS
    assert asked == RUNGS * PARTITIONS, "one step for all surveys of a batch"
