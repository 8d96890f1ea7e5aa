"""The command line. Subcommands are loaded when they are called, so that `thaw --help` answers at once.

Results go to stdout, talk to stderr. Exit status: 0 done, 1 failed, 2 used wrongly, 75 not ready: try again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

NOT_READY = 75

_COMMANDS = {
    "alerts": ("streams.cli.alerts:alerts_group", "Write alert rules for Prometheus."),
    "config": ("streams.cli.config:config_command", "Show the settings in force."),
    "deadletters": ("streams.cli.deadletters:deadletters_group", "Look at refused reports and send them again."),
    "demo": ("streams.cli.demo:demo_command", "Run the whole path on this machine and watch it."),
    "estimates": ("streams.cli.estimates:estimates_command", "Print stored estimates."),
    "exporter": ("streams.cli.exporter:exporter_command", "Serve metrics, the page and the API."),
    "fleet": ("streams.cli.fleet:fleet_command", "Simulate devices."),
    "plan": ("streams.cli.plan:plan_command", "How sharp estimates will be, and how far liars can move them."),
    "rebuild": ("streams.cli.rebuild:rebuild_command", "Count again from Kafka alone; compare or replace."),
    "survey": ("streams.cli.survey:survey_group", "Check survey files and explain them."),
    "topics": ("streams.kafka.topics:topics_group", "Look at the topics and create missing ones."),
    "worker": ("streams.worker.driver:worker_command", "Count reports and estimate."),
}


class LazyGroup(click.Group):
    """A group that knows the names and one-line helps of its commands, and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="thaw", prog_name="thaw")
def cli() -> None:
    """Gradually released, locally private surveys: devices, Kafka, counts in Redis, estimates with error bars.

    Settings are variables THAW_*; flags overrule them; `thaw config` shows what holds. Shell completion:
    eval "$(_THAW_COMPLETE=bash_source thaw)".
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    from streams.settings import SettingsError

    try:
        result: Any = cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except SettingsError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except click.exceptions.Abort:
        click.echo("Aborted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output went away: `thaw estimates | head`.
        sys.stderr.close()
        sys.exit(1)
    sys.exit(result if isinstance(result, int) else 0)


if __name__ == "__main__":
    main()
