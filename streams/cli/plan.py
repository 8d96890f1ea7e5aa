"""`thaw plan`: predict a survey; find a mechanism or a ladder."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from estimators.mechanisms.registry import names, specification_class
from estimators.mechanisms.uldp import UtilityOptimized
from estimators.reproduction.charts import Chart
from producers.planning.draft import SOURCE, Draft, sensitive_names, sensitive_parameter, value_names
from producers.survey.check import DAY_MS
from producers.survey.durations import parse_duration
from producers.survey.file import RungAssumption
from producers.survey.messages import SurveyError
from producers.survey.survey import Survey
from streams.cli.planning.sections import (
    CANDIDATES,
    SENSITIVE_CANDIDATES,
    Assumed,
    Plan,
    Sought,
    add_comparison,
    add_ladders,
    add_survey,
)
from streams.cli.planning.tables import console_for_plans
from streams.cli.terminal.parameters import FiniteRange
from streams.cli.terminal.surveys import survey_called
from streams.settings import load_settings, settings_options

_OUTLINE = ("values", "mechanism", "epsilon", "opens", "window", "assume", "parameter")
"""The flags that stand for a survey file."""


class Numbers(click.ParamType):
    """Numbers separated by commas."""

    name = "NUMBERS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            self.fail(f"{value!r}: write numbers separated by commas, such as 0.5,1,2", param, ctx)
        return numbers


class Duration(click.ParamType):
    """A duration such as 90s or 1h 30m, in milliseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


@click.command("plan")
@click.argument("survey", required=False)
@click.option("--users", default=10_000, show_default=True, type=click.IntRange(1), help="Devices that answer.")
@click.option("--attackers", default=0, show_default=True, type=click.IntRange(0), help="How many of them lie.")
@click.option(
    "--band",
    type=FiniteRange(1e-9, 1e15),
    help="Wanted half-width: a share, such as 0.02, or a number in the unit of a mean; prints the devices it takes.",
)
@click.option("--shares", type=Numbers(), help="Expected share of each value, 0.5,0.3,0.2; default: even.")
@click.option("--stops", type=Numbers(), help="Part of the people that stops at each rung; default: 80 % at the top.")
@click.option("--changes", default=4, show_default=True, type=click.IntRange(0), help="Changes of the value in a year.")
@click.option("--values", help="Without SURVEY: a number of values, or their names separated by commas.")
@click.option("--sensitive", help="Which values are sensitive: a number (the first ones), or names.")
@click.option("--mechanism", help="Without SURVEY: name of the mechanism, see docs/mechanisms.md.")
@click.option(
    "--parameter",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the mechanism, as in a survey file: theta=0.6, 'tags=[\"home\"]'; may be repeated.",
)
@click.option("--epsilon", type=Numbers(), help="Without SURVEY: the ladder of levels, such as 0.5,1,2.")
@click.option("--opens", help="Without SURVEY: when the rungs open, such as 0s,1d,3d; default: a window apart.")
@click.option("--window", type=Duration(), help="Without SURVEY: length of a window; default 1d.")
@click.option("--assume", type=click.Choice(["any", "independent"]), help="Without SURVEY: about rungs; default any.")
@click.option("--notice", type=FiniteRange(0, min_open=True), help="Change beyond a threshold to be noticed.")
@click.option("--value", help="Value that an alert watches; default: the noisiest.")
@click.option(
    "--threshold", type=FiniteRange(-1e15, 1e15), help="Threshold of the alert; default: the expected quantity."
)
@click.option("--below", is_flag=True, help="Notice a fall below the threshold instead of a rise above it.")
@click.option(
    "--alpha",
    default=0.01,
    show_default=True,
    type=FiniteRange(0, 0.5, min_open=True, max_open=True),
    help="Probability of a false alarm per window, over all looks.",
)
@click.option(
    "--power",
    default=0.9,
    show_default=True,
    type=FiniteRange(0.5, 1, max_open=True),
    help="Probability with which a change is to be noticed.",
)
@click.option("--within", type=Duration(), help="Find the cheapest ladder that notices --notice so long after the end.")
@click.option("--compare", "comparing", is_flag=True, help="Compare mechanisms for these values and this level.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the charts to this SVG file.")
@settings_options("surveys")
def command(survey: str | None, **given: Any) -> None:
    """Plan SURVEY (a file, or a name or id in the survey folder), or what --values, --mechanism and --epsilon outline.

    Prints expected intervals per value, rung and number of devices, what people who stop early and lying devices do,
    when alerts notice a change, and what a year costs. `--compare` says which mechanism has the smallest error.
    `--notice 0.03 --within 1d` runs the planner backwards: the cheapest ladder for that goal.

    A lying device is one token. An attacker who can invent tokens is any number of lying devices: docs/threats.md.
    """
    if given["attackers"] > given["users"]:
        raise click.UsageError(f"--attackers must be at most --users ({given['users']}); got {given['attackers']}")
    if given["plot"] is not None and not given["plot"].parent.is_dir():
        raise click.UsageError(f"--plot: the folder {given['plot'].parent} does not exist; create it or name another")
    try:
        plan = _planned(survey, given)
    except SurveyError as error:
        if error.source != SOURCE:
            raise
        raise click.UsageError(f"{_flag(error.field)}: {error.remedy}; got {error.value!r}") from error
    except ValueError as error:
        raise click.UsageError(f"--{error}") from error
    if given["plot"] is not None:
        _draw(plan.charts, given["plot"])
    if given["as_json"]:
        click.echo(json.dumps(plan.data, allow_nan=False))
    else:
        console = console_for_plans()
        for show in plan.shown:
            show(console)


