"""Environments of other stream processors: made once below .cache, apart from ours."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

from tests.support.paths import ROOT

FOLDER: Final = ROOT / ".cache" / "engines"
ENGINES: Final = {"bytewax": "0.21.1", "quixstreams": "3.28.0"}
_EXTRAS: Final = {"bytewax": "[kafka]", "quixstreams": ""}
_LONGEST_SECONDS: Final = 300


def python_of(name: str, version: str) -> Path:
    """Return the interpreter of an environment with one stream processor."""
    folder = FOLDER / f"{name}-{version}"
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        print(f"installing {name} {version} into an environment of its own", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        packages = f"{name}{_EXTRAS[name]}=={version}"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", packages], check=True)
        done.touch()
    return python


def counted_by(name: str, version: str, arguments: list[str]) -> dict[str, Any]:
    """Run the counting job; return what it printed."""
    command = [str(python_of(name, version)), "-m", f"tests.bench.engines.{name}_count", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False)
    if run.returncode:
        raise AssertionError(f"{name} ended with status {run.returncode}: {run.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found
