"""The supervisor: starts services and children, notices when one ends, and stops them in order."""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from streams.local.process import POLL_SECONDS, Child, RunFolder
from streams.local.service import STOP_SECONDS, Service, StopOrder

logger = logging.getLogger(__name__)

AnyService = TypeVar("AnyService", bound=Service)


class Supervisor:
    """Starts services and children, notices when one dies, and stops all of them in `StopOrder`.

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
        self._members: list[tuple[StopOrder, Service | Child]] = []

    @property
    def folder(self) -> Path:
        """The temporary folder of this run: logs, and the files of the services."""
        return self._run_folder.path

    def add(self, service: AnyService) -> AnyService:
        """Start a service, to be stopped with the others; return it when it answers."""
        # Listed first: a service that is interrupted while it starts is stopped too.
        self._members.append((service.order, service))
        service.start()
        return service

    def add_together(self, *services: Service) -> None:
        """Start services side by side, to be stopped with the others; return when all of them answer."""
        self._members += [(service.order, service) for service in services]
        with ThreadPoolExecutor(len(services), "start") as pool:
            started = [pool.submit(service.start) for service in services]
        for future in started:
            future.result()

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
        """Raise `ChildDied`, with the end of its log, if a service or child has ended."""
        for _, member in self._members:
            member.check()

    def forget(self, member: Service | Child) -> None:
        """Remove a member that has ended or was stopped as planned."""
        self._members = [entry for entry in self._members if entry[1] is not member]

    def stop(self) -> None:
        """Stop everything, stage after stage, and remove the folder. May be called twice.

        A stage that hangs may use its share of the time that is left; what it does not use goes to the later ones.
        """
        limit = time.monotonic() + self._stop_seconds
        stages = sorted({order for order, _ in self._members})
        for number, stage in enumerate(stages):
            share = (limit - time.monotonic()) / (len(stages) - number)
            # Within a stage the one started last is stopped first.
            for member in [member for order, member in reversed(self._members) if order is stage]:
                if isinstance(member, Service):
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
