"""Prometheus and Alertmanager as local services, for tests of metrics and alerts."""

import shutil
import signal
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from streams.local.process import Child, ServiceMissing, wait_until_ready
from streams.local.service import START_SECONDS, Program, StopOrder


class Prometheus(Program):
    """A Prometheus server with a given configuration.

    Args:
        config: text of `prometheus.yml`; paths in it are relative to `folder`.
        folder: where configuration, data and log go; a temporary folder if None.
    """

    name = "prometheus"
    order = StopOrder.EXPORTER

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
            raise ServiceMissing(
                "expected prometheus on the PATH; it is not there; install Debian's prometheus package"
            )
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
    order = StopOrder.EXPORTER

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
            raise ServiceMissing(
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
