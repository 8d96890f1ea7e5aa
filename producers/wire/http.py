"""Messages to a gateway over HTTP, with the standard library alone: for devices that reach no broker."""

from __future__ import annotations

import http.client
import logging
import ssl
import urllib.request
from collections.abc import Sequence
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


class _TooLargeError(TransportError):
    """The gateway takes no request of that size."""


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
        request_bytes: most bytes of one request; halved as long as the gateway finds requests too large.
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

        A message that is too large for the gateway by itself is postponed, and with it those that are as large: its
        operator can allow more.

        Raises:
            RefusedError: some are not taken; nothing of their request was.
            TransportError: not confirmed; send the same bytes again.
        """
        place = 0
        while place < len(messages):
            some = _fitting(messages[place:], self._request_bytes)
            try:
                self._post(place, some)
            except _TooLargeError as error:
                size = sum(len(message.value) for message in some)
                if len(some) > 1:
                    self._request_bytes = size // 2
                    continue
                refused = RefusedError(
                    f"the gateway takes no report of {size} bytes ({error}); allow more where it runs",
                    {},
                    frozenset(at for at in range(place, len(messages)) if len(messages[at].value) >= size),
                )
                refused.confirmed = frozenset(range(place))
                raise refused from None
            except TransportError as error:
                error.confirmed = frozenset(range(place))
                raise
            place += len(some)

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
        if status == http.client.REQUEST_ENTITY_TOO_LARGE:
            raise _TooLargeError(told)
        # A place that was not sent would be that of another report.
        named = [frame for frame in problem.frames if 0 <= frame.frame < len(messages)]
        if status == _UNPROCESSABLE and named:
            never = {first + frame.frame: frame.reason for frame in named if not frame.again}
            later = frozenset(first + frame.frame for frame in named if frame.again)
            raise RefusedError(f"the gateway refuses reports ({told})", never, later)
        raise TransportError(f"the gateway does not confirm ({told})", wait_seconds)


def _fitting(messages: Sequence[Message], limit_bytes: int) -> Sequence[Message]:
    """Return the first messages: as many as fit into one request, one at least."""
    size = 0
    for place, message in enumerate(messages):
        size += len(message.value)
        if place and size > limit_bytes:
            return messages[:place]
    return messages
