"""Child processes that cannot outlive their parent, and the folders and ports they use.

ServiceError
├── ServiceMissing  the program is not installed on this machine
├── ChildDied       a child ended by itself; the message carries the end of its log
└── NotReady        a service did not answer before its deadline
"""

import contextlib
import fcntl
import logging
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Final

from streams.local import exec as local_exec

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.02
"""Between two looks at a condition. Shorter burns a core that the child needs to start; longer delays every start."""

_LOWEST_PORT: Final = 15_000
_TAIL_LINES: Final = 20
_FOLDER_PREFIX: Final = "thaw-run-"


class ServiceError(RuntimeError):
    """A service on this machine cannot be used; the message says why and what to do."""


class ServiceMissing(ServiceError):  # noqa: N818 - a state of the machine, not a fault
    """A program is not installed."""


class ChildDied(ServiceError):  # noqa: N818 - says what happened
    """A child ended without having been asked to."""


class NotReady(ServiceError):  # noqa: N818 - says what happened
    """A service did not answer in time."""


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports on which no process listens.

    They lie below the kernel's ephemeral range. From inside it, a client's outgoing connection could take the port of a
    broker that is being restarted, and a client that keeps reconnecting can even end up connected to itself.
    """
    try:
        lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32_768
    candidates = list(range(_LOWEST_PORT, max(lowest_ephemeral, _LOWEST_PORT + 1_000)))
    random.SystemRandom().shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ServiceError(f"expected {count} free ports from {candidates[0]} upwards on 127.0.0.1; found {len(found)}")


class RunFolder:
    """A temporary folder that is removed on `close`, or by the next run if this process was killed.

    A lock on a file inside tells a living owner from a dead one: the kernel drops it with the process.
    """

    def __init__(self) -> None:
        _sweep()
        # The folder gets its final name only when it is locked, so that no other run can remove it in between.
        unlocked = Path(tempfile.mkdtemp(prefix="thaw-new-"))
        self._lock = (unlocked / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path: Final = unlocked.rename(unlocked.with_name(_FOLDER_PREFIX + unlocked.name.removeprefix("thaw-new-")))

    def close(self) -> None:
        """Remove the folder and all that is in it. Doing it twice is harmless."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep() -> None:
    for folder in Path(tempfile.gettempdir()).glob(_FOLDER_PREFIX + "*"):
        with contextlib.suppress(OSError), (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            logger.info("removing %s, left behind by a run that was killed", folder)
            shutil.rmtree(folder, ignore_errors=True)


class _Spawner:
    """Starts processes from one thread that lives as long as this process does.

    The kernel ties a child to the *thread* that started it: a child started from a short-lived thread would be killed
    when that thread ends.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._owner_pid = 0

    def _serve(self) -> None:
        while True:
            request, done = self._requests.get()
            request()
            done.set()

    def call(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._owner_pid != os.getpid():
                threading.Thread(target=self._serve, name="spawner", daemon=True).start()
                self._owner_pid = os.getpid()
        result: list[subprocess.Popen[bytes]] = []
        failure: list[BaseException] = []

        def request() -> None:
            try:
                result.append(start())
            except BaseException as error:
                failure.append(error)

        done = threading.Event()
        self._requests.put((request, done))
        done.wait()
        if failure:
            raise failure[0]
        return result[0]


_spawner: Final = _Spawner()


class Child:
    """One running child process in a session of its own, killed by the kernel when this process dies.

    Its own session keeps a Ctrl-C at the terminal from reaching it: the supervisor stops it, in order.

    Args:
        name: what messages call it.
        argv: the command.
        log: file that its output is appended to.
        env: variables added to this process's environment.
        cwd: working folder of the child; this process's if None.
        piped: connect `stdin` and `stdout` to pipes; only stderr goes to the log then.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        piped: bool = False,
    ) -> None:
        self.name: Final = name
        self.log: Final = log
        command = [sys.executable, "-I", "-S", local_exec.__file__, str(os.getpid()), *argv]
        with log.open("ab") as output:
            self._process: Final = _spawner.call(
                lambda: subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else output,
                    stderr=output,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                )
            )
        logger.debug("%s: process %d: %s", name, self.pid, " ".join(argv))

    @property
    def pid(self) -> int:
        """Process id; also the id of the child's process group."""
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        """Where a piped child reads from."""
        assert self._process.stdin is not None, "only a child started with piped=True has a stdin"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Where a piped child writes to."""
        assert self._process.stdout is not None, "only a child started with piped=True has a stdout"
        return self._process.stdout

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal, as `subprocess` has it; None while the child runs."""
        if self._process.returncode is None and self._ended():
            self._reap()
        return self._process.returncode

    def alive(self) -> bool:
        """Tell whether the child still runs."""
        return self.returncode is None

    def check(self) -> None:
        """Raise `ChildDied` with the end of its log unless the child runs."""
        if not self.alive():
            raise ChildDied(
                f"{self.name} (process {self.pid}) ended with status {self.returncode} without having been asked to; "
                f"the end of {self.log}:\n{self.tail()}"
            )

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        with self.log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 200 * lines))
            text = log.read().decode(errors="replace")
        return "\n".join("  | " + line for line in text.splitlines()[-lines:]) or "  | (empty)"

    def wait(self, seconds: float) -> bool:
        """Wait for the child to end by itself; tell whether it did."""
        limit = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() >= limit:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child unless it has ended."""
        if self.alive():
            os.kill(self.pid, number)

    def terminate(self, seconds: float) -> None:
        """Ask the child to end (SIGTERM); after `seconds` kill it and all of its process group."""
        self.send_signal(signal.SIGTERM)
        if not self.wait(seconds):
            logger.warning("%s (process %d) did not stop in %.1f s: killing it", self.name, self.pid, seconds)
            self.kill()

    def kill(self) -> None:
        """Kill the child and all of its process group (SIGKILL), and wait until it is gone."""
        if self._process.returncode is None:
            self._reap()

    def _ended(self) -> bool:
        # WNOWAIT: the process stays a zombie, so its id cannot be reused before the group is killed.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def wait_until_ready(child: Child, probe: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Poll `probe` until it is true.

    Raises:
        ChildDied: the child ended before.
        NotReady: it did not happen within `seconds`; `what` says what was waited for.
    """
    limit = time.monotonic() + seconds
    while True:
        child.check()
        if probe():
            return
        if time.monotonic() >= limit:
            raise NotReady(
                f"expected {what} within {seconds:.0f} s; it did not happen; the end of {child.log}:\n{child.tail()}"
            )
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, as Ctrl-C does, so that `finally` blocks run.

    SIGINT too: Python leaves it ignored in a process that a shell script started in the background.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
