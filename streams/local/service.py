"""What all services started on this machine have in common: start, stop, kill, and the order of stopping."""

import enum
import logging
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streams.local.process import Child, RunFolder, free_ports

logger = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""A service that does not answer after this long is considered broken. Starts take 0.1 to 5 s on an idle machine, and
several times that on a busy machine with few cores."""

STOP_SECONDS: Final = 10.0
"""For an orderly stop, before SIGKILL. A broker takes about 2 s; a shorter time would cut it off on a busy machine."""


class StopOrder(enum.IntEnum):
    """What is stopped first: senders before receivers, so that no report is in flight at the end."""

    FLEET = 0
    WORKER = 1
    EXPORTER = 2
    REDIS = 3
    KAFKA = 4


class Service(ABC):
    """Something that answers at an address between `start` and `stop`.

    A context manager: starts on entry, stops on exit.
    """

    name: str
    order: StopOrder

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port` at which the service answers."""

    @abstractmethod
    def alive(self) -> bool:
        """Tell whether the service runs."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ChildDied` with the end of its log if the service has ended."""

    @abstractmethod
    def start(self) -> Self:
        """Return when the service answers."""

    @abstractmethod
    def stop(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the service within `seconds` and remove its temporary files."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the service, as a crash would."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop(seconds=0)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class Program(Service):
    """A service that is a child process, on free loopback ports.

    `start` after `kill` (or `restart`) keeps port and data, as a supervisor in production would; `stop` is the end and
    removes the data.

    Args:
        folder: where data and log go, kept by `stop`; a temporary folder that `stop` removes if None.
    """

    def __init__(self, *, folder: Path | None = None) -> None:
        self._given_folder = folder
        self._own_folder: RunFolder | None = None
        self._child: Child | None = None
        self._ports: list[int] = []

    @property
    def folder(self) -> Path:
        """Where data and log are."""
        if self._given_folder is not None:
            self._given_folder.mkdir(parents=True, exist_ok=True)
            return self._given_folder
        if self._own_folder is None:
            self._own_folder = RunFolder()
        return self._own_folder.path

    @property
    def log(self) -> Path:
        """The file that the service's output goes to."""
        return self.folder / f"{self.name}.log"

    @property
    def address(self) -> str:
        """`host:port` at which the service answers; the same before and after a restart."""
        return f"127.0.0.1:{self.ports(1)[0]}"

    @property
    def child(self) -> Child:
        """The running process.

        Raises:
            RuntimeError: the service was not started.
        """
        if self._child is None:
            raise RuntimeError(f"{self.name} is not running; call start() first")
        return self._child

    def ports(self, count: int) -> list[int]:
        """Return this service's ports, chosen once."""
        if not self._ports:
            self._ports = free_ports(count)
        return self._ports

    def alive(self) -> bool:
        """Tell whether the service's process runs."""
        return self._child is not None and self._child.alive()

    def check(self) -> None:
        """Raise `ChildDied` with the end of its log unless the service runs."""
        self.child.check()

    def start(self) -> Self:
        """Start the service and return when it answers; does nothing if it runs.

        Raises:
            ServiceMissing: the program is not installed.
            ChildDied: it ended while starting.
            NotReady: it did not answer within a minute.
        """
        if not self.alive():
            try:
                self._child = self._launch()
                self._wait_until_it_answers(self._child)
            except BaseException:
                # Data is kept: this may be a restart, and the log has the reason of the failure.
                self.terminate(seconds=0)
                raise
            logger.info("%s: process %d answers at %s", self.describe(), self.child.pid, self.address)
        return self

    def stop(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the service, with SIGTERM and after `seconds` with SIGKILL; remove its temporary folder."""
        self.terminate(seconds=seconds)
        if self._own_folder is not None:
            self._own_folder.close()
            self._own_folder = None

    def terminate(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the service as `stop` does, but keep port and data for another `start`."""
        if self._child is not None:
            if self._child.alive():
                logger.info("%s: stopping process %d", self.name, self._child.pid)
            if seconds > 0:
                self._child.terminate(seconds)
            else:
                self._child.kill()
            self._child = None

    def kill(self) -> None:
        """Kill the service with SIGKILL, as a crash would; port and data stay for the next `start`."""
        if self._child is not None:
            logger.info("%s: killing process %d", self.name, self._child.pid)
            self._child.kill()
            self._child = None

    def restart(self) -> Self:
        """Stop the service in an orderly way if it runs, and start it again on the same port and data."""
        self.terminate()
        return self.start()

    def describe(self) -> str:
        """Return what was started, in a few words."""
        return self.name

    @abstractmethod
    def _launch(self) -> Child:
        """Start the process."""

    @abstractmethod
    def _wait_until_it_answers(self, child: Child) -> None:
        """Return when the service can be used."""
