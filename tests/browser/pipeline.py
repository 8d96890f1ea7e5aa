"""The whole path on real services for the page: worker, exporter, fleets, surveys, and a browser that stays at home."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streams.kafka.topics import Topics, wanted
from streams.local.process import Child, free_ports
from streams.settings import Settings
from tests.support.exporter_process import until_healthy
from tests.support.services import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

from producers.survey.candidates import candidates_path
from producers.survey.survey import load_survey

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever the page asks for by name is not found: a request that leaves the machine fails and shows.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's Chromium; skip with the reason where it is missing (in CI: fail)."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        missing("no chromium on this machine; `make setup` installs Debian's as root")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Pipeline:
    """Children of one test run: they share topics, keys and a folder of surveys with nobody else."""

    def __init__(
        self, kafka: str, redis_url: str, prefix: str, folder: Path, surveys: Sequence[Path], *, topics: bool = True
    ) -> None:
        """Copy the surveys; topics: whether Kafka runs and gets its topics, which an exporter alone does not need."""
        self.folder = folder
        (folder / "surveys").mkdir()
        self.files = [Path(shutil.copy(path, folder / "surveys")) for path in surveys]
        for path in surveys:
            if named := load_survey(path).candidates:
                shutil.copy(candidates_path(str(path), named), folder / "surveys")
        self.settings = Settings(kafka=kafka, redis=redis_url, prefix=prefix, surveys=str(folder / "surveys"))
        self.surveys = [load_survey(path) for path in self.files]
        self._children: list[Child] = []
        if topics:
            Topics(self.settings).create(wanted(self.settings, self.surveys))

    def _run(self, name: str, *arguments: str, **env: str) -> Child:
        told = {
            "THAW_KAFKA": self.settings.kafka,
            "THAW_REDIS": self.settings.redis,
            "THAW_PREFIX": self.settings.prefix,
            "THAW_SURVEYS": self.settings.surveys,
            "THAW_TICK_MS": "250",
        }
        child = Child(
            name,
            [sys.executable, "-m", "streams.cli", *arguments],
            log=self.folder / f"{name}-{len(self._children)}.log",
            env=told | env,
        )
        self._children.append(child)
        return child

    def worker(self, instance: str = "page", **env: str) -> Child:
        """Start a worker; another one of the same instance takes the place of a killed one."""
        told = {"THAW_WORKER_PORT": str(free_ports(1)[0]), "THAW_INSTANCE": instance} | env
        return self._run("worker", "worker", **told)

    def dealer(self, port: int) -> Child:
        """Start a dealer."""
        file = str(self.folder / "dealer.sqlite")
        return self._run("dealer", "dealer", THAW_DEALER_PORT=str(port), THAW_DEALER_FILE=file)

    def fleet(self, *arguments: str, only: str = "", without: str = "") -> Child:
        """Start a fleet for all surveys that are not canaries, or for those that the names choose."""
        files = [
            str(path)
            for path, survey in zip(self.files, self.surveys, strict=True)
            if survey.canary is None and survey.name != without and only in ("", survey.name)
        ]
        return self._run("fleet", "fleet", *files, *arguments)

    def canary(self, *, only: str = "") -> Child:
        """Start the fleet of the canaries, or of the one with this name."""
        files = [
            str(path)
            for path, survey in zip(self.files, self.surveys, strict=True)
            if survey.canary is not None and only in ("", survey.name)
        ]
        return self._run("canary", "fleet", *files, "--canary")

    def exporter(self, *, port: int | None = None, **env: str) -> tuple[Child, str]:
        """Start an exporter and wait until it answers; returns it and its address."""
        port = port or free_ports(1)[0]
        child = self._run("exporter", "exporter", THAW_EXPORTER_PORT=str(port), **env)
        url = f"http://127.0.0.1:{port}"
        until_healthy(child, url)
        return child, url

    def stop(self) -> None:
        """End all children, youngest first."""
        for child in reversed(self._children):
            child.kill()
