"""The compiled check of keys says of every report what plain hashes say, however many and however mixed."""

from __future__ import annotations

import secrets

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.worker.key_chains import wrong_keys
from tests.support.keys import chain_of, hashed, is_key


@settings(max_examples=40)
@given(
    rungs=st.lists(st.integers(0, 6), min_size=1, max_size=70),
    bent=st.sets(st.integers(0, 69)),
    digest=st.binary(min_size=8, max_size=8),
    windows=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    bit=st.integers(0, 255),
)
def test_right_and_wrong_keys_are_told_apart(
    rungs: list[int], bent: set[int], digest: bytes, windows: list[int], bit: int
) -> None:
    tokens, keys, starts = [], [], []
    for place, rung in enumerate(rungs):
        window_ms = windows[place % len(windows)]
        chain = chain_of(secrets.token_bytes(16), 6, digest, window_ms)
        pair = bytearray(hashed(0, digest, window_ms, chain[0]) + chain[rung])
        if place in bent:
            pair[bit // 8] ^= 1 << bit % 8
        tokens.append(bytes(pair[:16]))
        keys.append(bytes(pair[16:]))
        starts.append(window_ms)
    words = np.frombuffer(b"".join(tokens + keys), dtype=np.uint64)
    at = 2 * np.arange(len(rungs))
    found = wrong_keys(words, at, at + 2 * len(rungs), np.array(starts), np.array(rungs), digest)
    plain = [
        is_key(*row, digest, start) for row, start in zip(zip(keys, tokens, rungs, strict=True), starts, strict=True)
    ]
    assert (~found).tolist() == plain
    assert found.tolist() == [place in bent for place in range(len(rungs))]
