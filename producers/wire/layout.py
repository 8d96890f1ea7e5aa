"""Where every field of a frame lies, by version. All readers and writers of frames take their numbers from here.

A message is one or more frames back to back. All versions begin alike, so that a reader can skip a frame whose version
it does not know:

    offset  bytes
    0       3      `THW`
    3       1      version
    4       4      total length of the frame, a multiple of 8

Version 1, little-endian:

    8       8      survey digest
    16      8      window start, ms
    24      8      sent, ms
    32      2      shard
    34      4      number of reports n
    38      2      zero
    40             columns, each padded with zeros to a multiple of 8:
                   tokens 16 n, answers width n, rungs n, groups 2 n (absent if the survey has one group)

Version 2 is version 1 with one more column at its end: keys, 16 n. Surveys whose answers can be withdrawn have it, and
no other; `producers.wire.keys` says what a key is. A report of the rung behind the last one is a withdrawal.

`sent` is when a simulated report was sent; a real device writes the public moment at which the rung opened (the
window's start for rung 0), since the error of its own clock would identify it in every window.

There is no message key and no field that outlives a window. The width of an answer and whether groups are present
follow from the survey, so a frame cannot contradict it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

WORD_BYTES: Final = 8
"""Frames and columns are padded to whole words, so that compiled code reads them in one step each."""

# All versions.
MAGIC: Final = b"THW"
MAGIC_AT: Final = 0
VERSION_AT: Final = 3
LENGTH_AT: Final = 4
PREFIX: Final = struct.Struct("<3sBI")

# Versions 1 and 2.
PLAIN_VERSION: Final = 1
KEYED_VERSION: Final = 2
"""The two that this release writes, and that the compiled loops of the worker read."""
DIGEST_AT: Final = 8
DIGEST_BYTES: Final = 8
WINDOW_AT: Final = 16
SENT_AT: Final = 24
SHARD_AT: Final = 32
COUNT_AT: Final = 34
HEADER_BYTES: Final = 40
HEADER: Final = struct.Struct("<3sBI8sqqHI2x")

TOKEN_BYTES: Final = 16
TOKEN_NAME_BYTES: Final = 13
"""The first bytes of a token name its chain inside a shard; the others give the shard and are not stored."""
RUNG_BYTES: Final = 1
GROUP_BYTES: Final = 2
GROUP_TYPE: Final = "<u2"
KEY_BYTES: Final = 16
"""As long as a token, which is a hash of keys."""
SMALLEST_REPORT_BYTES: Final = TOKEN_BYTES + 1 + RUNG_BYTES

MAX_REPORTS: Final = 65_536
MAX_MESSAGE_BYTES: Final = 1 << 20
PACK_BYTES: Final = MAX_MESSAGE_BYTES - 4096
"""What senders fill: a broker with default settings counts its own headers towards a limit of about 1 MiB."""

SCHEMA_HEADER: Final = ("schema", b"thaw.frame.v1")
"""The only header of a Kafka record: it says how to read the record and nothing about its sender. The same for all
versions, since a message may hold frames of several."""


def padded(size: int) -> int:
    """Return `size` rounded up to whole words."""
    return size + -size % WORD_BYTES


@lru_cache(maxsize=4_096)
def _column_bytes(items: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the padded lengths of columns with items of these sizes; asked for several times for every frame."""
    return tuple(padded(size * count) for size in items)


@dataclass(frozen=True)
class Layout:
    """What a survey fixes about its reports: answer width in bytes, whether there are columns of groups and of keys."""

    width: int
    grouped: bool
    keyed: bool = False

    @property
    def version(self) -> int:
        """The version of its frames."""
        return KEYED_VERSION if self.keyed else PLAIN_VERSION

    @property
    def _item_bytes(self) -> tuple[int, ...]:
        groups, keys = (GROUP_BYTES,) * self.grouped, (KEY_BYTES,) * self.keyed
        return (TOKEN_BYTES, self.width, RUNG_BYTES, *groups, *keys)

    @property
    def report_bytes(self) -> int:
        """Bytes of one report over all columns, without padding."""
        return sum(self._item_bytes)

    def column_bytes(self, count: int) -> tuple[int, ...]:
        """Return the padded lengths of the columns of `count` reports: tokens, answers, rungs, any groups, any keys."""
        return _column_bytes(self._item_bytes, count)

    def frame_bytes(self, count: int) -> int:
        """Return the length of a frame of `count` reports."""
        return HEADER_BYTES + sum(self.column_bytes(count))

    def fitting(self, limit_bytes: int = PACK_BYTES) -> int:
        """Return how many reports fit into a frame of at most limit_bytes, 0 if not even one does."""
        count = min(max(limit_bytes - HEADER_BYTES, 0) // self.report_bytes, MAX_REPORTS)
        while count and self.frame_bytes(count) > limit_bytes:
            count -= 1
        return count
