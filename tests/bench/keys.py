"""What keys of withdrawable surveys cost a worker: hashes and those of a library, reports with keys and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.keys import key_chains, right_keys
from producers.wire.shards import partition_of, shards_of
from streams.worker.applier import Applier
from streams.worker.fold import warm_up
from streams.worker.key_chains import wrong_keys
from tests.bench.fold import PARTITIONS, SURVEY, batches, refuse
from tests.bench.goals import Result
from tests.support.memory_store import MemoryStore
from tests.support.reports import NOW_MS, TOPIC, WINDOW, AnyAnswer, SurveyDict, survey_of

PLAIN = survey_of(AnyAnswer("index", 100, rungs=3), name="bench-plain", shards=64)
KEYED = replace(PLAIN, name="bench-keyed", withdrawable=True)
USERS, ROUNDS = 100_000, 5


def hashes(*, reports: int = 20_000, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return hashes per second of the compiled loop and of the library, over reports of three rungs."""
    rng = np.random.default_rng(1)
    rungs = rng.integers(0, 3, reports)
    chains = key_chains(rng.integers(0, 256, (reports, 16), dtype=np.uint8), 3, SURVEY.digest, WINDOW)
    tokens, keys = chains[0], chains[rungs + 1, np.arange(reports)]
    words = np.concatenate([tokens, keys]).view(np.uint64).ravel()
    at, windows = 2 * np.arange(reports), np.full(reports, WINDOW)
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        begin = time.perf_counter()
        wrong = wrong_keys(words, at, at + 2 * reports, windows, rungs, SURVEY.digest)
        best[0] = min(best[0], time.perf_counter() - begin)
        begin = time.perf_counter()
        right = right_keys(tokens, rungs.tolist(), keys, SURVEY.digest, WINDOW)
        best[1] = min(best[1], time.perf_counter() - begin)
        if wrong.any() or not right.all():
            raise AssertionError("a right key was called wrong")
    total = int((rungs + 1).sum())
    return total / best[0], total / best[1]


def _messages(survey: Survey, chains: np.ndarray, rung: int) -> dict[int, list[bytes]]:
    answers = np.random.default_rng(rung).integers(0, 100, (USERS, 1), dtype=np.uint8)
    shards = shards_of(chains[0], survey.shards)
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for shard in range(survey.shards):
        mine = np.flatnonzero(shards == shard)
        for start in range(0, len(mine), 1_000):
            some = mine[start : start + 1_000]
            keys = chains[rung + 1, some] if survey.withdrawable else None
            columns = wire.Reports(chains[0, some], answers[some], np.full(len(some), rung, np.uint8), None, keys)
            frame = wire.encode(survey.digest, WINDOW, NOW_MS, shard, columns, survey.layout)
            found[partition_of(shard, PARTITIONS)].append(frame)
    return found


def reports(*, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return reports per second of one worker with keys and without, over three rungs; in turns, the best of each."""
    secrets = np.random.default_rng(2).integers(0, 256, (USERS, 16), dtype=np.uint8)
    chains = key_chains(secrets, 3, KEYED.digest, WINDOW)
    warm_up()
    best = {True: float("inf"), False: float("inf")}
    for _ in range(rounds):
        for survey in (KEYED, PLAIN):
            applier = Applier(
                MemoryStore(lambda: NOW_MS), SurveyDict(survey), refuse, partitions=PARTITIONS, clock=lambda: NOW_MS
            )
            applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
            spent = 0.0
            for rung in range(3):
                work = batches(_messages(survey, chains, rung), start=rung * USERS)
                begin = time.perf_counter()
                applied = sum(applier.process(batch).counters.applied for batch in work)
                spent += time.perf_counter() - begin
                if applied != USERS:
                    raise AssertionError(f"expected {USERS} reports to be applied; got {applied}")
            best[survey.withdrawable] = min(best[survey.withdrawable], spent)
    return 3 * USERS / best[True], 3 * USERS / best[False]


def results() -> Iterator[Result]:
    """Compare the compiled hashes with a library's, and reports with keys with those without."""
    ours, library = hashes()
    yield Result("key-hashes", ours / 1e6, "M/s", "hashlib", library / 1e6, least_ratio=2.0)
    keyed, plain = reports()
    yield Result("fold-with-keys", keyed / 1e6, "M/s", "without keys", plain / 1e6, least_ratio=0.1)
