"""Certificates for tests: an authority, a server's certificate of it, and an authority that nobody trusts."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class Certificates:
    """A certificate for this machine's loopback addresses, and the authority that signed it.

    Args:
        folder: where the files go.
        hosts: names and addresses that the certificate is for.
    """

    def __init__(self, folder: Path, *hosts: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority, self.stranger, self.server = folder / "ca.pem", folder / "other-ca.pem", folder / "server.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        trustme.CA().cert_pem.write_to_path(str(self.stranger))
        issued = authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")))
        # Java reads keys in this form alone.
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.server.write_bytes(b"".join([key, *(blob.bytes() for blob in issued.cert_chain_pems)]))
        self.server.chmod(0o600)
