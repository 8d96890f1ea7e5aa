"""What only a cluster has: keys on several nodes, slots that move, nodes that are away, users of every node.

All of it without TLS and with it, `redis+cluster://` and `rediss+cluster://`.
"""

from __future__ import annotations

import random
import threading
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


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A cluster of this file's own: its slots move, and its users change."""
    folder = tmp_path_factory.mktemp("own-cluster")
    with started(lambda: RedisCluster(folder, secured=request.param)) as own:
        yield own


def connected(cluster: RedisCluster, prefix: str, url: str = "") -> RedisStore:
    """Return a store on the cluster, at an address of one's own if given."""
    return RedisStore.connect(url or cluster.url, prefix=prefix, ca_file=cluster.ca_file)


def single(cluster: RedisCluster) -> str:
    """Return the address of one of its nodes, as of a server that stands alone."""
    return "{}{}:{}/0".format(cluster.scheme.replace("+cluster", ""), *cluster.nodes[0].place)


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
    store = connected(cluster, key_prefix)
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
    assert users(connected(cluster, key_prefix)) == counted * CATEGORICAL.shards
    store.close()


def test_a_slot_that_is_half_moved_is_waited_for_and_counted_once(
    cluster: RedisCluster, key_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = connected(cluster, key_prefix)
    applier = Applier(store, SHAPES, lambda _: None, partitions=1)
    count(applier, 0)
    source, target = cluster.nodes[1:3]
    slot = next(slot for slot in cluster.slots_of(source) if source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) > 2)
    cluster.begin_to_move(slot, source, target)
    assert cluster.move_keys(slot, source, target, count=1) == 1
    counting = threading.Thread(target=count, args=(applier, 1))
    counting.start()
    try:
        until(lambda: "moves from one node to another" in caplog.text, 60, "the worker to say what it waits for")
        assert counting.is_alive()
    finally:
        while cluster.move_keys(slot, source, target):
            pass
        cluster.end_to_move(slot, source, target)
        counting.join()
    assert users(store) == 2 * CATEGORICAL.shards
    assert users(connected(cluster, key_prefix)) == 2 * CATEGORICAL.shards
    store.close()


def test_the_restart_of_any_node_is_noticed_and_windows_of_all_nodes_are_found(
    cluster: RedisCluster, key_prefix: str
) -> None:
    store = connected(cluster, key_prefix)
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
    store = connected(cluster, key_prefix)
    base = f"{key_prefix}thaw:v1:"
    for survey_id in ("a", "b", "c", "d"):
        store._client.rpush(f"{base}{{{survey_id}}}:estimate:5", "x")
    with pytest.raises(StoreUnavailableError, match="removed keys of a wrong type"):
        store.estimates.read("a", 5)
    assert [store.estimates.read(survey_id, 5) for survey_id in ("a", "b", "c", "d")] == [None] * 4
    store.close()


def test_one_address_of_a_running_node_is_enough_and_none_is_named(cluster: RedisCluster, key_prefix: str) -> None:
    one = connected(cluster, key_prefix, "{}127.0.0.1:1,{}:{}".format(cluster.scheme, *cluster.nodes[1].place))
    assert one.durability_warnings() == []
    assert one.now_ms() > 0
    with pytest.raises(StoreUnavailableError, match=r"Redis.* at 127\.0\.0\.1:1,127\.0\.0\.1:2"):
        connected(cluster, key_prefix, f"{cluster.scheme}127.0.0.1:1,127.0.0.1:2").now_ms()
    truths = open_truths(Settings(redis=cluster.url, redis_ca=cluster.ca_file, prefix=key_prefix))
    truths.post("colour", 0, "b", {"numerators": [1], "denominators": [2], "devices": 2, "blocks": 1, "settled": True})
    assert truths.read("colour", 0) is not None


def test_a_client_of_one_server_is_told_to_use_the_cluster(cluster: RedisCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=r"is part of a cluster; write redis\+cluster://"):
        connected(cluster, "", single(cluster)).log.offsets("topic", 0, range(64))


def test_a_user_with_the_documented_rights_can_count_and_one_without_is_named(
    cluster: RedisCluster, key_prefix: str
) -> None:
    rule = redis_rights(key_prefix, cluster=True)["thaw worker, thaw rebuild, thaw topics migrate"].rule()
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "counter", "reset", "on", ">secret", *rule.split())
        node.ask("ACL", "SETUSER", "stranger", "reset", "on", ">secret", "+cluster|slots", "+command")
    named = cluster.url.replace("://", "://counter:secret@")
    store = connected(cluster, key_prefix, named)
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
            connected(cluster, key_prefix, url).estimates.read("colour", 0)
    if cluster.certificates is not None:
        for ca_file in (str(cluster.certificates.stranger), None):
            with pytest.raises(StoreUnavailableError, match=r"its certificate is not trusted: .*; check THAW_REDIS_CA"):
                RedisStore.connect(cluster.url, ca_file=ca_file).now_ms()
    assert not refused
    store.close()


def _refused(client: Any) -> list[str]:
    """Return the commands that a node has refused to this user; none if it does not tell."""
    try:
        return [entry["object"] for entry in client.acl_log()]
    except redis.ResponseError:
        return []
