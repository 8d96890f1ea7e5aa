"""Which shard a token belongs to, and which partition a shard belongs to. Devices and workers must agree on both."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from producers.wire.layout import TOKEN_BYTES, TOKEN_NAME_BYTES

_Shard = TypeVar("_Shard", int, NDArray[np.int64])


def shards_of(tokens: NDArray[np.uint8], shards: int) -> NDArray[np.int64]:
    """Return the shard of each token: its last three bytes, little-endian, modulo the number of shards.

    The other thirteen bytes are what the store keeps, so that they stay uniform inside a shard.
    """
    tail = tokens[:, TOKEN_NAME_BYTES:TOKEN_BYTES].astype(np.int64)
    return (tail[:, 0] | tail[:, 1] << 8 | tail[:, 2] << 16) % shards


def partition_of(shard: _Shard, partitions: int) -> _Shard:
    """Return the partition of a shard, or of each of an array of shards.

    >>> partition_of(13, 8)
    5
    """
    return shard % partitions


def shards_of_partition(partition: int, shards: int, partitions: int) -> range:
    """Return the shards, out of 0 to `shards` - 1, that belong to a partition: the inverse of `partition_of`.

    >>> list(shards_of_partition(5, 64, 8))
    [5, 13, 21, 29, 37, 45, 53, 61]
    """
    return range(partition, shards, partitions)
