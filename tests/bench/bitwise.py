"""Bit vectors counted by whole words, beside the same worker with loops over single bits and bytes.

Both count the same reports with a store in memory; compared are CPU seconds of the process, which a busy machine
disturbs less than time by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

import numba
import numpy as np

from producers.survey.survey import Survey
from streams.store.entry import ANSWER_AT
from streams.worker import kernels
from streams.worker.applier import Applier
from streams.worker.fold import warm_up
from streams.worker.words import Ints, Words, byte_at, compiled
from tests.bench.fold import PARTITIONS, batches, messages, refuse
from tests.bench.goals import Measured, Result, Series
from tests.support.memory_store import MemoryStore
from tests.support.reports import NOW_MS, TOPIC, AnyAnswer, SurveyDict, survey_of

USERS: Final = 50_000
RUNGS: Final = 3
ROUNDS: Final = 3
LEAST_TIMES: Final = {32: None, 128: None, 1_024: 5.0}
"""By the number of bits."""


@compiled
def copy_answer(words: Words, at: int, width: int, out: Words, row: int) -> None:
    """Copy an answer byte by byte."""
    for j in range(2, out.shape[1]):
        out[row, j] = np.uint64(0)
    for k in range(width):
        place = at + k
        byte = (words[place >> 3] >> np.uint64((place & 7) << 3)) & np.uint64(0xFF)
        target = ANSWER_AT + k
        out[row, target >> 3] |= byte << np.uint64((target & 7) << 3)


@compiled
def count_bits(numbers: Ints, base: int, words: Words, row: int, sign: int, size: int, width: int) -> bool:
    """Count an answer bit by bit."""
    for k in range(width):
        byte = byte_at(words, row, ANSWER_AT + k)
        cell = 8 * k
        if byte >> max(0, min(8, size - cell)):
            return False
        while byte:
            numbers[base + cell] += sign * (byte & 1)
            byte >>= 1
            cell += 1
    return True


@contextmanager
def plain_loops() -> Iterator[None]:
    """Let the worker's loops call the plain parts of this module."""
    own = kernels.pack_frames, kernels.fold_entries
    add = _recompiled(kernels._add, count_bits=count_bits)  # the one part of a loop that is not public
    kernels.pack_frames = _recompiled(kernels.pack_frames, copy_answer=copy_answer)
    kernels.fold_entries = _recompiled(kernels.fold_entries, _add=add)
    try:
        yield
    finally:
        kernels.pack_frames, kernels.fold_entries = own


def _recompiled(loop: Any, **parts: Any) -> Callable[..., Any]:
    """Return a loop with other parts; never from the cache on disk, which cannot tell it from the worker's own."""
    plain = loop.py_func
    changed = FunctionType(plain.__code__, plain.__globals__ | parts, plain.__name__)
    return numba.njit(nogil=True)(changed)


def cpu_seconds(survey: Survey, users: int, seed: int) -> float:
    """Return what a worker takes to count the reports of all rungs."""
    applier = Applier(
        MemoryStore(lambda: NOW_MS), SurveyDict(survey), refuse, partitions=PARTITIONS, clock=lambda: NOW_MS
    )
    applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    spent, applied = 0.0, 0
    for rung in range(RUNGS):
        work = batches(messages(users, 1_000, rung, seed, survey), start=rung * users)
        begin = time.process_time()
        applied += sum(applier.process(batch).counters.applied for batch in work)
        spent += time.process_time() - begin
    if applied != users * RUNGS:
        raise AssertionError(f"expected {users * RUNGS} reports to be applied; got {applied}")
    return spent


def results() -> Iterator[Measured]:
    """Compare in turns; the least CPU time of each counts."""
    warm_up()
    points: dict[str, list[tuple[float, float]]] = {"whole words": [], "bit by bit": []}
    for size, least in LEAST_TIMES.items():
        survey = survey_of(AnyAnswer("bits", size, rungs=RUNGS), name=f"bits-{size}", shards=64)
        words, plain = [], []
        for seed in range(ROUNDS):
            words.append(cpu_seconds(survey, USERS, seed))
            with plain_loops():
                cpu_seconds(survey, 100, seed)
                plain.append(cpu_seconds(survey, USERS, seed))
        reports = USERS * RUNGS / 1e6
        points["whole words"].append((float(size), min(words) / reports))
        points["bit by bit"].append((float(size), min(plain) / reports))
        yield Result(
            f"bits-{size}",
            reports / min(words),
            "M per CPU-s",
            "bit by bit",
            reports / min(plain),
            least_ratio=least,
        )
    for label, found in points.items():
        yield Series("bits", label, found)
