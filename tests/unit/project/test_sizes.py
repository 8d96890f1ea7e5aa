"""Files and functions stay short enough to be read at once, unless a reason is written beside them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT, tracked

FILE_LINES = 400
FUNCTION_LINES = 60
REASON = "Long because "
"""How the docstring of a longer function, or the comment right above it, begins the reason."""


PYTHON = tracked("*.py")


def functions_without_a_reason(source: str) -> list[str]:
    """Return the functions that are too long and state no reason, each with its line and length."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        length = node.end_lineno - node.lineno + 1
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        above = first - 1
        while above > 0 and lines[above - 1].lstrip().startswith("#"):
            above -= 1
        reasons = "\n".join(lines[above : first - 1]) + (ast.get_docstring(node) or "")
        if length > FUNCTION_LINES and REASON not in reasons:
            found.append(f"{node.name} at line {node.lineno}: {length} lines")
    return found


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in [*PYTHON, *tracked("*.js")]}
    long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > FILE_LINES}
    assert not long, f"split files of more than {FILE_LINES} lines"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_long_function_states_its_reason(path: Path) -> None:
    found = functions_without_a_reason(path.read_text())
    assert not found, f"split functions of more than {FUNCTION_LINES} lines, or write '{REASON}...' in the docstring"


def test_a_reason_counts_in_a_docstring_or_right_above() -> None:
    body = "    x = 1\n" * FUNCTION_LINES
    assert functions_without_a_reason(f"def f():\n{body}") == ["f at line 1: 61 lines"]
    assert functions_without_a_reason(f'def f():\n    """Do it.\n\n    {REASON}it is one table.\n    """\n{body}') == []
    assert functions_without_a_reason(f"# {REASON}it is one table.\n@decorated\ndef f():\n{body}") == []
    assert functions_without_a_reason(f"# {REASON}it is one table.\n\ndef f():\n{body}") == ["f at line 3: 61 lines"]
