"""Error messages about survey files: field, value, remedy. Descriptions come from the shape of the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from producers.survey import file as shapes
from producers.survey.file import SurveyFile


class SurveyError(ValueError):
    """A survey file is refused: which file, which field, its value, the remedy."""

    def __init__(self, source: str, field: str, value: object, remedy: str) -> None:
        shown = repr(value)
        if len(shown) > 200:
            shown = shown[:200] + "..."
        super().__init__(f"{source}: {field}: {remedy}; got {shown}")
        self.source, self.field, self.value, self.remedy = source, field, value, remedy


_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")


def explain_shape(source: str, data: Mapping[str, Any], message: str) -> NoReturn:
    """Turn an error about the shape into field, value and remedy."""
    match = _AT.match(message)
    assert match is not None
    what, path = match["what"], (match["path"] or "$").removeprefix("$").removeprefix(".")
    table = _lookup(data, path)
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown["name"]
        value = table.get(name) if isinstance(table, Mapping) else table
        raise SurveyError(
            source, _join(path, name), value, did_you_mean("field", name, _fields_at(path, data))
        ) from None
    if missing := _MISSING.fullmatch(what):
        field = _join(path, missing["name"])
        remedy = f"is missing; add it ({description_of(field, data)})"
        raise SurveyError(source, field, None, remedy) from None
    what = re.sub("^Invalid (enum )?value", "unknown value", what)
    remedy = f"{what[0].lower()}{what[1:]} ({description_of(path, data)})"
    raise SurveyError(source, path or "file", table, remedy) from None


def _lookup(data: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, list) and part.isdigit():
            data = data[int(part)]
        elif isinstance(data, Mapping):
            data = data.get(part)
        else:
            break
    return data


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _struct_at(path: str, data: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    """Return the table that a dotted path names; which release table it is depends on the file's `kind`."""
    found: type[msgspec.Struct] = SurveyFile
    for part in filter(None, re.sub(r"\[.*", "", path).split(".")):
        options = tables().get(part)
        if options is None:
            return None
        kind = data.get(part, {}).get("kind") if isinstance(data.get(part), Mapping) else None
        found = next((option for option in options if option.__struct_config__.tag == kind), options[0])
    return found


def _fields_at(path: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    found = _struct_at(path, data)
    return () if found is None else found.__struct_encode_fields__


def tables() -> dict[str, tuple[type[msgspec.Struct], ...]]:
    """Return the tables of a survey file by name; `release` has several forms."""
    return {
        "release": (
            shapes.Listed,
            shapes.Linear,
            shapes.Geometric,
            shapes.NoisySampling,
            shapes.OnDemand,
            shapes.WhileWide,
        ),
        "values": (shapes.ValuesTable,),
        "grid": (shapes.GridTable,),
        "window": (shapes.WindowTable,),
        "budget": (shapes.BudgetTable,),
        "estimate": (shapes.EstimateTable,),
        "canary": (shapes.CanaryTable,),
        "alert": (shapes.AlertTable,),
        "limits": (shapes.LimitsTable,),
        "publish": (shapes.PublishTable,),
        "registry": (shapes.RegistryTable,),
    }


def description_of(field: str, data: Mapping[str, Any]) -> str:
    """Return the description of a field, given the file it stands in."""
    parent, _, name = re.sub(r"\[.*", "", field).rpartition(".")
    struct = _struct_at(parent, data)
    if struct is None:
        return "see docs/surveys.md"
    for info in msgspec.inspect.type_info(struct).fields:  # type: ignore[attr-defined]  # a struct's info has fields
        if info.encode_name == name and isinstance(info.type, msgspec.inspect.Metadata):
            return str((info.type.extra_json_schema or {}).get("description", "see docs/surveys.md"))
    if name in tables():
        return f"a table with {', '.join(tables()[name][0].__struct_encode_fields__)}; see docs/surveys.md"
    return "listed, linear, geometric or noisy_sampling" if name == "kind" else "see docs/surveys.md"


def did_you_mean(what: str, name: str, known: Sequence[str]) -> str:
    """Return a remedy for an unknown name of a field or value (`what`): the closest known one, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown {what}; did you mean {close[0]}?" if close else f"unknown {what}; known: {', '.join(known)}"
