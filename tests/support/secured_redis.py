"""A real Redis that listens with TLS and on a socket of the file system, and lets users do what a list allows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import redis

from streams.local.redis import Redis
from tests.support.certificates import Certificates


class SecuredRedis(Redis):
    """One Redis with three doors: plain, TLS, and a socket of the file system."""

    @cached_property
    def certificates(self) -> Certificates:
        return Certificates(self.folder / "certificates")

    @property
    def certificate(self) -> Path:
        """The authority that clients trust."""
        return self.certificates.authority

    @property
    def tls_url(self) -> str:
        return self.tls_url_of("")

    @property
    def socket_url(self) -> str:
        return f"unix://{self.folder / 'redis.sock'}"

    def tls_url_of(self, user: str, password: str = "") -> str:
        """Return the address with TLS for a user."""
        named = f"{user}:{password}@" if user else ""
        return f"rediss://{named}127.0.0.1:{self.ports(2)[1]}/0"

    def close_to_strangers(self, users: Mapping[str, tuple[str, str]], admin_password: str) -> None:
        """Give users (password and rule by name) their rights; from now on the default user may do nothing."""
        client: Any = redis.Redis.from_url(self.socket_url)
        client.execute_command("ACL", "SETUSER", "admin", "reset", "on", f">{admin_password}", "~*", "&*", "+@all")
        for name, (password, rule) in users.items():
            client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", *rule.split())
        client.execute_command("ACL", "SETUSER", "default", "off", "resetpass", "-@all")
        client.close()

    def options(self) -> dict[str, str]:
        tls_port, server = self.ports(2)[1], str(self.certificates.server)
        return super().options() | {
            "tls-port": str(tls_port),
            "tls-cert-file": server,
            "tls-key-file": server,
            "tls-auth-clients": "no",
            "unixsocket": str(self.folder / "redis.sock"),
        }
