"""`thaw config`: show the settings in force, secrets masked."""

from __future__ import annotations

import json
from typing import Any

import click

from streams.settings import PUBLIC, load_settings, settings_options, unknown_variables


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*PUBLIC)
def command(as_json: bool, **flags: Any) -> None:
    """Show the settings in force: flags before THAW_* variables before defaults.

    Secrets are masked, also in addresses, and are never flags: all users of a machine can read the arguments of its
    processes.
    """
    shown = load_settings(flags).public()
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        for variable, value in shown.items():
            click.echo(f"{variable}={int(value) if isinstance(value, bool) else value}")
    for name in unknown_variables():
        click.echo(f"{name} is set but is not a setting; check the spelling", err=True)
