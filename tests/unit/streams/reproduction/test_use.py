"""Every published number is held against one of ours, and experiments ask only for numbers that are in the files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from estimators import reproduction
from streams.reproduction.published import load_published

ROOM = Path(reproduction.__path__[0])


def patterns() -> list[str]:
    """Return regular expressions of the ids that experiments name, a placeholder fitting anything."""
    found = []
    for path in ROOM.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        pieces = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
                found.append(re.escape(node.value))
    return [pattern for pattern in found if re.match(r"[a-z]+\\\.", pattern)]


def test_every_published_number_is_used() -> None:
    named = patterns()
    unused = [key for key in load_published() if not any(re.fullmatch(pattern, key) for pattern in named)]
    assert not unused, "hold these numbers in an experiment, or remove them"


def test_every_id_that_an_experiment_names_exists() -> None:
    known = load_published()
    missing = [p for p in patterns() if not any(re.fullmatch(p, key) for key in known)]
    assert not missing, "write these numbers into a file of streams/reproduction/published"
