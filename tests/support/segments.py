"""Damages record batches in a running broker's log on disk: what a producer cannot send, a disk can do."""

import struct
from collections.abc import Callable
from pathlib import Path

import crc32c

from streams.local.kafka import ApacheKafka

MAGIC_AT, CRC_AT, ATTRIBUTES_AT, HEADER_BYTES = 16, 17, 21, 61


def damage(kafka: ApacheKafka, topic: str, partition: int, offset: int, change: Callable[[bytearray], None]) -> None:
    """Change the batch that begins at an offset, in place; the broker serves its log straight from the file."""
    segment: Path = kafka.folder / "data" / f"{topic}-{partition}" / "00000000000000000000.log"
    raw, at = segment.read_bytes(), 0
    while at < len(raw):
        base, length = struct.unpack_from(">qi", raw, at)
        if base == offset:
            batch = bytearray(raw[at : at + 12 + length])
            change(batch)
            with segment.open("r+b") as file:
                file.seek(at)
                file.write(batch)
            return
        at += 12 + length
    raise AssertionError(f"no batch begins at {topic}[{partition}]@{offset}")


def flip_a_byte(batch: bytearray) -> None:
    """Change the payload, so that the checksum is wrong."""
    batch[-1] ^= 0xFF


def unknown_magic(batch: bytearray) -> None:
    """Claim a format that does not exist yet."""
    batch[MAGIC_AT] = 9


def unknown_codec(batch: bytearray) -> None:
    """Claim codec 7, with a right checksum."""
    batch[ATTRIBUTES_AT + 1] |= 7
    seal(batch)


def garbage_records(batch: bytearray) -> None:
    """Fill the records with garbage, with a right checksum."""
    batch[HEADER_BYTES:] = bytes(range(256)) * ((len(batch) - HEADER_BYTES) // 256 + 1)
    del batch[12 + struct.unpack_from(">i", batch, 8)[0] :]
    seal(batch)


def broken_gzip(batch: bytearray) -> None:
    """Claim gzip for what is not, with a right checksum."""
    batch[ATTRIBUTES_AT + 1] |= 1
    seal(batch)


def seal(batch: bytearray) -> None:
    """Write the right checksum."""
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(bytes(batch[ATTRIBUTES_AT:])))


DAMAGES = (flip_a_byte, unknown_magic, unknown_codec, garbage_records, broken_gzip)
