"""The settings of the gateway: a part of the table in `streams.settings`, and what that table says of a setting."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

_ORIGIN: Final = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True)
class About:
    """What the table says about a setting besides its type and default."""

    help: str
    secret: bool = False
    address: bool = False
    """Whether it may name a user and a password, which are masked and never taken from a flag."""
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """Settings of `thaw gateway`. Field `gateway_port` is the variable `THAW_GATEWAY_PORT`, and so on."""

    gateway_port: Annotated[int, About("Port of the gateway; 0 for a free one.", low=0, high=65_535)] = 9733
    gateway_metrics_port: Annotated[
        int, About("Port of the gateway's metrics, apart from devices; 0 for a free one.", low=0, high=65_535)
    ] = 9734
    gateway_cert: Annotated[
        str, About("Certificate file with which the gateway listens with TLS; without TLS if empty.")
    ] = ""
    gateway_key: Annotated[str, About("Key file of the gateway's certificate, if not in the same file.")] = ""
    gateway_client_ca: Annotated[
        str, About("CA file: only clients with a certificate of this CA are let in (mutual TLS); any if empty.")
    ] = ""
    gateway_credentials: Annotated[
        str,
        About("File (TOML) of who may send, as digests of tokens and certificates; anonymous if empty."),
    ] = ""
    gateway_origins: Annotated[
        str, About("Origins whose web pages may use the gateway, separated by commas; * for any, none if empty.")
    ] = ""
    gateway_hold_ms: Annotated[
        int, About("How long the gateway holds reports to mix them, in ms; 0 sends at once.", low=0, high=60_000)
    ] = 1_000
    gateway_hold_reports: Annotated[
        int, About("Number of held reports that are mixed and sent before that time.", low=1, high=1_000_000)
    ] = 10_000
    gateway_rate: Annotated[
        int,
        About("Reports per second that a credential, or an anonymous network, may send; 0: any.", low=0, high=1 << 30),
    ] = 1_000
    gateway_memory_mib: Annotated[
        int, About("Memory for reports that no broker has yet, in MiB; then 503.", low=2, high=1 << 16)
    ] = 64
    gateway_signing_key: Annotated[
        str, About("File of the Ed25519 key (PEM) that signs survey files; they are served unsigned if empty.")
    ] = ""
    gateway_valid_hours: Annotated[
        int, About("How long a served survey file is valid, in hours.", low=1, high=24 * 366)
    ] = 168
    gateway_dealer: Annotated[
        str, About("URL of the dealer that devices are told to ask for cards; none if empty.", address=True)
    ] = ""


def origins_of(text: str) -> list[str]:
    """Return the origins that a setting lists.

    >>> origins_of("https://a.example, http://127.0.0.1:8000")
    ['https://a.example', 'http://127.0.0.1:8000']
    """
    return [origin.strip() for origin in text.split(",") if origin.strip()]


def are_origins(text: str) -> bool:
    """Tell whether a setting lists origins, or is * alone."""
    return text.strip() == "*" or all(_ORIGIN.fullmatch(origin) for origin in origins_of(text))
