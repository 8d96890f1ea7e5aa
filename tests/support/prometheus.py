"""Prometheus and Alertmanager as local services, for tests of metrics and alerts."""

import json
import shutil
import signal
import urllib.error
import urllib.request
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from streams.folders import cache_folder
from streams.local.process import Child, ServiceMissing, wait_until_ready
from streams.local.service import START_SECONDS, Program, StopOrder


class Monitor(Program):
    """A server of the Prometheus project with a given configuration.

    Args:
        config: text of the configuration file; paths in it are relative to `folder`.
        folder: where configuration, data and log go; a temporary folder if None.
        program: the program; the first of `programs` on the PATH if empty.
    """

    order = StopOrder.EXPORTER
    programs: ClassVar[tuple[str, ...]]
    """Names that the program may have on the PATH; the first is that of Debian and of its package."""

    def __init__(self, config: str, *, folder: Path | None = None, program: str = "") -> None:
        super().__init__(folder=folder)
        self.config, self._program = config, program

    @property
    def url(self) -> str:
        """`http://host:port`."""
        return f"http://{self.address}"

    def reload(self) -> None:
        """Write `config` again and have the server read it (SIGHUP); it takes effect a moment later."""
        self._write_config()
        self.child.send_signal(signal.SIGHUP)

    def _write_config(self) -> Path:
        path = self.folder / f"{self.name}.yml"
        path.write_text(self.config)
        return path

    @abstractmethod
    def _options(self) -> list[str]:
        """Return the flags beside configuration file and address."""

    def _launch(self) -> Child:
        program = self._program or next(filter(None, map(shutil.which, self.programs)), None)
        if program is None:
            raise ServiceMissing(
                f"expected {' or '.join(self.programs)} on the PATH; it is not there; "
                f"install Debian's {self.programs[0]} package"
            )
        common = [f"--config.file={self._write_config()}", f"--web.listen-address={self.address}"]
        return Child(self.name, [program, *common, *self._options()], log=self.log, cwd=self.folder)

    def _wait_until_it_answers(self, child: Child) -> None:
        wait_until_ready(child, self._is_ready, seconds=START_SECONDS, what=f"{self.name} to be ready at {self.url}")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class Prometheus(Monitor):
    """A Prometheus server."""

    name = "prometheus"
    programs = ("prometheus",)

    def _options(self) -> list[str]:
        return [f"--storage.tsdb.path={self.folder / 'data'}"]

    def version(self) -> str:
        """Return the version that it says it has."""
        with urllib.request.urlopen(f"{self.url}/api/v1/status/buildinfo", timeout=30) as answer:
            return str(json.load(answer)["data"]["version"])


def prometheus_programs() -> list[str]:
    """Return every Prometheus here: the one on the PATH, and the newer one that `make setup` unpacked."""
    unpacked = cache_folder() / "unstable" / "prometheus" / "usr" / "bin" / "prometheus"
    found = [shutil.which("prometheus"), str(unpacked) if unpacked.exists() else None]
    return [program for program in found if program is not None]


class Alertmanager(Monitor):
    """An Alertmanager, alone: it looks for no peers."""

    name = "alertmanager"
    programs = ("prometheus-alertmanager", "alertmanager")

    def _options(self) -> list[str]:
        return [f"--storage.path={self.folder / 'data'}", "--cluster.listen-address="]
