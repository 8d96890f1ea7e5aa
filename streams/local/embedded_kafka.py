"""A Kafka broker for machines without Java: librdkafka's mock cluster from the confluent-kafka wheel.

It speaks the real protocol over TCP and keeps everything in memory: 5 MiB per partition, older data is dropped
silently; no CreateTopics; rebalances with more than one member are unreliable. Good for a demo with one worker that
keeps up; `docs/development.md` says what else it cannot do.

`python -m streams.local.embedded_kafka [NAME:PARTITIONS...]` runs one in the foreground. The protocol with the
starting process, on stdin and stdout, one line each way: first `listening HOST:PORT`; then for each `create NAME
PARTITIONS` either `ok` or `error REASON`. It ends with its stdin.
"""

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

_RD_KAFKA_PRODUCER: Final = 0
_ERROR_BYTES: Final = 512


def _library() -> ctypes.CDLL:
    """Load the librdkafka that is inside the confluent-kafka wheel."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.parent.glob("confluent_kafka.libs/librdkafka*.so*")) + sorted(
        package.glob(".dylibs/librdkafka*.dylib")
    )
    if not found:
        raise FileNotFoundError(
            f"expected librdkafka beside {package}; it is not there; install confluent-kafka from a wheel"
        )
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_err2str", text, [number]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class MockCluster:
    """One broker of librdkafka's mock cluster, on a random loopback port, alive until `close`."""

    def __init__(self) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(_ERROR_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        self._handle = self._library.rd_kafka_new(_RD_KAFKA_PRODUCER, configuration, reason, _ERROR_BYTES)
        if not self._handle:
            raise RuntimeError(f"librdkafka gave no handle: {reason.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._handle, 1)
        if not self._cluster:
            raise RuntimeError("librdkafka gave no mock cluster; is the loopback interface up?")

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        bootstraps: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return bootstraps.decode()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic.

        Raises:
            ValueError: the cluster refuses, for example because the topic exists.
        """
        error = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        if error:
            reason: bytes = self._library.rd_kafka_err2str(error)
            raise ValueError(f"cannot create topic {name!r} with {partitions} partitions: {reason.decode()}")

    def close(self) -> None:
        """Stop the broker; its data is lost."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


def parse_topic(text: str) -> tuple[str, int]:
    """Return name and number of partitions of `NAME:PARTITIONS`."""
    name, colon, partitions = text.rpartition(":")
    if not (colon and name and partitions.isascii() and partitions.isdigit() and int(partitions) > 0):
        raise ValueError(f"expected NAME:PARTITIONS, for example thaw.reports.v1:8; got {text!r}")
    return name, int(partitions)


def serve(topics: Iterable[tuple[str, int]], requests: IO[str], answers: IO[str]) -> None:
    """Run a broker with these topics and answer requests until there are no more; see the module's docstring."""
    cluster = MockCluster()
    try:
        for topic, count in topics:
            cluster.create_topic(topic, count)
        print("listening", cluster.address, file=answers, flush=True)
        for line in requests:
            match line.split():
                case ["create", name, partitions] if partitions.isascii() and partitions.isdigit():
                    try:
                        cluster.create_topic(name, int(partitions))
                    except ValueError as error:
                        print("error", error, file=answers, flush=True)
                    else:
                        print("ok", file=answers, flush=True)
                case words:
                    print("error expected: create NAME PARTITIONS; got:", *words, file=answers, flush=True)
    finally:
        cluster.close()


if __name__ == "__main__":
    serve([parse_topic(argument) for argument in sys.argv[1:]], sys.stdin, sys.stdout)
