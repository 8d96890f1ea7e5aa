"""A transport without a broker, and what was sent through it."""

from __future__ import annotations

from collections.abc import Sequence

from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.shards import shards_of
from producers.wire.transport import Message, TransportError

Report = tuple[bytes, int, bytes]


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


def reports(transport: MemoryTransport, of: Survey) -> list[Report]:
    """All (token, rung, answer) that were sent, in order; checks frames, shards and partitions on the way."""
    found = []
    for message in transport.messages:
        for header in wire.headers(message.value):
            assert isinstance(header, wire.Header)
            assert header.digest == of.digest
            assert header.shard % transport.partitions == message.partition
            columns = wire.columns(message.value, header, of.layout)
            assert shards_of(columns.tokens, of.shards).tolist() == [header.shard] * len(columns)
            found += [
                (token.tobytes(), int(rung), answer.tobytes())
                for token, rung, answer in zip(columns.tokens, columns.rungs, columns.answers, strict=True)
            ]
    return found


def rungs(transport: MemoryTransport, of: Survey) -> list[int]:
    """The rungs that were sent, in order."""
    return [rung for _, rung, _ in reports(transport, of)]
