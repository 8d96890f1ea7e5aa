"""A real broker with TLS, passwords (SASL/SCRAM) and access control, and the settings of its users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from streams.connections import librdkafka_options
from streams.kafka.rights import Right
from streams.local.kafka import ApacheKafka, KafkaProbe
from streams.local.process import Child, wait_until_ready
from streams.local.service import START_SECONDS
from streams.settings import Settings
from tests.support.certificates import Certificates

ADMIN = "admin"
_OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}
_ITERATIONS = 4_096
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def password_of(user: str) -> str:
    return f"password-of-{user}"


class SecuredKafka(ApacheKafka):
    """One Apache Kafka with TLS that asks for a password and lets a user do what an access control list allows.

    Its administrator, who makes the others, has a password in the broker's configuration (PLAIN); all others are
    users of SCRAM.
    """

    def __init__(self, users: Iterable[str]) -> None:
        super().__init__()
        self._users = list(users)
        self._made = False

    @cached_property
    def certificates(self) -> Certificates:
        return Certificates(self.folder / "certificates")

    def settings(self, user: str, like: Settings) -> Settings:
        """Return the settings of a user."""
        return replace(
            like,
            kafka=self.address,
            kafka_security="SASL_SSL",
            kafka_ca=str(self.certificates.authority),
            kafka_sasl="PLAIN" if user == ADMIN else "SCRAM-SHA-512",
            kafka_user=user,
            kafka_password=password_of(user),
        )

    def start(self) -> Self:
        super().start()
        if not self._made:
            self._make_users()
            self._made = True
        return self

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        """Give a user rights."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC if right.resource == "topic" else ResourceType.GROUP,
                right.name,
                ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[operation.lower()],
                AclPermissionType.ALLOW,
            )
            for right in rights
            for operation in right.operations
        ]
        admin = self._admin()
        for future in admin.create_acls(bindings, request_timeout=30).values():
            future.result(timeout=60)

    def set_topic(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic, as its administrator may."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(30)

    def _admin(self) -> AdminClient:
        return AdminClient(librdkafka_options(self.settings(ADMIN, Settings())))

    def _make_users(self) -> None:
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        made: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, how, password_of(user).encode()) for user in self._users
        ]
        admin = self._admin()
        for future in admin.alter_user_scram_credentials(made, request_timeout=30).values():
            future.result(timeout=60)

    def _properties(self, data: Path) -> str:
        password = password_of(ADMIN)
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
        )
        return "\n".join(
            [
                super()._properties(data),
                "listener.security.protocol.map=BROKER:SASL_SSL,CONTROLLER:PLAINTEXT",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={self.certificates.server}",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self.certificates.authority}",
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol=PLAIN",
                f"listener.name.broker.plain.sasl.jaas.config={login}",
                f"listener.name.broker.scram-sha-512.sasl.jaas.config={_SCRAM} required;",
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The controller's listener is on loopback and asks for no password.
                f"super.users=User:{ADMIN};User:ANONYMOUS",
            ]
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        probe = KafkaProbe(self.address, settings=librdkafka_options(self.settings(ADMIN, Settings())))
        wait_until_ready(child, probe, seconds=START_SECONDS, what=f"Kafka's metadata from {self.address}")
