"""After a restart of the store every window with counts is queued once, since queued windows may have been lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams.store.contract import Store
from streams.store.redis import RedisStore
from streams.worker.applier import Applier
from tests.contract.conftest import ADDRESSES, REAL
from tests.support.memory_store import MemoryStore
from tests.support.reports import (
    BITS_IN_GROUPS,
    CATEGORICAL,
    SURVEYS,
    WINDOW,
    WINDOW_MS,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    random_answer,
    token_in,
)

Restarted = tuple[Store, Callable[[], None]]


@pytest.fixture(params=["memory", *REAL])
def restarted(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Restarted]:
    """A store, and a function after which it takes itself for restarted."""
    if request.param == "memory":
        memory = MemoryStore()
        yield memory, lambda: memory.restore(memory.snapshot())
        return
    # Characters that mean something in a pattern stand for themselves in a prefix.
    real = RedisStore.connect(request.getfixturevalue(ADDRESSES[request.param]), prefix=f"[a]*\\{key_prefix}")
    client: Any = real._client
    yield real, lambda: client.set(real.queue._run_key, b"an earlier run")
    real.close()


def count_some(store: Store) -> set[tuple[str, int]]:
    letters: list[Any] = []
    applier = Applier(store, SurveyDict(*SURVEYS), letters.append, partitions=1)
    frames = []
    for survey, window_ms in ((CATEGORICAL, WINDOW), (CATEGORICAL, WINDOW - WINDOW_MS), (BITS_IN_GROUPS, WINDOW)):
        report = Report(token_in(0, 1, survey), 0, random_answer(survey, random.Random(1)))
        frames.append(frame_of(survey, [report], window_ms=window_ms))
    applier.process([batch_of(*frames)])
    return {(CATEGORICAL.id, WINDOW), (CATEGORICAL.id, WINDOW - WINDOW_MS), (BITS_IN_GROUPS.id, WINDOW)}


def test_windows_with_counts_are_queued_once_after_a_restart(restarted: Restarted) -> None:
    store, restart = restarted
    assert store.queue.put_after_restart() == 0
    counted = count_some(store)
    for queued in store.queue.entries():
        store.queue.remove(queued)
    assert store.queue.put_after_restart() == 0
    assert store.queue.entries() == []
    restart()
    assert store.queue.put_after_restart() == 3
    assert {queued[:2] for queued in store.queue.entries()} == counted
    assert store.queue.put_after_restart() == 0
