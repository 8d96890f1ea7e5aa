"""Commands of the command line, run in the process of the test: one of their own would mostly import."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from streams.cli import main as cli
from streams.settings import Settings


class Outcome(NamedTuple):
    """What a command of the command line did."""

    status: int
    out: str
    err: str


Thaw = Callable[..., Outcome]


def commands(settings: Settings, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Thaw:
    """Return what runs commands with these settings."""
    for name in ("kafka", "redis", "prefix", "surveys"):
        monkeypatch.setenv(f"THAW_{name.upper()}", getattr(settings, name))

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        return Outcome(int(end.value.code or 0), *capfd.readouterr())

    return run
