"""Connections to Kafka: the settings in the form that each client library takes. Imports no client."""

from __future__ import annotations

import ssl
from typing import Any

from streams.settings import Settings


def kafka_python_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of kafka-python."""
    options = _python_options(settings)
    if uses_tls(settings):
        options |= {
            "ssl_cafile": settings.kafka_ca or None,
            "ssl_certfile": settings.kafka_cert or None,
            "ssl_keyfile": settings.kafka_key or None,
        }
    return options


def librdkafka_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of confluent-kafka."""
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.brokers),
        "security.protocol": settings.kafka_security,
        # Failures are logged here, once; librdkafka would write to stderr at every attempt.
        "log_level": 0,
        "reconnect.backoff.max.ms": 1_000,
    }
    if uses_tls(settings):
        given = {
            "ssl.ca.location": settings.kafka_ca,
            "ssl.certificate.location": settings.kafka_cert,
            "ssl.key.location": settings.kafka_key,
        }
        options |= {name: path for name, path in given.items() if path}
    if uses_sasl(settings):
        options |= {
            "sasl.mechanism": settings.kafka_sasl,
            "sasl.username": settings.kafka_user,
            "sasl.password": settings.kafka_password,
        }
    return options


def aiokafka_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of aiokafka."""
    options = _python_options(settings)
    if uses_tls(settings):
        options["ssl_context"] = tls_context(settings)
    return options


def _python_options(settings: Settings) -> dict[str, Any]:
    """Return what kafka-python and aiokafka call alike: all but TLS."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.brokers,
        "security_protocol": settings.kafka_security,
    }
    if uses_sasl(settings):
        options |= {
            "sasl_mechanism": settings.kafka_sasl,
            "sasl_plain_username": settings.kafka_user,
            "sasl_plain_password": settings.kafka_password,
        }
    return options


def uses_tls(settings: Settings) -> bool:
    """Tell whether the connection is encrypted."""
    return settings.kafka_security in ("SSL", "SASL_SSL")


def uses_sasl(settings: Settings) -> bool:
    """Tell whether the connection has a user and a password."""
    return settings.kafka_security.startswith("SASL_")


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Return the certificates of the settings."""
    context = ssl.create_default_context(cafile=settings.kafka_ca or None)
    if settings.kafka_cert:
        context.load_cert_chain(settings.kafka_cert, settings.kafka_key or None)
    return context
