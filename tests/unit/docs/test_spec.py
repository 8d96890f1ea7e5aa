"""The specification for clients: its vectors are what the code computes, and its layout that of the code."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from deploy import spec_vectors
from estimators.channels.bits import BitBlock, BitChannel
from estimators.exact.randomness import Words
from producers.wire.layout import COUNT_AT, DIGEST_AT, HEADER_BYTES, LENGTH_AT, SENT_AT, SHARD_AT, WINDOW_AT
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "spec" / "README.md").read_text()


def test_the_vectors_are_what_the_code_computes() -> None:
    assert spec_vectors.text() == spec_vectors.PATH.read_text(encoding="utf-8"), "run make generated"


def test_every_kind_of_vector_is_explained_and_every_explained_one_exists() -> None:
    found: dict[str, Any] = json.loads(spec_vectors.PATH.read_text(encoding="utf-8"))
    table = PAGE.split("## Vectors")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == found.keys() - {"version"}
    assert all(found.values())


def test_every_mechanism_of_the_page_and_of_the_web_client_has_draws() -> None:
    found: dict[str, Any] = json.loads(spec_vectors.PATH.read_text(encoding="utf-8"))
    drawn = {found["surveys"][one["survey"]]["decoding"]["mechanism"]["mechanism"] for one in found["draws"]}
    rows = re.findall(r"^\| (`.+`) \| \w+", PAGE.split("## Mechanisms")[1].split("\n## ")[0], flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == drawn
    known = (ROOT / "clients" / "web" / "mechanisms.js").read_text().split("const KNOWN = {")[1].split("};")[0]
    assert set(re.findall(r"(\w+): ", known)) == drawn


def test_the_layout_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ", PAGE.split("Every report leaves in a frame")[1], flags=re.MULTILINE)
    assert {DIGEST_AT, LENGTH_AT, WINDOW_AT, SENT_AT, SHARD_AT, COUNT_AT, HEADER_BYTES} <= set(map(int, rows))


class Given:
    """Words that are given."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> Words:
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)


@pytest.mark.parametrize(
    ("threshold", "word", "bit"),
    [
        (0, 0, 0),
        (1, 0, 1),
        (1, 1, 0),
        (1 << 63, (1 << 63) - 1, 1),
        (1 << 63, 1 << 63, 0),
        ((1 << 64) - 1, (1 << 64) - 2, 1),
        ((1 << 64) - 1, (1 << 64) - 1, 0),
        (1 << 64, (1 << 64) - 1, 1),
    ],
)
def test_a_device_sets_a_bit_exactly_where_its_word_is_below_the_threshold(threshold: int, word: int, bit: int) -> None:
    for one, zero, given in ((threshold, 5, 1), (5, threshold, 0)):
        channel = BitChannel((BitBlock(9, one, zero),))
        packed = np.array([[255 * given, given]], dtype=np.uint8)
        answer = channel.sample(packed, Given(*[word] * 9))
        assert answer.tolist() == [[255 * bit, bit]]
