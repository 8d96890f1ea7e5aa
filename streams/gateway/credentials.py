"""Who may send: anyone, holders of a token, or holders of a certificate.

A credential decides whether a request is taken and how much its holder may send. It is never written anywhere: not to
the log, not to a metric, and nothing of it goes to Kafka.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import ssl
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from producers.wire.layout import MAX_MESSAGE_BYTES
from streams.settings import Settings, SettingsError, readable_file

MOST_REQUEST_BYTES: Final = 16 << 20
"""The largest request that a credential can be allowed."""

_TOKEN, _CERTIFICATE = b"token", b"certificate"


class _Credential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    token_sha256: str = ""
    certificate_sha256: str = ""
    reports_per_second: int | None = None
    request_bytes: int = MAX_MESSAGE_BYTES


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    credential: list[_Credential]


@dataclass(frozen=True)
class Sender:
    """Who sent a request, as far as limits need it: a key that means nothing elsewhere, and what it may send."""

    key: bytes
    rate: int
    request_bytes: int


class Credentials:
    """Finds the sender of a request."""

    def __init__(self, settings: Settings) -> None:
        self._rate = settings.gateway_rate
        # New in every process: what is remembered of a sender for its rate means nothing to anybody else.
        self._secret = secrets.token_bytes(32)
        self._by_digest = _read(settings) if settings.gateway_credentials else None

    @property
    def anonymous(self) -> bool:
        """Whether requests need no token."""
        return self._by_digest is None

    def sender(self, request: web.Request) -> Sender | None:
        """Return who sent a request; None if it has no credential, or a wrong one."""
        if self._by_digest is not None:
            # Looked up by digest: the time tells nothing of a token that could be used.
            for kind, digest in _shown(request):
                found = self._by_digest.get((kind, digest))
                if found is not None:
                    rate = self._rate if found.reports_per_second is None else found.reports_per_second
                    return Sender(self._key(kind, digest), rate, found.request_bytes)
            return None
        certificate = _certificate(request)
        if certificate:
            return Sender(self._key(_CERTIFICATE, certificate), self._rate, MAX_MESSAGE_BYTES)
        return Sender(self._key(b"network", _network(request.remote)), self._rate, MAX_MESSAGE_BYTES)

    def _key(self, kind: bytes, name: bytes) -> bytes:
        return hmac.digest(self._secret, kind + b"\0" + name, hashlib.sha256)[:16]


def _shown(request: web.Request) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and digest of what a request shows: a token, a certificate."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield _TOKEN, hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
    certificate = _certificate(request)
    if certificate:
        yield _CERTIFICATE, hashlib.sha256(certificate).digest()


def _certificate(request: web.Request) -> bytes | None:
    """Return the certificate of a client, None without mutual TLS."""
    wire = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    return wire.getpeercert(binary_form=True) if isinstance(wire, ssl.SSLObject) else None


def _network(address: str | None) -> bytes:
    """Return the network that shares a limit: an IPv4 address, the /64 of an IPv6 one."""
    try:
        parsed = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return b"unknown"
    return parsed.packed if parsed.version == 4 else parsed.packed[:8]


def _read(settings: Settings) -> dict[tuple[bytes, bytes], _Credential]:
    path = readable_file("THAW_GATEWAY_CREDENTIALS", settings.gateway_credentials)
    try:
        found = msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), _File).credential
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from None
    by_digest: dict[tuple[bytes, bytes], _Credential] = {}
    for one in found:
        kind, digest = (_CERTIFICATE, one.certificate_sha256) if one.certificate_sha256 else (_TOKEN, one.token_sha256)
        if not re.fullmatch(r"[0-9a-f]{64}", digest) or (one.token_sha256 and one.certificate_sha256):
            raise _wrong(path, f"{one.name!r} needs one of both, 64 hexadecimal digits in lower case")
        if kind == _CERTIFICATE and not settings.gateway_client_ca:
            raise _wrong(path, f"no client shows the certificate of {one.name!r} without THAW_GATEWAY_CLIENT_CA")
        if not 0 <= (one.reports_per_second or 0) <= 1 << 30 or not 1 <= one.request_bytes <= MOST_REQUEST_BYTES:
            raise _wrong(
                path, f"{one.name!r} needs reports_per_second from 0 and request_bytes from 1 to {MOST_REQUEST_BYTES}"
            )
        by_digest[kind, bytes.fromhex(digest)] = one
    if len(by_digest) != len(found) or not found:
        raise _wrong(path, "it needs at least one [[credential]], each with a token or certificate of its own")
    return by_digest


def _wrong(path: str, why: str) -> SettingsError:
    return SettingsError(
        "THAW_GATEWAY_CREDENTIALS must be a TOML file of [[credential]] tables with name and token_sha256 or "
        f"certificate_sha256; got {path!r}: {why}"
    )
