"""A key pair for bulletins in tests, and surveys that name it."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from producers.survey.signing import Signer
from producers.survey.survey import Survey
from tests.support.surveys import survey, survey_text


def signer_in(folder: Path, name: str = "key.pem") -> Signer:
    """Write a new private key into a folder and return what signs with it."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / name).write_bytes(pem)
    return Signer(folder / name)


def release_of(signer: Signer, width: float = 0.2) -> dict[str, str]:
    """Return the lines of a survey file that let bulletins open its levels."""
    return {
        "kind": f'kind = "while_wide"\nwidth = {width}\nkey = "{signer.public_text}"',
    }


def while_wide(signer: Signer, width: float = 0.2, **changes: str) -> Survey:
    """Return a survey whose levels are opened by bulletins."""
    return survey(**release_of(signer, width), **changes)


def while_wide_text(signer: Signer, width: float = 0.2, **changes: str) -> str:
    """Return the file of such a survey."""
    return survey_text(**release_of(signer, width), **changes)


def signing_key(beside: str) -> str:
    """Write a new private key beside a file, and return its path."""
    folder = Path(beside).parent
    signer_in(folder, "signing.pem")
    return str(folder / "signing.pem")
