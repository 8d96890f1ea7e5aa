"""The client for browsers and Node: where it is, a Node that runs it, and a server for browsers that load it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.services import missing

FOLDER = ROOT / "clients" / "web"
MODULES = sorted(FOLDER.glob("*.js"))
VECTORS = ROOT / "docs" / "spec" / "vectors.json"


def run_node(script: Path, *arguments: str, given: Any = None) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; `given` goes to its stdin as JSON."""
    node = shutil.which("node")
    if node is None:
        missing("no node on this machine; `make setup` installs Debian's as root")
    return subprocess.run(
        # Debian's Node 18 has WebCrypto behind this word; later ones have it anyway.
        [node, "--experimental-global-webcrypto", str(script), *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path = FOLDER) -> Iterator[str]:
    """Serve a folder of files to a browser; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, name="files", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