def _planned(named: str | None, given: dict[str, Any]) -> Plan:
    """Return the plan: of a survey where there is one, of the goals that are asked for."""
    plan = Plan(Assumed(**{name: given[name] for name in Assumed.__dataclass_fields__}), given["plot"] is not None)
    if named is not None:
        taken = [name for name in _OUTLINE if given[name] not in (None, ())]
        if taken:
            raise click.UsageError(f"--{taken[0]} outlines a survey, and SURVEY names one; use one of the two")
        survey: Survey | None = survey_called(named, load_settings({"surveys": given["surveys"]}))
    else:
        survey = _outlined(given)
    if given["sensitive"] and not given["comparing"] and survey is not None:
        has_its_own = "sensitive" in type(survey.mechanism).parameters
        if named is not None or (not has_its_own and given["within"] is None):
            raise click.UsageError("--sensitive changes nothing here: add --compare, or leave it out")
    if survey is not None:
        add_survey(plan, survey)
    values = survey.mechanism.labels if survey is not None else _values(given)
    if given["comparing"]:
        ladder = survey.mechanism.ladder if survey is not None else given["epsilon"]
        if not ladder:
            raise click.UsageError("--compare needs a level: name a SURVEY, or give --epsilon")
        if survey is not None and any(quantity.kind != "share" for quantity in survey.mechanism.quantities):
            raise click.UsageError(
                f"--compare is about shares of values, and {survey.mechanism.name} estimates means; leave it out"
            )
        add_comparison(plan, values, _sensitive(given, values, survey), ladder[-1])
    if given["within"] is not None:
        add_ladders(plan, _sought(given, values, survey), given["within"])
    return plan


def _flag(field: str) -> str:
    """Return the flag that stands for a field of a survey file."""
    parts = field.partition("[")[0].split(".")
    if parts[0] in ("release", "ladder"):
        return "--opens" if parts[-1] == "opens" else "--epsilon"
    if parts[0] in ("values", "window") or parts[-1] in ("mechanism", "name"):
        return f"--{parts[0]}"
    return f"--parameter {parts[-1]}=..."


def _outlined(given: dict[str, Any]) -> Survey | None:
    """Return the survey that flags outline; None where only goals are asked for."""
    if not given["values"] and not given["mechanism"]:
        raise click.UsageError("name a SURVEY, or outline one with --values, --mechanism and --epsilon")
    if given["mechanism"] is None and (given["comparing"] or given["within"] is not None):
        return None
    if not given["epsilon"]:
        if given["within"] is not None:
            return None
        raise click.UsageError("--epsilon is missing: the ladder of levels, such as --epsilon 0.5,1,2")
    ladder = given["epsilon"]
    window_ms = DAY_MS if given["window"] is None else given["window"]
    opens = given["opens"].split(",") if given["opens"] else []
    default = [rung * window_ms for rung in range(len(ladder))] if len(ladder) > 1 else []
    try:
        opens_ms = [parse_duration(part) for part in opens] or default
    except ValueError as error:
        raise ValueError(f"opens: {error}; got {given['opens']!r}") from None
    values = _values(given)
    mechanism = given["mechanism"] or "grr"
    parameters = _parameters(given, values, mechanism)
    assume: RungAssumption = given["assume"] or "any"
    return Draft(values, mechanism, ladder, tuple(opens_ms), window_ms, None, assume, parameters).survey()


def _values(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the values that are outlined; there are none of a mean."""
    return () if given["values"] is None else value_names(given["values"])


def _parameters(given: dict[str, Any], values: Sequence[str], mechanism: str) -> dict[str, Any]:
    """Return the parameters of the mechanism: those given, and the sensitive values where it has them."""
    found: dict[str, Any] = {}
    for text in given["parameter"]:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"parameter: write NAME=VALUE, such as theta=0.6; got {text!r}")
        try:
            found[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = value
    if given["sensitive"] and mechanism in names() and "sensitive" in specification_class(mechanism).parameters:
        chosen = sensitive_names(given["sensitive"], values)
        found.setdefault("sensitive", sensitive_parameter(mechanism, chosen))
    return found


def _sensitive(given: dict[str, Any], values: Sequence[str], survey: Survey | None) -> Sequence[str]:
    """Return the sensitive values: those named, those of the mechanism, or all."""
    if given["sensitive"]:
        return sensitive_names(given["sensitive"], values)
    mechanism = None if survey is None else survey.mechanism
    return mechanism.sensitive if isinstance(mechanism, UtilityOptimized) else values


def _sought(given: dict[str, Any], values: Sequence[str], survey: Survey | None) -> Sought:
    if survey is not None:
        return Sought.like(survey)
    named: tuple[str, ...] = CANDIDATES
    if given["mechanism"]:
        named = (given["mechanism"],)
    elif given["sensitive"]:
        named = (*CANDIDATES, *SENSITIVE_CANDIDATES)
    mechanisms = tuple((name, _parameters(given, values, name)) for name in named)
    window_ms = DAY_MS if given["window"] is None else given["window"]
    return Sought(tuple(values), mechanisms, window_ms, given["assume"] or "any")


def _draw(charts: Sequence[Chart], path: Path) -> None:
    # Here, since matplotlib takes a second to import and is in another extra than the rest of the command.
    try:
        from streams.reproduction.pictures import draw
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"--plot needs the package {error.name}, which is not installed; run: pip install 'thaw[plot]'"
        ) from error
    path.write_text(draw(charts))
