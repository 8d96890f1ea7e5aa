"""The reference of survey files for docs/surveys.md, generated from their shape."""

from __future__ import annotations

import inspect

import msgspec

from producers.survey.file import SurveyFile
from producers.survey.messages import tables


def fields() -> str:
    """Return one table of fields for the file and for each of its tables, in Markdown."""
    parts = ["### The file itself", "", *_table(SurveyFile)]
    for name, structs in tables().items():
        for struct in structs:
            tag = struct.__struct_config__.tag
            heading = f"### `{_written(name)}`" if tag is None else f'### `[{name}]` with `kind = "{tag}"`'
            parts += ["", heading, "", inspect.cleandoc(struct.__doc__ or ""), "", *_table(struct)]
    return "\n".join(parts)


def _written(name: str) -> str:
    """Return how a table begins: in double brackets if there may be several."""
    if name == "grid":
        return "[values.grid]"
    field = next(field for field in msgspec.structs.fields(SurveyFile) if field.encode_name == name)
    return f"[[{name}]]" if isinstance(msgspec.inspect.type_info(field.type), msgspec.inspect.ListType) else f"[{name}]"


def _table(struct: type[msgspec.Struct]) -> list[str]:
    rows = ["| field | default | meaning |", "|---|---|---|"]
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        meaning = ""
        if isinstance(field.type, msgspec.inspect.Metadata):
            meaning = str((field.type.extra_json_schema or {}).get("description", ""))
        elif field.encode_name in tables():
            meaning = f"the table `{_written(field.encode_name)}`"
        assert meaning, f"{struct.__name__}.{field.encode_name} needs a description"
        rows.append(f"| `{field.encode_name}` | {_default(field)} | {meaning} |")
    return rows


def _default(field: msgspec.inspect.Field) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if field.default is msgspec.NODEFAULT:
        return "required"
    if field.default is None or field.default == "" or isinstance(field.default, msgspec.Struct):
        return "none"
    return f"`{field.default}`"
