"""Generated blocks of docs/*.md: `make generated` writes them from the code, a test compares them.

The other way round, the glossary's words become a script of the page, so that both say the same.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from estimators.mechanisms import catalogue
from producers.survey import outlook
from producers.survey import reference as survey_docs
from producers.survey.survey import load_survey
from streams import metrics, settings
from streams.exporter import openapi
from streams.exporter.server import PAGE
from streams.folders import deploy_folder
from streams.kafka import rights

DOCS = Path(__file__).resolve().parents[1] / "docs"
TERMS = PAGE / "terms.js"

BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("mechanisms.md", "overview"): catalogue.overview,
    ("mechanisms.md", "sections"): catalogue.sections,
    ("surveys.md", "fields"): survey_docs.fields,
    ("settings.md", "settings"): settings.documentation,
    ("settings.md", "rights"): rights.documentation,
    ("dashboard.md", "api"): openapi.documentation,
    ("metrics.md", "exporter"): lambda: metrics.documentation("exporter"),
    ("metrics.md", "worker"): lambda: metrics.documentation("worker"),
    ("threats.md", "plan"): lambda: outlook.documentation(
        load_survey(deploy_folder("surveys") / "browser.toml"), users=10_000, attackers=20
    ),
}


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- generated: {name} -->\n", f"\n<!-- end: {name} -->"


def generated_block(path: Path, name: str) -> str:
    """Return the text between the marks of a block."""
    begin, end = _marks(name)
    text = path.read_text()
    assert begin in text, f"expected {begin.strip()!r} in {path.name}; write the marks by hand once"
    return text.split(begin, 1)[1].split(end, 1)[0]


def terms_script() -> str:
    """Return the script that holds the words of the glossary, without links and markup."""
    rows = re.findall(r"^\| (?!word )([^|]+) \| ([^|]+) \|$", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)
    plain = [{"word": word, "meaning": _plain(meaning)} for word, meaning in rows]
    lines = "".join(f"  {json.dumps(row, ensure_ascii=False)},\n" for row in plain)
    head = "// The words of docs/glossary.md; `make generated` writes this file."
    return f"{head}\n\nexport const TERMS = [\n{lines}];\n"


def _plain(markdown: str) -> str:
    """Return the text of a cell: a reference in brackets goes, of other links and code the text stays."""
    text = re.sub(r" \(\[[^\]]+\]\([^)]+\)\)", "", markdown)
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)).strip()


def write_blocks() -> None:
    """Write all blocks, and the page's script of words."""
    TERMS.write_text(terms_script())
    for (file, name), make in BLOCKS.items():
        path = DOCS / file
        text = path.read_text()
        begin, end = _marks(name)
        before, rest = text.split(begin, 1)
        path.write_text(before + begin + make() + end + rest.split(end, 1)[1])


if __name__ == "__main__":
    write_blocks()
