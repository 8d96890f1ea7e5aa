"""The page about all mechanisms, made from the mechanisms themselves."""

from __future__ import annotations

import inspect

from estimators.mechanism import Specification
from estimators.mechanisms.registry import names, specification_class


def overview() -> str:
    """Return one table row per mechanism: name, what it does, whether it is local privacy, which ladders."""
    rows = ["| name | what a device does | local | ladder |", "|---|---|---|---|"]
    for name in names():
        kind = specification_class(name)
        local = {"every value": "yes", "sensitive values": "sensitive values only", "nothing": "**no**"}[
            kind.guarantee.protects
        ]
        rows.append(f"| [`{name}`](#{name}) | {_cell(summary(kind))} | {local} | {_cell(kind.ladders)} |")
    return "\n".join(rows)


def section(name: str) -> str:
    """Return the section of one mechanism: guarantee, threat model, ladder, parameters, estimators, source, errata."""
    kind = specification_class(name)
    lines = [f"### {name}", "", summary(kind), "", f"*Guarantee.* {kind.guarantee.sentence}"]
    lines += ["", f"*Against whom.* {kind.guarantee.threat_model}"]
    if not kind.guarantee.local:
        what = "protects sensitive values only" if kind.guarantee.protects == "sensitive values" else "nothing local"
        asks = ": a survey must set `accept_risk`" if kind.guarantee.is_risk else ""
        lines += ["", f"**Not local differential privacy**, {what}{asks}."]
    lines += ["", f"*Ladder.* {kind.ladders}"]
    lines += ["", f"*Estimators.* {', '.join(f'`{method}`' for method in kind.methods)}."]
    lines += ["", f"*Source.* {kind.source}."]
    if kind.parameters:
        lines += ["", "| parameter | meaning |", "|---|---|"]
        lines += [f"| `{parameter}` | {_cell(meaning)} |" for parameter, meaning in kind.parameters.items()]
    if kind.corrections:
        lines += ["", "Where it departs from the printed paper:", ""]
        lines += [f"* {correction}" for correction in kind.corrections]
    return "\n".join(lines)


def summary(kind: type[Specification]) -> str:
    """Return the first paragraph of a mechanism's docstring in one line."""
    text = inspect.cleandoc(kind.__doc__ or "").split("\n\n", 1)[0]
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
