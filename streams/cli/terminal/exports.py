"""What commands share that write or read an export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

DEFAULT: Final = "thaw-export"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def folder_argument(command: _Command) -> _Command:
    """Add the argument FOLDER to a command: the folder of an export, `thaw-export` if it is not given."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.argument("folder", type=kind, default=DEFAULT)(command)
