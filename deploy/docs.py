"""Generated blocks of docs/*.md: `make generated` writes them from the code, a test compares them.

The other way round, the glossary's words become a script of the page, so that both say the same.
"""

import inspect
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from click.testing import CliRunner

import estimators
from deploy import capacity, performance
from estimators.mechanisms import catalogue, registry
from producers.planning import outlook
from producers.survey import reference as survey_docs
from producers.survey.survey import load_survey
from streams import metrics, settings
from streams.cli import plan
from streams.exporter import openapi
from streams.exporter.server import PAGE
from streams.folders import deploy_folder
from streams.gateway import openapi as gateway_api
from streams.kafka import rights
from streams.store import redis_rights

PLANS = {
    "survey": ("--values", "4", "--epsilon", "0.5,1,2", "--notice", "0.05"),
    "compare": ("--values", "50", "--sensitive", "5", "--epsilon", "1", "--compare"),
    "ladder": ("--values", "5", "--notice", "0.03", "--within", "1d", "--assume", "independent"),
}
"""The examples of docs/planning.md."""


def _printed(*arguments: str) -> str:
    """Return what `thaw plan` prints, as a block of text."""
    result = CliRunner().invoke(plan.command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.strip("\n").split("\n")]
    return "\n".join(["```text", *lines, "```"])


DOCS = Path(__file__).resolve().parents[1] / "docs"
TERMS = PAGE / "terms.js"


def example_of(mechanism: str) -> Path:
    """Return the example survey of a mechanism."""
    return deploy_folder("surveys") / f"{'carriers' if mechanism == 'grr' else mechanism}.toml"


def mechanism_sections() -> str:
    """Return one section per mechanism, with its example survey and a picture of its page."""
    parts = []
    for name in registry.names():
        file = example_of(name)
        head, summary, rest = catalogue.section(name).split("\n\n", 2)
        example = f"*Example.* [`{file.name}`](../deploy/surveys/{file.name}): {load_survey(file).question} "
        example += f"Run it: `thaw demo --survey deploy/surveys/{file.name}`."
        picture = f"![The page of {load_survey(file).name}](images/mechanisms/{name}.png)"
        parts.append("\n\n".join([head, summary, example, picture, rest]))
    return "\n\n".join(parts)


def library_names() -> str:
    """Return the public names of the library, each with the first sentence of its docstring."""
    rows = ["| name | meaning |", "|---|---|"]
    for name in estimators.__all__:
        found = getattr(estimators, name)
        sentence = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
        call = "" if inspect.isclass(found) else f"({', '.join(inspect.signature(found).parameters)})"
        rows.append(f"| `{name}{call}` | {sentence.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("mechanisms.md", "overview"): catalogue.overview,
    ("mechanisms.md", "sections"): mechanism_sections,
    ("library.md", "names"): library_names,
    ("surveys.md", "fields"): survey_docs.fields,
    ("settings.md", "settings"): settings.documentation,
    ("settings.md", "rights"): rights.documentation,
    ("settings.md", "redis-rights"): redis_rights.documentation,
    ("dashboard.md", "api"): openapi.documentation,
    ("metrics.md", "exporter"): lambda: metrics.documentation("exporter"),
    ("metrics.md", "worker"): lambda: metrics.documentation("worker"),
    ("metrics.md", "dealer"): lambda: metrics.documentation("dealer"),
    ("metrics.md", "gateway"): lambda: metrics.documentation("gateway"),
    ("gateway.md", "refusals"): gateway_api.documentation,
    ("capacity.md", "constants"): capacity.constants,
    ("capacity.md", "worked"): capacity.worked,
    ("gateway.md", "load"): performance.gateway,
    ("performance.md", "machine"): performance.machine,
    ("performance.md", "ratios"): performance.ratios,
    ("performance.md", "goals"): performance.goals,
    ("performance.md", "cluster"): performance.cluster,
    ("threats.md", "plan"): lambda: outlook.documentation(
        load_survey(deploy_folder("surveys") / "browser.toml"), users=10_000, attackers=20
    ),
    **{("planning.md", name): partial(_printed, *arguments) for name, arguments in PLANS.items()},
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
