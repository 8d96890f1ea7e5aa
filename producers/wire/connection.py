"""One HTTP connection that is kept open between requests, with the standard library alone: for devices."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    wait_seconds: float
    """What `Retry-After` asks for; 0 without it."""
    body: bytes


class Connection:
    """Posts to one path of one server; opened by the first request. For one thread.

    Args:
        address: such as https://reports.example, perhaps with a path before `path`.
        path: where requests go.
        what: whose address it is, for the message.
        headers: of every request.
        timeout_seconds: how long one answer may take.
        tls: certificates, for a server with a CA of its own or one that asks for the client's certificate.
        most_bytes: more of an answer is not read.
    """

    def __init__(
        self,
        address: str,
        path: str,
        *,
        what: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        most_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the {what}'s address must be like https://{what}.example; got {address!r}")
        self._path, self._headers, self._most_bytes = f"{parts.path.rstrip('/')}{path}", dict(headers), most_bytes
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_seconds, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)
        )

    def close(self) -> None:
        """Disconnect; the next request connects again."""
        self._connection.close()

    def post(self, body: bytes) -> Reply:
        """Send one request; on a connection that was kept and has been closed meanwhile, once again.

        Raises:
            OSError, http.client.HTTPException: no answer; whether the server has the request is not known.
        """
        kept = self._connection.sock is not None
        try:
            return self._post(body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not kept:
                raise
        return self._post(body)

    def _post(self, body: bytes) -> Reply:
        try:
            self._connection.request("POST", self._path, body, self._headers)
            answer = self._connection.getresponse()
            text = answer.read(self._most_bytes)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        wait = answer.getheader("Retry-After", "")
        if answer.will_close:
            self._connection.close()
        return Reply(answer.status, float(wait) if wait.isascii() and wait.isdigit() else 0.0, text)
