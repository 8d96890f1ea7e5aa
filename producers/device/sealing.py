"""What levels that are added later need of a value, sealed with a key that is not in the ledger.

Encrypt-then-authenticate with HMAC-SHA-256 alone: a key stream of HMACs over a random nonce and a counter, and an HMAC
over everything. Whoever has the ledger without the key learns nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os

KEY_BYTES = 32
_NONCE_BYTES = 16
_TAG_BYTES = 32
_BLOCK_BYTES = 32


class Seal:
    """Seals and opens with one key, of the system's key store for example."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise ValueError(f"the key for values needs at least {KEY_BYTES} random bytes; got {len(key)}")
        self._stream_key, self._tag_key = (
            hmac.digest(key, b"thaw value 1 " + use, hashlib.sha256) for use in (b"stream", b"tag")
        )

    def closed(self, plain: bytes, about: bytes) -> bytes:
        """Return `plain` sealed; it can be opened with the same `about` only."""
        nonce = os.urandom(_NONCE_BYTES)
        body = nonce + self._mixed(plain, nonce)
        return body + self._tag(body, about)

    def opened(self, sealed: bytes, about: bytes) -> bytes | None:
        """Return what was sealed; None if it was changed, or sealed with another key or about something else."""
        body, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
        if len(body) < _NONCE_BYTES or not hmac.compare_digest(tag, self._tag(body, about)):
            return None
        return self._mixed(body[_NONCE_BYTES:], body[:_NONCE_BYTES])

    def _tag(self, body: bytes, about: bytes) -> bytes:
        return hmac.digest(self._tag_key, len(about).to_bytes(8, "little") + about + body, hashlib.sha256)

    def _mixed(self, text: bytes, nonce: bytes) -> bytes:
        blocks = range(-(-len(text) // _BLOCK_BYTES))
        stream = b"".join(
            hmac.digest(self._stream_key, nonce + block.to_bytes(8, "little"), hashlib.sha256) for block in blocks
        )
        return bytes(one ^ other for one, other in zip(text, stream, strict=False))
