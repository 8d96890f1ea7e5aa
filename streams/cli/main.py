"""The command line: a group that finds the command NAME as `command` in `streams/cli/NAME.py`.

A command is imported when it is called, so that `thaw --help` answers at once. Results go to stdout, messages to
stderr. Exit status: 0 done, 1 failed, 2 used wrongly, 75 not ready: try again.
"""

from __future__ import annotations

import ast
import errno
import importlib
import importlib.util
import io
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from producers.survey.messages import SurveyError
from streams import cli as room
from streams import logs
from streams.failures import OutsideError
from streams.settings import LOGS, SettingsError, load_some, settings_options
from streams.urls import without_secrets

_NOT_COMMANDS = frozenset({"main", "__main__"})
_OWN_PACKAGES = frozenset({"estimators", "producers", "streams"})

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""Errors of a file without a name: the output. Others are errors of connections, and the like."""
_LONGEST_REASON: Final = 300
LEVEL_VARIABLE: Final = "THAW_LOG_LEVEL"

EXTRAS = {
    "alerts": "exporter",
    "audit": "audit",
    "bulletin": "bulletin",
    "deadletters": "worker",
    "dealer": "dealer",
    "demo": "demo",
    "device": "device",
    "estimates": "exporter",
    "export": "export",
    "exporter": "exporter",
    "fleet": "demo",
    "gateway": "gateway",
    "market": "market",
    "plan": "survey",
    "rebuild": "worker",
    "recount": "export",
    "reproduce": "papers",
    "survey": "survey",
    "topics": "worker",
    "verify": "worker",
    "worker": "worker",
}
"""The extra of the distribution that each command needs; a command that is not listed needs none."""


class LazyGroup(click.Group):
    """A group of the commands in `streams/cli`: it imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names: those of the files."""
        found = pkgutil.iter_modules(room.__path__)
        return sorted(module.name for module in found if not module.ispkg and module.name not in _NOT_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            click.ClickException: a package of its extra is not installed; the message names the extra.
        """
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            found = importlib.import_module(f"{room.__name__}.{cmd_name}").command
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in _OWN_PACKAGES or cmd_name not in EXTRAS:
                raise
            raise click.ClickException(
                f"`thaw {cmd_name}` needs the package {package}, which is not installed; "
                f"run: pip install 'thaw[{EXTRAS[cmd_name]}]'"
            ) from error
        assert isinstance(found, click.Command)
        return with_logs(found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one_line(name)) for name in self.list_commands(ctx)])


def one_line(name: str) -> str:
    """Return the one-line help of a command: the first line of its module, after the name.

    >>> one_line("config")
    'Show the settings in force, secrets masked.'
    """
    spec = importlib.util.find_spec(f"{room.__name__}.{name}")
    assert spec is not None
    source = spec.loader.get_source(spec.name)  # type: ignore[union-attr]  # loaders of source files have it
    text = ast.get_docstring(ast.parse(source)) or ""
    sentence = text.partition("\n")[0].removeprefix(f"`thaw {name}`: ")
    return sentence[:1].upper() + sentence[1:]


@cache
def with_logs(command: click.Command) -> click.Command:
    """Give a command, or all of a group, the flags of log lines, and let it configure them before it runs.

    A command that has these settings itself runs until it is stopped, or shows settings; its default level is theirs.
    The others print a result, and from `warning` on what a person must know of it.
    """
    if isinstance(command, click.Group):
        for part in command.commands.values():
            with_logs(part)
        return command
    run, own = command.callback, {parameter.name for parameter in command.params}
    assert run is not None
    added = [name for name in LOGS if name not in own]
    settings_options(*reversed(added))(command)

    def configured(**values: Any) -> Any:
        given = {name: values.pop(name) if name in added else values[name] for name in LOGS}
        chosen = load_some(LOGS, given)
        logs.configure(chosen.get("log_level", "warning" if added else "info"), chosen.get("log_format", "auto"))
        return run(**values)

    command.callback = configured
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thaw", prog_name="thaw")
def cli() -> None:
    """Gradually released, locally private surveys: devices, Kafka, counts in Redis, estimates
    with confidence intervals.

    Settings are variables THAW_*; flags override them; `thaw config` shows the result. Shell completion:
    eval "$(_THAW_COMPLETE=bash_source thaw)".
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    _prepare_streams()
    try:
        result: Any = cli.main(
            args=None if arguments is None else list(arguments), prog_name="thaw", standalone_mode=False
        )
        sys.stdout.flush()
    except SettingsError as error:
        _fail(str(error), 2)
    except SurveyError as error:
        _fail(f"refused: {error}", 1)
    except OutsideError as error:
        _fail(error.sentence(), error.exit_status)
    except click.exceptions.Abort:
        click.echo("Aborted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of the output has closed it: `thaw estimates | head`.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        _explain(error)
    sys.exit(result if isinstance(result, int) else 0)


def _prepare_streams() -> None:
    """Let nothing fail because of the output: signs that its encoding lacks are replaced; what is closed is nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _explain(error: Exception) -> NoReturn:
    """Print what happened, and exit; with the level debug also where."""
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _OUTPUT_ERRORS):
        where = error.filename
        if where is None:
            where = "the output"
            _drop_output()
        _fail(f"{where}: {error.strerror or error}; check that it exists, is of the right kind and has room", 1)
    given = os.environ.get(LEVEL_VARIABLE, "").lower()
    if given == "debug" or logging.getLogger().level == logging.DEBUG:
        click.echo(without_secrets(traceback.format_exc()), err=True, nl=False)
    place = traceback.extract_tb(error.__traceback__)[-1]
    told = " ".join(str(error).split())[:_LONGEST_REASON] or "no reason given"
    _fail(
        f"unexpected {type(error).__name__} ({told}) in {Path(place.filename).name}, line {place.lineno}; this is a "
        f"fault of thaw: please report it, with what the same command prints with {LEVEL_VARIABLE}=debug",
        1,
    )


def _drop_output() -> None:
    """Point stdout to nowhere: it cannot be written, and Python would try again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> NoReturn:
    """Print one message and exit."""
    click.echo(f"Error: {without_secrets(message)}", err=True)
    sys.exit(status)
