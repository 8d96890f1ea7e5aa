"""The layout constants agree with each other: the table of offsets, the packing of the header, the columns."""

import struct

import pytest

from producers.wire import layout
from producers.wire.layout import Layout


def test_the_header_is_packed_at_the_offsets_of_the_table() -> None:
    fields = {"s": b"\x11" * 8, "q1": 0x2222, "q2": 0x3333, "H": 0x4444, "I": 0x5555}
    raw = layout.HEADER.pack(layout.MAGIC, 7, 0x6666, *fields.values())
    assert len(raw) == layout.HEADER_BYTES
    assert layout.PREFIX.unpack_from(raw) == (layout.MAGIC, 7, 0x6666)
    assert raw[layout.MAGIC_AT :].startswith(layout.MAGIC)
    assert raw[layout.VERSION_AT] == 7
    places = {"I": layout.LENGTH_AT, "8s": layout.DIGEST_AT, "q": layout.WINDOW_AT}
    assert [struct.unpack_from(f"<{form}", raw, at)[0] for form, at in places.items()] == [0x6666, fields["s"], 0x2222]
    assert struct.unpack_from("<q", raw, layout.SENT_AT) == (0x3333,)
    assert struct.unpack_from("<HI", raw, layout.SHARD_AT) == (0x4444, 0x5555)
    assert layout.COUNT_AT == layout.SHARD_AT + 2


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_columns_are_padded_and_frames_fill_their_limit(width: int, grouped: bool) -> None:
    made = Layout(width, grouped)
    for count in (1, 7, 8, 1000):
        assert all(size % layout.WORD_BYTES == 0 for size in made.column_bytes(count))
        assert made.frame_bytes(count) >= layout.HEADER_BYTES + count * made.report_bytes
        assert made.fitting(made.frame_bytes(count)) >= count
    assert made.fitting(layout.HEADER_BYTES) == 0
