"""Shards and partitions: devices and workers compute the same, in both directions."""

import numpy as np
import pytest

from producers.wire.shards import partition_of, shards_of_partition


@pytest.mark.parametrize(("shards", "partitions"), [(64, 8), (1, 8), (7, 3), (4096, 1), (5, 5)])
def test_every_shard_belongs_to_one_partition_and_is_listed_there(shards: int, partitions: int) -> None:
    listed = [
        (shard, partition)
        for partition in range(partitions)
        for shard in shards_of_partition(partition, shards, partitions)
    ]
    assert sorted(listed) == [(shard, partition_of(shard, partitions)) for shard in range(shards)]


def test_arrays_of_shards_have_the_partitions_of_their_elements() -> None:
    shards = np.arange(20, dtype=np.int64)
    assert partition_of(shards, 6).tolist() == [partition_of(shard, 6) for shard in range(20)]
