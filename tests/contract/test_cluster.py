"""What only a cluster has: keys on several nodes, slots that move, nodes that are away, users of every node."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from streams.settings import Settings
from streams.store.connect import open_truths
from streams.store.contract import StoreDeniedError, StoreUnavailableError
from streams.store.redis import RedisStore
from streams.store.redis_cluster import servers
from streams.store.redis_rights import redis_rights
from streams.store.shape import Shape
from streams.worker.applier import Applier
from tests.support.deadline import until
from tests.support.redis_cluster import RedisCluster
from tests.support.reports import CATEGORICAL, WINDOW, Report, SurveyDict, batch_of, frame_of, random_answer, token_in
from tests.support.services import started

pytestmark = pytest.mark.real

SHAPES = SurveyDict(CATEGORICAL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A cluster of this file's own: its slots move, and its users change."""
    with started(lambda: RedisCluster(tmp_path_factory.mktemp("own-cluster"))) as own:
        yield own


def count(applier: Applier, number: int) -> None:
    """Count one report in every shard."""
    rng = random.Random(number)
    frames = [
        frame_of(
            CATEGORICAL,
            [Report(token_in(shard, number, CATEGORICAL), 0, random_answer(CATEGORICAL, rng))],
            window_ms=WINDOW,
        )
        for shard in range(CATEGORICAL.shards)
    ]
    applier.process([batch_of(*frames, start=number * len(frames))])


def users(store: RedisStore) -> int:
    return store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, Shape.of(CATEGORICAL)).total_users


def test_counting_goes_on_while_slots_move(cluster: RedisCluster, key_prefix: str) -> None:
    store = RedisStore.connect(cluster.url, prefix=key_prefix)
    letters: list[Any] = []
    applier = Applier(store, SHAPES, letters.append, partitions=1)
    count(applier, 0)
    source, target = cluster.nodes[:2]
    with source.client() as client:
        owned = cluster.slots_of(source)
        used = [slot for slot in owned if client.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)]
    for number, slot in enumerate(used[:3], start=1):
        assert cluster.move_slot(slot, source, target) > 0
        count(applier, number)
    assert not letters
    counted = 1 + len(used[:3])
    assert users(store) == counted * CATEGORICAL.shards
    # A client that has never been there finds the new places too.
    assert users(RedisStore.connect(cluster.url, prefix=key_prefix)) == counted * CATEGORICAL.shards
    store.close()


def test_the_restart_of_any_node_is_noticed_and_windows_of_all_nodes_are_found(
    cluster: RedisCluster, key_prefix: str
) -> None:
    store = RedisStore.connect(cluster.url, prefix=key_prefix)
    count(Applier(store, SHAPES, lambda _: None, partitions=1), 0)
    store.queue.put_after_restart()
    cluster.nodes[2].restart()
    until(cluster.is_whole, 60, "the node to be back in its cluster")

    def found() -> int:
        # The first call may meet a connection that has ended.
        with suppress(StoreUnavailableError):
            return store.queue.put_after_restart()
        return 0

    assert until(found, 30, "the window to be queued again") == 1
    assert store.queue.put_after_restart() == 0
    store.close()


def test_a_key_of_a_wrong_type_is_removed_on_whichever_node_it_is(cluster: RedisCluster, key_prefix: str) -> None:
    store = RedisStore.connect(cluster.url, prefix=key_prefix)
    base = f"{key_prefix}thaw:v1:"
    for survey_id in ("a", "b", "c", "d"):
        store._client.rpush(f"{base}{{{survey_id}}}:estimate:5", "x")
    with pytest.raises(StoreUnavailableError, match="removed keys of a wrong type"):
        store.estimates.read("a", 5)
    assert [store.estimates.read(survey_id, 5) for survey_id in ("a", "b", "c", "d")] == [None] * 4
    store.close()


def test_one_address_of_a_running_node_is_enough_and_none_is_named(cluster: RedisCluster, key_prefix: str) -> None:
    one = RedisStore.connect(f"redis+cluster://127.0.0.1:1,{cluster.nodes[1].address}", prefix=key_prefix)
    assert one.durability_warnings() == []
    assert one.now_ms() > 0
    with pytest.raises(StoreUnavailableError, match=r"Redis.* at 127\.0\.0\.1:1,127\.0\.0\.1:2"):
        RedisStore.connect("redis+cluster://127.0.0.1:1,127.0.0.1:2").now_ms()
    truths = open_truths(Settings(redis=cluster.url, prefix=key_prefix))
    truths.post("colour", 0, "b", {"numerators": [1], "denominators": [2], "devices": 2, "blocks": 1, "settled": True})
    assert truths.read("colour", 0) is not None


def test_a_client_of_one_server_is_told_to_use_the_cluster(cluster: RedisCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is part of a cluster; write redis\+cluster://"):
        RedisStore.connect(cluster.nodes[0].url).log.offsets("topic", 0, range(64))


def test_a_user_with_the_documented_rights_can_count_and_one_without_is_named(
    cluster: RedisCluster, key_prefix: str
) -> None:
    rule = redis_rights(key_prefix, cluster=True)["thaw worker, thaw rebuild"].rule()
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "counter", "reset", "on", ">secret", *rule.split())
        node.ask("ACL", "SETUSER", "stranger", "reset", "on", ">secret", "+cluster|slots", "+command")
    named = cluster.url.replace("://", "://counter:secret@")
    store = RedisStore.connect(named, prefix=key_prefix)
    count(Applier(store, SHAPES, lambda _: None, partitions=1), 0)
    assert store.queue.put_after_restart() == 1
    assert store.durability_warnings() == []
    assert users(store) == CATEGORICAL.shards
    refused = [
        entry for node in servers(store._client) for entry in _refused(node) if entry not in ("hello", "client|setinfo")
    ]
    for url, said in (
        (cluster.url.replace("://", "://stranger:secret@"), "user 'stranger' lacks a right at Redis"),
        (cluster.url.replace("://", "://counter:wrong@"), "does not accept user 'counter' with this password"),
    ):
        with pytest.raises(StoreDeniedError, match=said):
            RedisStore.connect(url, prefix=key_prefix).estimates.read("colour", 0)
    assert not refused
    store.close()


def _refused(client: Any) -> list[str]:
    """Return the commands that a node has refused to this user; none if it does not tell."""
    try:
        return [entry["object"] for entry in client.acl_log()]
    except redis.ResponseError:
        return []
