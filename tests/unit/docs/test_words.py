"""Documentation and user-visible strings use the words of `docs/glossary.md` and none of those that they replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

REPLACED = {
    r"dead[- ]letter office": "dead-letter sender",
    r"(?<!dead )(?<!dead-)(?<!dead)(?<!lower-case )(?<!small )(?<!capital )\bletters?\b(?!, digit| or digit| of )": (
        "dead letter, or outgoing report"
    ),
    r"\bstrangers?\b": "unknown survey, unknown value",
    r"no such word": "unknown field",
    r"back in time": "stored offset regressed: Redis lost acknowledged writes",
    r"\bwoken\b|\bwakes? (somebody|people|anybody)": "alerted",
    r"last words?\b": "heartbeat",
    r"\bcr(y|ies|ied) wolf": "false alarm",
    r"\bwho(so)?ever\b": "anyone who, the party that",
    r"in so many words": "explicitly",
    r"(people are|somebody is) told|worth a word": "alert",
    r"\bill\b": "unhealthy",
    r"would change our mind": "reverse it",
    r"(leaves?|leaving|left) with (status )?75": "exit with status 75",
    r"start me again": "safe to restart",
    r"\bdirty (windows?|marks?)": "window in the recompute queue",
    r"without a word\b": "without an error",
    r"\bliars?\b": "lying device",
    r"can be believed|not believed|\bbelieves?\b": "is calibrated, is trusted, assumes",
}
"""Pattern, and what to write in its place."""

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
MODULES = sorted(path for package in ("estimators", "producers", "streams") for path in (ROOT / package).rglob("*.py"))
PAGE_FILES = sorted(
    path for path in (ROOT / "streams" / "exporter" / "dashboard").rglob("*") if path.suffix in {".js", ".html"}
)
DEPLOYED = sorted(path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".toml", ".yaml", ".yml", ".json"})


def found(text: str) -> list[str]:
    """Return every replaced word of a text and the word to use."""
    text = " ".join(text.split())
    return [
        f"{text[max(match.start() - 30, 0) : match.end() + 30]!r}; write: {instead}"
        for pattern, instead in REPLACED.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Return the string nodes that stand alone: docstrings, of attributes too."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def strings(path: Path) -> Iterator[str]:
    """Return what a module may show: all strings but docstrings, and in commands these too, for they are help."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = set() if path.parent.name == "cli" else docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in hidden:
            yield node.value


def test_a_replaced_word_would_be_found() -> None:
    assert len(found("the store went back\nin time; answers from strangers; the dead letter office")) == 3
    assert found("dead letters, dead-letter topic, deadletters, lower-case letters, digits") == []


@pytest.mark.parametrize("path", [*PAGES, *PAGE_FILES, *DEPLOYED], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_uses_a_replaced_word(path: Path) -> None:
    assert found(path.read_text(encoding="utf-8")) == []


def test_no_message_uses_a_replaced_word() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {hit}" for path in MODULES for text in strings(path) for hit in found(text)]
    assert wrong == []
