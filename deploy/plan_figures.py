"""Draw the pictures of docs/planning.md: what the commands below them write with `--plot`.

    python -m deploy.plan_figures

`make generated` runs it; a test draws them again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from streams.cli import plan
from streams.folders import deploy_folder

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
PICTURES: Final = {
    "plan-survey.svg": ("carriers", "--users", "20000", "--notice", "0.03"),
    "plan-compare.svg": ("--values", "50", "--sensitive", "5", "--epsilon", "1", "--compare"),
}
"""Each with its command."""


def figure(name: str) -> str:
    """Return a picture."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / name
        arguments = [*PICTURES[name], "--plot", str(drawn), "--surveys", str(deploy_folder("surveys"))]
        result = CliRunner().invoke(plan.command, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return drawn.read_text(encoding="utf-8")


if __name__ == "__main__":
    for name in PICTURES:
        (IMAGES / name).write_text(figure(name), encoding="utf-8")
