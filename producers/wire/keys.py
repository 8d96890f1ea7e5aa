"""Keys of withdrawable surveys: a chain of hashes that ends in the token, so that only its device can go further.

With R rungs, 0 to R - 1, a device has one secret key k_R for each chain of answers, and

    k_r   = H(r + 1, k_r+1)      for r from R - 1 down to 0
    token = H(0, k_0)

A report of rung r carries k_r. Those who read it can compute the keys below, and not those above: they can check the
report and cannot make a sharper one. The report of rung R carries k_R and withdraws the answer.

H(step, key) is the first 16 bytes of SHA-256 over 48 bytes:

    offset  bytes
    0       12     `thaw.key.v2` and a zero
    12      1      step
    13      3      zeros
    16      8      survey digest
    24      8      window start, ms, little-endian as in the header of a frame
    32      16     key

Survey and window are hashed in, so that who searches for a key searches for one window only. The worker checks keys
in compiled code (`streams.worker.key_chains`), with the numbers from here.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.wire.layout import DIGEST_BYTES, KEY_BYTES

KEY_DOMAIN: Final = b"thaw.key.v2\x00"
KEY_INPUT: Final = struct.Struct(f"<{len(KEY_DOMAIN)}sB3x{DIGEST_BYTES}sq{KEY_BYTES}s")


def step_down(step: int, digest: bytes, window_ms: int, key: bytes) -> bytes:
    """Return H(step, key): the key of rung `step` - 1, or the token for step 0."""
    return hashlib.sha256(KEY_INPUT.pack(KEY_DOMAIN, step, digest, window_ms, key)).digest()[:KEY_BYTES]


def key_chain(secret: bytes, rungs: int, digest: bytes, window_ms: int) -> list[bytes]:
    """Return the token and then the keys of all rungs, the secret last: 2 + `rungs` of them.

    >>> chain = key_chain(bytes(16), 2, b"8 bytes.", 60_000)
    >>> len(chain), chain[-1] == bytes(16), chain[0] == step_down(0, b"8 bytes.", 60_000, chain[1])
    (4, True, True)
    """
    keys = [secret]
    for step in range(rungs, -1, -1):
        keys.append(step_down(step, digest, window_ms, keys[-1]))
    return keys[::-1]


def key_chains(secrets: NDArray[np.uint8], rungs: int, digest: bytes, window_ms: int) -> NDArray[np.uint8]:
    """Return the chains of many secrets (n, 16): (2 + rungs, n, 16), the tokens first."""
    chains = [key_chain(secret.tobytes(), rungs, digest, window_ms) for secret in secrets]
    rows = np.frombuffer(b"".join(key for chain in chains for key in chain), dtype=np.uint8)
    return np.ascontiguousarray(rows.reshape(len(secrets), rungs + 2, KEY_BYTES).swapaxes(0, 1))


def right_keys(
    tokens: NDArray[np.uint8], rungs: Sequence[int], keys: NDArray[np.uint8], digest: bytes, window_ms: int
) -> NDArray[np.bool_]:
    """Return which reports carry the key of their rung and token: a plain loop, for few reports."""
    right = np.empty(len(tokens), dtype=np.bool_)
    for place, (token, rung, key) in enumerate(zip(tokens, rungs, keys, strict=True)):
        found = key.tobytes()
        for step in range(int(rung), -1, -1):
            found = step_down(step, digest, window_ms, found)
        right[place] = found == token.tobytes()
    return right
