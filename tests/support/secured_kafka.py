"""A real broker with passwords (SASL/PLAIN) and access control, and the settings of its users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from streams.connections import librdkafka_options
from streams.kafka.rights import Right
from streams.local.kafka import ApacheKafka, KafkaProbe
from streams.local.process import Child, wait_until_ready
from streams.local.service import START_SECONDS
from streams.settings import Settings

ADMIN = "admin"
_OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}


def password_of(user: str) -> str:
    return f"password-of-{user}"


class SecuredKafka(ApacheKafka):
    """One Apache Kafka that asks for a password and lets a user do what an access control list allows, and no more."""

    def __init__(self, users: Iterable[str]) -> None:
        super().__init__()
        self._users = [ADMIN, *users]

    def settings(self, user: str, like: Settings) -> Settings:
        """Return the settings of a user."""
        return replace(
            like,
            kafka=self.address,
            kafka_security="SASL_PLAINTEXT",
            kafka_sasl="PLAIN",
            kafka_user=user,
            kafka_password=password_of(user),
        )

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        """Give a user rights."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC if right.resource == "topic" else ResourceType.GROUP,
                right.name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[operation.lower()],
                AclPermissionType.ALLOW,
            )
            for right in rights
            for operation in right.operations
        ]
        admin = AdminClient(librdkafka_options(self.settings(ADMIN, Settings())))
        for future in admin.create_acls(bindings, request_timeout=30).values():
            future.result(timeout=60)

    def _properties(self, data: Path) -> str:
        users = " ".join(f'user_{user}="{password_of(user)}"' for user in self._users)
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{ADMIN}" password="{password_of(ADMIN)}" {users};'
        )
        return "\n".join(
            [
                super()._properties(data),
                "listener.security.protocol.map=BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "sasl.enabled.mechanisms=PLAIN",
                "sasl.mechanism.inter.broker.protocol=PLAIN",
                f"listener.name.broker.plain.sasl.jaas.config={login}",
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The controller's listener is on loopback and asks for no password.
                f"super.users=User:{ADMIN};User:ANONYMOUS",
            ]
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        probe = KafkaProbe(self.address, settings=librdkafka_options(self.settings(ADMIN, Settings())))
        wait_until_ready(child, probe, seconds=START_SECONDS, what=f"Kafka's metadata from {self.address}")
