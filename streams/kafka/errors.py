"""Errors of Kafka in plain words: which right is missing, which password is wrong, which host is unknown.

A broker that refuses a password closes the connection, and librdkafka tries again until the call times out; only the
client's error callback hears the reason. `Troubles` keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

from streams.connections import librdkafka_options, uses_sasl
from streams.failures import OutsideError, UnavailableError
from streams.settings import Settings, SettingsError

_SLICE_SECONDS: Final = 1.0
"""How long one attempt may take before the callback is asked for a reason."""
_RIGHTS: Final = "docs/settings.md#rights-at-the-broker lists the rights that each command needs"
_FINAL: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
"""Reasons that do not go away by waiting."""
DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Answers that say: this user lacks a right."""

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")


class KafkaDeniedError(OutsideError):
    """The broker refuses this user: a wrong password or a missing right. The message names it."""


class KafkaDownError(UnavailableError):
    """No broker answers; the message says what was tried."""


def answer_of(future: Future[Any], seconds: float) -> Any:
    """Return what the client's future brings.

    Raises:
        KafkaException: the broker refuses, or the client did not end the request within `seconds`.
    """
    try:
        return future.result(timeout=seconds)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {seconds:g} s")) from error


class _Polled(Protocol):
    def poll(self, timeout: float) -> object:
        """Serve callbacks."""
        ...


class Troubles:
    """What librdkafka reported to its error callback, and its errors as sentences."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: KafkaError | None = None

    def client(self, make: Callable[[dict[str, Any]], _Client], **options: Any) -> _Client:
        """Build a client whose errors are kept here.

        Raises:
            SettingsError: the client refuses the settings.
        """
        try:
            return make(librdkafka_options(self._settings) | {"error_cb": self._note} | options)
        except (KafkaException, ValueError) as error:
            what = error.args[0].str() if isinstance(error, KafkaException) else error
            raise SettingsError(f"the Kafka client refuses the settings THAW_KAFKA_*: {what}") from error

    def asked(self, client: _Polled, ask: Callable[[float], _Answer], seconds: float) -> _Answer:
        """Call `ask` with a time limit until it answers, for `seconds` in all; give up at once if waiting cannot help.

        Raises:
            KafkaDeniedError: a wrong password or a missing right.
            KafkaDownError: no answer.
        """
        limit = time.monotonic() + seconds
        while True:
            try:
                answer = ask(max(min(_SLICE_SECONDS, limit - time.monotonic()), 0.05))
            except KafkaException as error:
                client.poll(0)
                failure: KafkaError = error.args[0]
                if self._is_final(failure) or time.monotonic() >= limit:
                    raise self.explained(failure) from error
            else:
                self.forget()
                return answer

    @property
    def known(self) -> bool:
        """Whether the client has reported a reason since the broker answered last."""
        return self._last is not None

    def forget(self) -> None:
        """Forget what was reported: the broker has answered since."""
        self._last = None

    def explained(self, error: KafkaError, what: str = "") -> OutsideError:
        """Return an error of the client as a sentence with its remedy; `what` is what was asked for."""
        if error.code() in DENIED:
            return self.denied(what or error.str())
        kept = self._last if self._last is not None else error
        if kept.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return KafkaDeniedError(
                f"the broker at {self._settings.kafka} does not accept {self._user} with this password "
                f"({self._settings.kafka_sasl}); check THAW_KAFKA_USER, THAW_KAFKA_PASSWORD and THAW_KAFKA_SASL"
            )
        if kept.code() == KafkaError._SSL:
            return KafkaDeniedError(
                f"no TLS connection to {self._settings.kafka}: {kept.str()}; check THAW_KAFKA_SECURITY, THAW_KAFKA_CA, "
                "THAW_KAFKA_CERT and THAW_KAFKA_KEY"
            )
        return KafkaDownError(
            f"no broker answered at {self._settings.kafka} ({kept.str()}); check THAW_KAFKA and THAW_KAFKA_SECURITY"
        )

    def denied(self, action: str) -> KafkaDeniedError:
        """Return the sentence for a missing right: what this user tried to do."""
        return KafkaDeniedError(f"{self._user} has no right to {action}; {_RIGHTS}")

    @property
    def _user(self) -> str:
        return f"user {self._settings.kafka_user!r}" if uses_sasl(self._settings) else "this client"

    def _is_final(self, error: KafkaError) -> bool:
        return error.code() in _FINAL | DENIED or (self._last is not None and self._last.code() in _FINAL)

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows the reason and says less; rights are told by the call that lacks one.
        if error.code() not in DENIED | {KafkaError._ALL_BROKERS_DOWN} and (
            self._last is None or self._last.code() not in _FINAL
        ):
            self._last = error
