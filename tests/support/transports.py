"""A transport without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from producers.wire.transport import Message, TransportError


class MemoryTransport:
    """Keeps the messages it is given; refuses them while `away` is set."""

    def __init__(self, partitions: int = 8) -> None:
        self._partitions = partitions
        self.messages: list[Message] = []
        self.away = False

    @property
    def partitions(self) -> int:
        """Number of partitions; not known while the broker is away."""
        self._refuse_while_away()
        return self._partitions

    def send(self, messages: Sequence[Message]) -> None:
        """Keep the messages, or raise as a transport without a broker does."""
        self._refuse_while_away()
        self.messages += messages

    def _refuse_while_away(self) -> None:
        if self.away:
            raise TransportError("the broker is away")
