"""`thaw estimates --format`: what cannot be written is refused before anything is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.streams.cli.test_main import run

NOWHERE = ("--redis", "redis://127.0.0.1:1/0")
"""No command below may ask it: status 75 would tell."""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--output", "x.csv"), "--output writes data once; give it with --format, --csv or --json"),
        (("--csv", "--output", "x.csv", "--watch"), "without --watch"),
        (("--format", "parquet", "--watch"), "--format parquet cannot be watched; choose csv or json"),
        (("--format", "csv", "--output", "missing/x.csv"), "--output: missing is not a folder; got missing/x.csv"),
        (("--format", "excel"), "'excel' is not one of 'csv', 'json', 'parquet'"),
    ],
)
def test_what_does_not_fit_is_wrong_use(
    flags: tuple[str, ...],
    message: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capfd, "estimates", *NOWHERE, *flags)
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_parquet_is_not_printed_on_a_terminal() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "streams.cli", "estimates", "--format", "parquet", *NOWHERE]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "--format parquet is not text; write it to a file with --output FILE, or a pipe" in done.stderr


def test_without_the_package_of_parquet_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from streams.cli.main import main\n"
        f"main(['estimates', '--format', 'parquet', *{NOWHERE!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "run: pip install 'thaw[parquet]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_existing_file_is_kept_when_redis_does_not_answer(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("kept")
    assert run(capfd, "estimates", *NOWHERE, "--csv", "--output", str(old))[0] == 75
    assert old.read_text() == "kept"
