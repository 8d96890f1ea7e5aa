"""Bounded decompression of record batches: one that expands without end must not take the memory of its reader."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import cramjam
import numpy as np

MAX_BATCH_BYTES: Final = 16 << 20
"""Decompressed size of a record batch. Producers make batches of at most 1 MiB, some up to 8. Smaller: an unusual but
honest producer is refused. Larger: 32 kB of zstd can hold a gigabyte, and a worker holds some twenty fetches."""

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
_STREAMS: Final[dict[int, Any]] = {LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class CodecError(ValueError):
    """The bytes cannot be decompressed, or hold more than is allowed; the message says which."""


def decompress(codec: int, payload: bytes, limit: int = MAX_BATCH_BYTES) -> bytes:
    """Return the decompressed bytes of a batch.

    Raises:
        CodecError: the codec is unknown, the bytes are damaged, or there would be more than `limit`.
    """
    if codec == GZIP:
        return _gzip(payload, limit)
    if codec == SNAPPY:
        return _snappy(payload, limit)
    if codec not in _STREAMS:
        raise CodecError(f"unknown codec {codec}")
    # Memory that is not written to costs nothing.
    room = np.empty(limit, dtype=np.uint8)
    try:
        return room[: _STREAMS[codec].decompress_into(payload, room)].tobytes()
    except cramjam.DecompressionError as error:
        raise CodecError(f"damaged, or more than {limit} bytes ({error})") from error


def _gzip(payload: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    left = payload
    while left:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(left, limit + 1 - sum(map(len, parts))))
        except zlib.error as error:
            raise CodecError(f"damaged ({error})") from error
        if sum(map(len, parts)) > limit:
            raise CodecError(f"more than {limit} bytes")
        if not member.eof:
            raise CodecError("damaged (cut off)")
        left = member.unused_data
    return b"".join(parts)


def _snappy(payload: bytes, limit: int) -> bytes:
    """Decompress one raw block, as librdkafka writes it, or the blocks of xerial's stream, as Java does."""
    blocks = [payload]
    if payload.startswith(_XERIAL):
        blocks, at = [], _XERIAL_HEADER_BYTES
        while at < len(payload):
            if at + 4 > len(payload):
                raise CodecError("damaged (cut off)")
            (length,) = struct.unpack_from(">i", payload, at)
            if not 0 <= length <= len(payload) - at - 4:
                raise CodecError("damaged (length of a block)")
            blocks.append(payload[at + 4 : at + 4 + length])
            at += 4 + length
    try:
        if sum(cramjam.snappy.decompress_raw_len(block) for block in blocks) > limit:
            raise CodecError(f"more than {limit} bytes")
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
    except cramjam.DecompressionError as error:
        raise CodecError(f"damaged ({error})") from error
