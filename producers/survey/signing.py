"""Ed25519 for survey documents; needs the package cryptography."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from producers.survey.document import Verify

KEY_BYTES = 32


class KeyFileError(ValueError):
    """A key cannot be used; the message says what it must be."""


class Signer:
    """Signs with the private key of a file (PEM), such as `openssl genpkey -algorithm ed25519` writes."""

    def __init__(self, path: str | Path) -> None:
        try:
            key = load_pem_private_key(Path(path).read_bytes(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm, OSError) as error:
            raise KeyFileError(f"{path} must be an Ed25519 key without a password (PEM): {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyFileError(f"{path} must be an Ed25519 key (PEM); make one: openssl genpkey -algorithm ed25519")
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    @property
    def public_text(self) -> str:
        """The public key in base64, as `verifier` takes it."""
        return base64.b64encode(self.public).decode()

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._key.sign(message)


def verifier(key: str) -> Verify:
    """Return the check of signatures against a public key: 32 bytes in base64, as the gateway says at its start."""
    try:
        raw = base64.b64decode(key, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != KEY_BYTES:
        raise KeyFileError(f"a key has {KEY_BYTES} bytes in base64, 44 signs; got {key!r}; the gateway's log has it")
    public = Ed25519PublicKey.from_public_bytes(raw)

    def verify(message: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return verify
