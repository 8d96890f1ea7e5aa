"""`thaw exporter` as a process of its own, for tests on real services."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

from streams.local.process import Child, free_ports
from tests.support.deadline import until


def start_exporter(folder: Path, *, redis_url: str, prefix: str) -> tuple[Child, str]:
    """Start an exporter of the surveys in a folder, which gets its log; return it and its address when it answers."""
    [port] = free_ports(1)
    env = {
        "THAW_REDIS": redis_url,
        "THAW_PREFIX": prefix,
        "THAW_SURVEYS": str(folder),
        "THAW_EXPORTER_PORT": str(port),
    }
    child = Child("exporter", [sys.executable, "-m", "streams.cli", "exporter"], log=folder / "exporter.log", env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        until_healthy(child, url)
    except BaseException:
        child.kill()
        raise
    return child, url


def until_healthy(child: Child, url: str, tls: ssl.SSLContext | None = None) -> None:
    """Return when an exporter answers and reaches its Redis, or a gateway its broker."""

    def answers() -> bool:
        child.check()
        try:
            return bool(urllib.request.urlopen(f"{url}/healthz", timeout=5, context=tls).status == 200)
        except (urllib.error.URLError, OSError):
            return False

    until(answers, 60, "a process that answers")
