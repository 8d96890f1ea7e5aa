"""Where things are in the checkout that the tests run in."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def tracked(*patterns: str) -> list[Path]:
    """Return the files of the checkout that match, new ones included, but not those of other authors."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).exists() and "vendor" not in Path(name).parts]
