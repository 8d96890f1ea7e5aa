"""Connections: the settings in the form that each client library takes. Imports no client."""

from __future__ import annotations

import ssl
from typing import Any

from streams.settings import Settings, SettingsError, readable_file
from streams.urls import redis_files


def kafka_python_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of kafka-python."""
    options = _python_options(settings)
    if uses_tls(settings):
        ca, cert, key = tls_files(settings)
        options |= {
            "ssl_cafile": ca or None,
            "ssl_certfile": cert or None,
            "ssl_keyfile": key or None,
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
        ca, cert, key = tls_files(settings)
        given = {
            "ssl.ca.location": ca,
            "ssl.certificate.location": cert,
            "ssl.key.location": key,
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
    ca, cert, key = tls_files(settings)
    context = ssl.create_default_context(cafile=ca or None)
    if cert:
        context.load_cert_chain(cert, key or None)
    return context


def check_connection(settings: Settings) -> None:
    """Raise SettingsError if certificates or keys of the settings cannot be used, before anything is connected."""
    if uses_tls(settings):
        tls_files(settings)
    redis_ca_file(settings)


def redis_ca_file(settings: Settings) -> str | None:
    """Return the CA file of a server or cluster with TLS.

    Raises:
        SettingsError: it cannot be read, or holds no certificates; or a file that the URL names cannot be read.
    """
    if not settings.redis.startswith("rediss"):
        return None
    for name, file in redis_files(settings.redis).items():
        readable_file(f"{name} in THAW_REDIS", file)
    path = readable_file("THAW_REDIS_CA", settings.redis_ca)
    _check_ca("THAW_REDIS_CA", path)
    return path or None


def tls_files(settings: Settings) -> tuple[str, str, str]:
    """Return the files of CA, certificate and key; empty where a setting names none.

    Raises:
        SettingsError: a file cannot be read, or holds something else.
    """
    ca = readable_file("THAW_KAFKA_CA", settings.kafka_ca)
    cert = readable_file("THAW_KAFKA_CERT", settings.kafka_cert)
    key = readable_file("THAW_KAFKA_KEY", settings.kafka_key)
    _check_ca("THAW_KAFKA_CA", ca)
    if cert:
        _load_pair(ssl.create_default_context(), "THAW_KAFKA", cert, key)
    return ca, cert, key


def server_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the certificate of the exporter; None if it has none.

    Raises:
        SettingsError: a file cannot be read, or holds something else.
    """
    return _listening("THAW_EXPORTER", settings.exporter_cert, settings.exporter_key)


def gateway_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the certificate of the gateway, which asks clients for theirs if they need one; None if it has none.

    Raises:
        SettingsError: a file cannot be read, or holds something else.
    """
    context = _listening("THAW_GATEWAY", settings.gateway_cert, settings.gateway_key)
    ca = readable_file("THAW_GATEWAY_CLIENT_CA", settings.gateway_client_ca)
    if not ca:
        return context
    if context is None:
        raise SettingsError(f"THAW_GATEWAY_CLIENT_CA needs THAW_GATEWAY_CERT: clients show theirs in TLS; got {ca!r}")
    _check_ca("THAW_GATEWAY_CLIENT_CA", ca)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _listening(variables: str, cert: str, key: str) -> ssl.SSLContext | None:
    """Return the context of a server with this certificate; None if there is none."""
    cert, key = readable_file(f"{variables}_CERT", cert), readable_file(f"{variables}_KEY", key)
    if not cert:
        if key:
            raise SettingsError(f"{variables}_KEY needs {variables}_CERT, its certificate; got {key!r} alone")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_pair(context, variables, cert, key)
    return context


def _load_pair(context: ssl.SSLContext, variables: str, cert: str, key: str) -> None:
    """Load a certificate and its key; raise SettingsError unless they are such a pair."""
    try:
        context.load_cert_chain(cert, key or None, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{variables}_CERT and {variables}_KEY must be a certificate and its key (PEM); got {cert!r} and "
            f"{key!r}: {told}"
        ) from None


def _no_password() -> str:
    """Refuse a key with a password, for which OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password; store it without one, readable for this process alone")


def _check_ca(variable: str, path: str) -> None:
    """Raise SettingsError unless the file holds certificates; an empty path is fine."""
    if not path:
        return
    try:
        ssl.create_default_context(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"{variable} must be a file of certificates (PEM); got {path!r}: {error.strerror or error}"
        ) from None
