"""Keys of withdrawable surveys in plain Python that shares nothing with `producers.wire.keys`."""

from __future__ import annotations

import hashlib

_CHAINS: dict[bytes, list[bytes]] = {}


def hashed(step: int, digest: bytes, window_ms: int, key: bytes) -> bytes:
    """Return H(step, key) as docs/withdrawals.md has it, field after field."""
    message = b"thaw.key.v2\0" + bytes([step, 0, 0, 0]) + digest + window_ms.to_bytes(8, "little", signed=True) + key
    assert len(message) == 48
    return hashlib.sha256(message).digest()[:16]


def chain_of(secret: bytes, rungs: int, digest: bytes, window_ms: int) -> list[bytes]:
    """Return k_0, ..., k_R of a secret k_R; its token is remembered for `key_of`."""
    keys = [secret]
    for step in range(rungs, 0, -1):
        keys.insert(0, hashed(step, digest, window_ms, keys[0]))
    _CHAINS[hashed(0, digest, window_ms, keys[0])] = keys
    return keys


def key_of(token: bytes, rung: int) -> bytes:
    """Return the key of a rung of a token that was made here; zeros if there is none."""
    keys = _CHAINS.get(token, [])
    return keys[rung] if rung < len(keys) else bytes(16)


def is_key(key: bytes, token: bytes, rung: int, digest: bytes, window_ms: int) -> bool:
    """Tell whether a key is that of this rung and token."""
    for step in range(rung, -1, -1):
        key = hashed(step, digest, window_ms, key)
    return key == token
