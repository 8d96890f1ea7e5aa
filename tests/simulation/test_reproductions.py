"""Scripts that once failed, on the project or on a deliberately broken copy of one of its parts.

Each says what went wrong. `test_mutants.py` breaks the part again and sees the script fail.
"""

from __future__ import annotations

import pytest

from streams.store.shape import Shape
from tests.simulation.bus import CONTINUING, SHORTER
from tests.simulation.continuing import Continue, LateAndOld, Learn
from tests.simulation.operations import (
    Advance,
    BrokerAway,
    CloseWindow,
    Corrupt,
    CrashBetweenApplyAndAck,
    CrashWorker,
    DeviceCrash,
    Duplicate,
    Emit,
    Late,
    Op,
    Rebalance,
    RedisAway,
    RedisForgets,
    RedisSyncs,
    Reorder,
    Work,
    play,
)
from tests.simulation.world import World
from tests.support.surveys import WEEK

SCRIPTS: dict[str, list[Op]] = {
    # Acknowledged although the store had not answered: the report was never read again.
    "acknowledged too early": [Late(((0, 0, 1),)), RedisAway(200_000), Work(0, 1), Advance(1_000), Work(0, 1)],
    # Read from Kafka's committed offset alone: what the power cut took stayed lost.
    "power cut": [
        Advance(10_000),
        RedisSyncs(),
        Late(((0, 0, 1), (1, 1, 2)), windows=1),
        Work(0, 1),
        Work(1, 1),
        RedisForgets(),
    ],
    # Counted before it opened: one lying device on the top rung weighs as much as many honest devices on the first.
    "rung before it opens": [Corrupt("early", good_before=True, good_after=True), Work(0, 3)],
    # Two writers on one log: the second overwrote the tally of the first.
    "zombie": [
        Late(((0, 0, 1),)),
        Work(0, 1),
        Rebalance((1, 1), zombie=0),
        Late(((4, 0, 2),)),
        Late(((8, 0, 3),)),
        Work(1, 5),
        Work(0, 1),
    ],
    # A batch read again was added again.
    "between apply and acknowledgement": [
        Advance(10_000),
        Late(((0, 0, 1), (0, 1, 2)), windows=1),
        CrashBetweenApplyAndAck(0, 3),
        Late(((0, 1, 2),), windows=1),
        Work(0, 3),
        Duplicate(0, 0),
        Work(0, 3),
    ],
    # Taken from the outbox before the broker had it.
    "device dies while sending": [DeviceCrash(0, "before send", 5), Advance(1_000), Work(0, 5), Work(1, 5)],
    # Drawn again after a crash: two answers for one rung, and the budget spent twice.
    "device dies before it has stored its answers": [
        Emit(0, 3, held=True),
        DeviceCrash(0, "before commit", 4),
        Emit(0, 4),
        Reorder(1),
        CloseWindow(),
        Advance(30_000),
        DeviceCrash(0, "after send", 4),
        Work(0, 5),
        Work(1, 5),
    ],
    # Dead letters that could not be sent were forgotten.
    "broker away while a dead letter leaves": [
        Corrupt("rung", good_before=True, good_after=True),
        CrashWorker(0, "log.apply", "before"),
        BrokerAway(1_000),
        Work(0, 3),
        Advance(2_000),
        Work(0, 3),
    ],
    # The window was stored, then the worker crashed before it had queued it: it kept its old estimate.
    "unqueued window": [Late(((0, 0, 1),)), CrashWorker(0, "queue.put", "before"), CloseWindow(), Work(0, 3)],
}


LEVELS_ADDED: list[Op] = [
    Emit(0, 3),
    Late(((0, 0, 1), (1, 0, 2), (5, 0, 4))),
    Work(0, 9),
    Work(1, 9),
    Learn(0),
    CloseWindow(),
    Advance(30_000),
    Emit(1, 5),
    Late(((0, 1, 1),), windows=1),
    Work(0, 9),
    Work(1, 9),
    Continue((0,)),
    LateAndOld(((0, 1, 1), (5, 1, 4)), windows=1),
    Late(((0, 2, 1), (1, 2, 2)), windows=1),
    Advance(1_000),
    DeviceCrash(0, "after send", 3),
    Work(0, 9),
    Continue((1,)),
    CloseWindow(),
    Advance(31_000),
    Work(1, 9),
]
"""Chains, logs and estimates from before a level was added, while one of two workers knows of it."""


def test_levels_that_are_added_later_are_drawn_once_and_counted_once() -> None:
    with World(asked=SHORTER, later=CONTINUING) as world:
        play(world, LEVELS_ADDED)
        counted = world.store.estimates.tally(CONTINUING.id, WEEK, CONTINUING.shards, Shape.of(CONTINUING))
        assert counted.users.ravel().tolist() == [0, 1, 3], "two of a fleet and one device with the new level"


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_what_failed_once_does_not_fail_again(script: list[Op]) -> None:
    with World() as world:
        play(world, script)
