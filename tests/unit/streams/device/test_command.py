"""A value command: what it prints, and what is left of it where it takes too long or prints too much."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from streams.device.command import MOST_VALUE_BYTES, printed
from tests.support.deadline import until


def never() -> bool:
    return False


def test_a_value_is_what_the_command_prints() -> None:
    assert printed("printf '%s grün' $COLOUR", os.environ | {"COLOUR": "not"}, never) == "not grün"
    assert len(printed(f"head -c {MOST_VALUE_BYTES} /dev/zero", os.environ, never)) == MOST_VALUE_BYTES


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo red; exit 3", "ended with status 3"),
        ("kill -9 $$", "ended with status -9"),
        ("printf '\\377'", "something else than UTF-8"),
        ("yes purple", "more than 65,536 bytes"),
    ],
)
def test_a_command_that_fails_is_told_without_what_it_printed(command: str, why: str) -> None:
    with pytest.raises(OSError, match=why) as error:
        printed(command, os.environ, never)
    assert not any(word in str(error.value) for word in ("red", "purple"))


@pytest.mark.parametrize("closes", ["", "exec >&-; "], ids=["with its output open", "with its output closed"])
def test_a_command_that_takes_too_long_ends_with_all_that_it_started(closes: str, tmp_path: Path) -> None:
    command = f"{closes}sleep 1000 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(OSError, match="took longer than 5 s"):
        printed(command, os.environ, never, seconds=5)
    child = int((tmp_path / "child").read_text())
    until(lambda: has_ended(child), 60, "the end of the command's child")


def test_a_device_that_is_stopped_does_not_wait_for_its_command(tmp_path: Path) -> None:
    stop = threading.Event()

    def stops() -> bool:
        if (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"):
            stop.set()
        return stop.is_set()

    with pytest.raises(OSError, match="the device stops"):
        printed(f"sleep 1000 & echo $! > {tmp_path}/child; wait", os.environ, stops, seconds=1_000)
    child = int((tmp_path / "child").read_text())
    until(lambda: has_ended(child), 60, "the end of the command's child")


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or waits for nothing but to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
