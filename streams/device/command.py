"""Running a value command: for a limited time, with limited output, and with no child of it left where it fails."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import IO, Final

COMMAND_SECONDS: Final = 60.0
MOST_VALUE_BYTES: Final = 64 << 10
_LOOK_SECONDS: Final = 0.25
"""Time between two looks whether the program is to stop."""


def printed(
    command: str, env: Mapping[str, str], stops: Callable[[], bool], *, seconds: float = COMMAND_SECONDS
) -> str:
    """Return what a shell command prints; OSError if it fails. What it prints is not repeated in any message."""
    end = time.monotonic() + seconds
    # A group of its own, so that what the shell has started ends with it.
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, env=dict(env), process_group=0) as child:
        assert child.stdout is not None
        try:
            raw = _read(child.stdout, end, stops)
            status = child.wait(max(end - time.monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signal.SIGKILL)
            raise OSError(f"the value command took longer than {seconds:.0f} s") from None
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    if status != 0:
        raise OSError(f"the value command ended with status {status}")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise OSError("the value command printed something else than UTF-8") from None


def _read(pipe: IO[bytes], end: float, stops: Callable[[], bool]) -> bytes:
    """Read to the end of a pipe, until a moment, and not more than a value may have."""
    raw = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(min(max(end - time.monotonic(), 0), _LOOK_SECONDS)):
                if stops():
                    raise OSError("the device stops")
                if time.monotonic() >= end:
                    raise TimeoutError
                continue
            part = os.read(pipe.fileno(), MOST_VALUE_BYTES)
            raw += part
            if not part:
                return raw
            if len(raw) > MOST_VALUE_BYTES:
                raise OSError(f"the value command printed more than {MOST_VALUE_BYTES:,} bytes")
