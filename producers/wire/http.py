"""Messages to a gateway over HTTP, with the standard library alone: for devices that reach no broker."""

from __future__ import annotations

import http.client
import logging
import ssl
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from producers.wire.connection import Connection
from producers.wire.layout import MAX_MESSAGE_BYTES
from producers.wire.transport import Message, RefusedError, TransportError

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.thaw.frames"
TIMEOUT_SECONDS: Final = 90.0
"""How long an answer may take: the gateway holds reports, at most a minute, and waits for the broker."""
FETCH_SECONDS: Final = 30.0
MOST_ANSWER_BYTES: Final = 16 << 20
_UNPROCESSABLE: Final = 422


class _RefusedFrame(msgspec.Struct, frozen=True):
    frame: int
    reason: str
    text: str
    again: bool


class _Problem(msgspec.Struct, frozen=True):
    reason: str = ""
    error: str = ""
    frames: list[_RefusedFrame] = []


def fetched(url: str, *, tls: ssl.SSLContext | None = None, timeout_seconds: float = FETCH_SECONDS) -> bytes:
    """Return what an address serves: a survey of a gateway. OSError if it cannot be had."""
    request = urllib.request.Request(url, headers={"User-Agent": "thaw", "Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds, context=tls) as answer:
            raw: bytes = answer.read(MOST_ANSWER_BYTES + 1)
    except http.client.HTTPException as error:
        raise OSError(f"no answer ({type(error).__name__})") from error
    if len(raw) > MOST_ANSWER_BYTES:
        raise OSError(f"more than {MOST_ANSWER_BYTES:,} bytes")
    return raw


class HttpTransport:
    """Sends frames to a gateway and returns when it has confirmed them: then a broker has them.

    Every message must be one frame, so that the answer says which one is refused; a device's reports are. The
    connection is kept open between calls and opened again when it was closed.

    Args:
        gateway: its address, such as https://reports.example.
        token: sent as a bearer token, if the gateway wants one.
        timeout_seconds: how long one answer may take.
        tls: certificates, for a gateway with a CA of its own or one that asks for the device's certificate.
        request_bytes: most bytes of one request.
    """

    partitions = 1
    """The gateway knows those of the topic; a device need not."""

    def __init__(
        self,
        gateway: str,
        *,
        token: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
        request_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": "thaw"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._request_bytes = request_bytes
        self._connection = Connection(
            gateway,
            "/v1/frames",
            what="gateway",
            headers=headers,
            timeout_seconds=timeout_seconds,
            most_bytes=MOST_ANSWER_BYTES,
            tls=tls,
        )

    def send(self, messages: Sequence[Message]) -> None:
        """Return when the gateway has confirmed all messages.

        Raises:
            RefusedError: some are not taken; nothing of their request was.
            TransportError: not confirmed; send the same bytes again.
        """
        for first, some in _requests(messages, self._request_bytes):
            self._post(first, some)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _post(self, first: int, messages: Sequence[Message]) -> None:
        try:
            status, wait_seconds, answer = self._connection.post(b"".join(message.value for message in messages))
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(f"no answer from the gateway ({type(error).__name__}: {error})") from error
        if status == http.client.OK:
            return
        try:
            problem = msgspec.json.decode(answer, type=_Problem)
        except msgspec.MsgspecError:
            problem = _Problem()
        told = problem.error or f"status {status}"
        if status == _UNPROCESSABLE and problem.frames:
            never = {first + frame.frame: frame.reason for frame in problem.frames if not frame.again}
            later = frozenset(first + frame.frame for frame in problem.frames if frame.again)
            raise RefusedError(f"the gateway refuses reports ({told})", never, later)
        raise TransportError(f"the gateway does not confirm ({told})", wait_seconds)


def _requests(messages: Sequence[Message], limit_bytes: int) -> Iterable[tuple[int, list[Message]]]:
    """Yield messages that fit into one request each, with the place of the first."""
    some: list[Message] = []
    first = size = 0
    for place, message in enumerate(messages):
        if some and size + len(message.value) > limit_bytes:
            yield first, some
            some, first, size = [], place, 0
        some.append(message)
        size += len(message.value)
    if some:
        yield first, some
