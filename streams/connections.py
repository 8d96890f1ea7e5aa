"""Kafka and Redis as the settings name them: how each client library wants to be told, and the store itself."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from streams.settings import Settings

if TYPE_CHECKING:
    from redis import Redis

    from streams.store.redis import RedisStore


def open_store(settings: Settings) -> RedisStore:
    """Return the store; it connects with its first call. Every thread needs one of its own."""
    from streams.store.redis import RedisStore

    url = settings.redis
    if settings.redis_ca and url.startswith("rediss://"):
        url += ("&" if "?" in url else "?") + f"ssl_ca_certs={quote(settings.redis_ca)}"
    return RedisStore.connect(url, prefix=settings.prefix)


def open_redis(settings: Settings) -> Redis:
    """Return a client for what lies beside the counts: heartbeats, the truth of simulated fleets."""
    from redis import Redis

    ca = {"ssl_ca_certs": settings.redis_ca} if settings.redis_ca and settings.redis.startswith("rediss://") else {}
    return Redis.from_url(
        settings.redis, socket_timeout=5.0, socket_connect_timeout=5.0, health_check_interval=30, **ca
    )


def kafka_python_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of kafka-python."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.brokers,
        "security_protocol": settings.kafka_security,
    }
    if _uses_tls(settings):
        options |= {
            "ssl_cafile": settings.kafka_ca or None,
            "ssl_certfile": settings.kafka_cert or None,
            "ssl_keyfile": settings.kafka_key or None,
        }
    if _uses_sasl(settings):
        options |= {
            "sasl_mechanism": settings.kafka_sasl,
            "sasl_plain_username": settings.kafka_user,
            "sasl_plain_password": settings.kafka_password,
        }
    return options


def librdkafka_options(settings: Settings) -> dict[str, Any]:
    """Return the connection for clients of confluent-kafka."""
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.brokers),
        "security.protocol": settings.kafka_security,
        # What goes wrong is told by our own log, once; librdkafka would write to stderr at every attempt.
        "log_level": 0,
        "reconnect.backoff.max.ms": 1_000,
    }
    if _uses_tls(settings):
        given = {
            "ssl.ca.location": settings.kafka_ca,
            "ssl.certificate.location": settings.kafka_cert,
            "ssl.key.location": settings.kafka_key,
        }
        options |= {name: path for name, path in given.items() if path}
    if _uses_sasl(settings):
        options |= {
            "sasl.mechanism": settings.kafka_sasl,
            "sasl.username": settings.kafka_user,
            "sasl.password": settings.kafka_password,
        }
    return options


def faust_credentials(settings: Settings) -> Any:
    """Return Faust's `broker_credentials`, None for a plain connection."""
    import faust
    from faust.types.auth import AuthProtocol

    context = _tls_context(settings) if _uses_tls(settings) else None
    if _uses_sasl(settings):
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


def _uses_tls(settings: Settings) -> bool:
    return settings.kafka_security in ("SSL", "SASL_SSL")


def _uses_sasl(settings: Settings) -> bool:
    return settings.kafka_security.startswith("SASL_")


def _tls_context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.kafka_ca or None)
    if settings.kafka_cert:
        context.load_cert_chain(settings.kafka_cert, settings.kafka_key or None)
    return context
