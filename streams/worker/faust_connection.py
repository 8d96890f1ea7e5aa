"""The TLS and SASL settings in the form that Faust takes."""

from __future__ import annotations

from typing import Any

import faust
from faust.types.auth import AuthProtocol

from streams.connections import tls_context, uses_sasl, uses_tls
from streams.settings import Settings


def faust_credentials(settings: Settings) -> Any:
    """Return Faust's `broker_credentials`, None for a plain connection."""
    context = tls_context(settings) if uses_tls(settings) else None
    if uses_sasl(settings):
        credentials: Any = faust.SASLCredentials(
            username=settings.kafka_user, password=settings.kafka_password, ssl_context=context
        )
        credentials.protocol = AuthProtocol(settings.kafka_security)
        # aiokafka takes any mechanism, Faust's list of them lacks some; only its `.value` is read.
        credentials.mechanism = _Mechanism(settings.kafka_sasl)
        return credentials
    return faust.SSLCredentials(context) if context else None


class _Mechanism:
    """Stands for a member of Faust's enumeration of SASL mechanisms."""

    def __init__(self, value: str) -> None:
        self.value = value
