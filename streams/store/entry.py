"""Where every field of an entry lies: one packed report in a report log. Table, kernels and store take it from here.

offset      bytes
0           13     the token without its last three bytes, which give the shard
13          1      rung + 1, never 0: an entry is never all zeros, and an empty slot of a table is
14          width  answer
14 + width  2      group, if the survey has more than one
                   zeros up to a multiple of 8
"""

from __future__ import annotations

from typing import Final

from producers.wire.layout import GROUP_BYTES, RUNG_BYTES, TOKEN_NAME_BYTES, padded

RUNG_AT: Final = TOKEN_NAME_BYTES
ANSWER_AT: Final = RUNG_AT + RUNG_BYTES


def entry_bytes(width: int, groups: int) -> int:
    """Return the length of an entry of a survey with answers of `width` bytes."""
    return padded(ANSWER_AT + width + (GROUP_BYTES if groups > 1 else 0))
