"""The command line under test: its commands, its messages, and files that are not what a command needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

NOWHERE = {"THAW_KAFKA": "127.0.0.1:1", "THAW_REDIS": "redis://127.0.0.1:1/0"}
"""Services that no command may wait for when its input is wrong."""


class Places(NamedTuple):
    """Files and folders that are not what a command needs."""

    good: str
    missing: str
    folder: str
    empty: str
    broken: str
    text: str
    below_file: str


def walk(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from walk(found, f"{name} {part}".strip())
    else:
        yield name, command


def check_message(err: str, named: set[str]) -> None:
    """One error, short, which names what is wrong; no traceback."""
    assert "Traceback" not in err
    lines = err.splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith(("Error:", "refused:"))]
    message = "\n".join(lines[first:])
    assert 20 < len(message) < 700, err
    assert any(name in message for name in named), err


def thaw(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streams.cli", *arguments], stderr=subprocess.PIPE, text=True, **options
    )
