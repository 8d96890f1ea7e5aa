"""The parts of the path on this machine: started for the demo and the tests, stopped in order, leaving nothing behind.

Every process started here has its own session and is killed by the kernel when this process dies, however it dies. All
listen on free loopback ports only. `python -m streams.local.services kafka` runs a broker in the foreground
(`make kafka`).
"""

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from streams.folders import deploy_folder
from streams.local.kafka import (
    ApacheKafka,
    EmbeddedKafka,
    ExternalKafka,
    KafkaPart,
    find_kafka,
    kafka_libs,
    kafka_runtime,
)
from streams.local.process import (
    POLL_SECONDS,
    Child,
    ChildDied,
    NotReady,
    PartError,
    PartMissing,
    RunFolder,
    free_ports,
    signals_as_interrupt,
)
from streams.local.service import (
    STOP_SECONDS,
    Alertmanager,
    Part,
    Prometheus,
    Redis,
    StopOrder,
    redis_program,
    valkey_program,
)

__all__ = [
    "Alertmanager",
    "ApacheKafka",
    "Child",
    "ChildDied",
    "EmbeddedKafka",
    "ExternalKafka",
    "KafkaPart",
    "NotReady",
    "Part",
    "PartError",
    "PartMissing",
    "Prometheus",
    "Redis",
    "StopOrder",
    "Supervisor",
    "deploy_folder",
    "find_kafka",
    "free_ports",
    "kafka_libs",
    "kafka_runtime",
    "redis_program",
    "signals_as_interrupt",
    "valkey_program",
]

logger = logging.getLogger(__name__)

AnyPart = TypeVar("AnyPart", bound=Part)


class Supervisor:
    """Starts parts and children, notices when one dies, and stops all of them in `StopOrder`.

    A context manager: leaving it stops everything and removes the temporary folder.

    Example:
        with Supervisor() as supervisor:
            kafka = supervisor.add(find_kafka("auto", folder=supervisor.folder / "kafka"))
            redis = supervisor.add(Redis(folder=supervisor.folder / "redis"))
            supervisor.run("worker", [sys.executable, "-m", ...], order=StopOrder.WORKER, env={...})
            while ...:
                supervisor.check()

    Args:
        stop_seconds: the one deadline that an orderly stop of all of them shares; then SIGKILL.
    """

    def __init__(self, *, stop_seconds: float = STOP_SECONDS) -> None:
        self._stop_seconds = stop_seconds
        self._run_folder = RunFolder()
        self._members: list[tuple[StopOrder, Part | Child]] = []

    @property
    def folder(self) -> Path:
        """The temporary folder of this run: logs, and whatever the parts put there."""
        return self._run_folder.path

    def add(self, part: AnyPart) -> AnyPart:
        """Start a part, to be stopped with the others; return it when it answers."""
        # Listed first: a part that is interrupted while it starts is stopped too.
        self._members.append((part.order, part))
        part.start()
        return part

    def run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        order: StopOrder,
        env: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> Child:
        """Start a child whose output goes to `<name>.log` in the run folder.

        Args:
            name: what messages call it.
            argv: the command.
            order: when it is stopped.
            env: variables added to this process's environment.
            piped: connect its stdin and stdout to this process; only stderr goes to the log then.
        """
        child = Child(name, argv, log=self.folder / f"{name}.log", env=env, piped=piped)
        self._members.append((order, child))
        logger.info("%s: process %d", name, child.pid)
        return child

    def check(self) -> None:
        """Raise `ChildDied`, with the end of its log, if a part or child has ended."""
        for _, member in self._members:
            member.check()

    def forget(self, member: Part | Child) -> None:
        """Stop looking after a member that has ended or was stopped as planned."""
        self._members = [entry for entry in self._members if entry[1] is not member]

    def stop(self) -> None:
        """Stop everything, stage after stage, and remove the folder. Doing it twice is harmless.

        A stage that hangs may use its share of the time that is left; what it does not use goes to the later ones.
        """
        limit = time.monotonic() + self._stop_seconds
        stages = sorted({order for order, _ in self._members})
        for number, stage in enumerate(stages):
            share = (limit - time.monotonic()) / (len(stages) - number)
            # Within a stage the youngest goes first.
            for member in [member for order, member in reversed(self._members) if order is stage]:
                if isinstance(member, Part):
                    member.stop(seconds=max(share, POLL_SECONDS))
                else:
                    member.terminate(max(share, POLL_SECONDS))
                self.forget(member)
        self._run_folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one part in the foreground until Ctrl-C or SIGTERM; its address is printed on stdout."""
    parser = argparse.ArgumentParser(prog="python -m streams.local.services", description=main.__doc__)
    parser.add_argument("part", choices=["kafka", "redis"])
    parser.add_argument("--port", type=int, help="Kafka's port (default: a free one)")
    parser.add_argument("--folder", type=Path, help="keep the data here (default: a temporary folder)")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    part = (
        ApacheKafka(folder=options.folder, port=options.port)
        if options.part == "kafka"
        else Redis(folder=options.folder)
    )
    with contextlib.suppress(KeyboardInterrupt), signals_as_interrupt():
        try:
            with part:
                print(part.address, flush=True)
                while part.alive():
                    time.sleep(POLL_SECONDS)
                part.check()
        except PartError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
