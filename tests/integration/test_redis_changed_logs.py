"""Report logs in a real Redis that contradict their head or tally: told, and what is left of them stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams.store.contract import StoreCorruptError
from streams.store.entry import ANSWER_AT
from streams.store.redis import RedisStore
from streams.worker.table import Table
from tests.integration.test_redis_store import client, store
from tests.support.redis_logs import KEY, SHAPE, apply, cached_log, log_key, reports
from tests.support.reports import CATEGORICAL, WINDOW

__all__ = ["client", "store"]
pytestmark = pytest.mark.real


def damaged_tally(client: Any, key_prefix: str) -> None:
    client.setrange(log_key(key_prefix, "tally"), 16, b"\7")


def no_log(client: Any, key_prefix: str) -> None:
    client.delete(log_key(key_prefix, "log"))


def no_first_segment(client: Any, key_prefix: str) -> None:
    client.lpop(log_key(key_prefix, "log"))


def empty_segment(client: Any, key_prefix: str) -> None:
    client.lset(log_key(key_prefix, "log"), 0, b"")


def other_answer(client: Any, key_prefix: str) -> None:
    entry = bytearray(client.lindex(log_key(key_prefix, "log"), -1))
    entry[ANSWER_AT] ^= 1
    client.lset(log_key(key_prefix, "log"), -1, bytes(entry))


@pytest.mark.parametrize("damage", [damaged_tally, no_log, no_first_segment, empty_segment, other_answer])
def test_a_log_that_contradicts_its_summaries_is_told_and_what_is_left_of_it_stays(
    store: RedisStore, client: Any, key_prefix: str, damage: Callable[[Any, str], None]
) -> None:
    cached = cached_log(store)
    for user in (1, 2, 3):
        assert apply(store, cached, reports(0, user=user))
    damage(client, key_prefix)
    left = b"".join(client.lrange(log_key(key_prefix, "log"), 0, -1))
    with pytest.raises(
        StoreCorruptError, match=rf"log:{CATEGORICAL.id}:{WINDOW}: its (head|tally).*thaw rebuild"
    ) as told:
        cached_log(store)
    assert list(told.value.readable) == [KEY]
    assert store.log.distrust(KEY, told.value.logs[KEY])
    assert not store.log.distrust(KEY, told.value.logs[KEY]), "it changed since"
    found = cached_log(store)
    assert found.table.tally() == Table.of_log(SHAPE, left).tally()
    assert apply(store, found, reports(3, user=9))
