"""Generated blocks of docs/*.md: `make generated` writes them from the code, a test compares them."""

from collections.abc import Callable
from pathlib import Path

from estimators.mechanisms import catalogue
from producers.survey import outlook
from producers.survey import reference as survey_docs
from producers.survey.survey import load_survey
from streams import metrics, settings
from streams.exporter import openapi
from streams.folders import deploy_folder

DOCS = Path(__file__).resolve().parents[1] / "docs"

BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("mechanisms.md", "overview"): catalogue.overview,
    ("mechanisms.md", "sections"): catalogue.sections,
    ("surveys.md", "fields"): survey_docs.fields,
    ("settings.md", "settings"): settings.documentation,
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


def write_blocks() -> None:
    """Write all blocks."""
    for (file, name), make in BLOCKS.items():
        path = DOCS / file
        text = path.read_text()
        begin, end = _marks(name)
        before, rest = text.split(begin, 1)
        path.write_text(before + begin + make() + end + rest.split(end, 1)[1])


if __name__ == "__main__":
    write_blocks()
