"""The command line: a group that finds the command NAME as `command` in `streams/cli/NAME.py`.

A command is imported when it is called, so that `thaw --help` answers at once. Results go to stdout, messages to
stderr. Exit status: 0 done, 1 failed, 2 used wrongly, 75 not ready: try again.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from producers.survey.messages import SurveyError
from streams import cli as room
from streams.failures import OutsideError
from streams.settings import SettingsError

_NOT_COMMANDS = frozenset({"main", "__main__"})
_OWN_PACKAGES = frozenset({"estimators", "producers", "streams"})

EXTRAS = {
    "alerts": "exporter",
    "deadletters": "worker",
    "demo": "demo",
    "estimates": "exporter",
    "exporter": "exporter",
    "fleet": "demo",
    "plan": "survey",
    "rebuild": "worker",
    "reproduce": "papers",
    "survey": "survey",
    "topics": "worker",
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
        return found

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
    except OSError as error:
        where = error.filename
        if where is None:
            where = "the output"
            _drop_output()
        _fail(f"{where}: {error.strerror or error}; check that it exists, is of the right kind and has room", 1)
    sys.exit(result if isinstance(result, int) else 0)


def _drop_output() -> None:
    """Point stdout to nowhere: it cannot be written, and Python would try again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> NoReturn:
    """Print one message and exit."""
    click.echo(f"Error: {message}", err=True)
    sys.exit(status)
