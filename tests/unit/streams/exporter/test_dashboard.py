"""The page's files: nothing from elsewhere, nothing that turns text into markup, colours that can be read."""

import hashlib
import re
from pathlib import Path

import pytest

from deploy.docs import DOCS, TERMS, terms_script
from streams.exporter.server import PAGE

OWN = sorted(path for path in PAGE.glob("*") if path.is_file())
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
STYLE = (PAGE / "style.css").read_text()


def test_there_are_files_to_check() -> None:
    assert {"index.html", "app.js", "charts.js", "style.css"} <= {path.name for path in OWN}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_out_of_text(path: Path) -> None:
    text = path.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    ):
        assert word not in text, word
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]{2,}[^\s\"')]*", path.read_text())
    assert [address for address in addresses if not address.startswith("http://www.w3.org/2000/svg")] == []


def test_the_markup_holds_no_script_and_no_style_of_its_own() -> None:
    markup = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", markup) == []


def test_every_import_and_link_is_a_file_that_exists() -> None:
    for path in SCRIPTS:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (PAGE / name).is_file(), f"{path.name} imports {name}"
    for name in re.findall(r'(?:href|src)="/static/([^"]+)"', (PAGE / "index.html").read_text()):
        assert (PAGE / name).is_file(), name


def test_help_on_terms_is_the_glossary_and_every_term_of_the_page_is_in_it() -> None:
    assert TERMS.read_text() == terms_script(), "run make generated"
    rows = re.findall(r'"word": "([^"]+)", "meaning": "((?:[^"\\]|\\.)+)"', TERMS.read_text())
    assert len(rows) > 40
    assert not [meaning for _, meaning in rows if re.search(r"[`*\]]|\.md", meaning)], "no markup in texts"
    words = {part for word, _ in rows for part in (word, *word.split(", "))}
    used = {word for path in SCRIPTS for word in re.findall(r'\bterm\("([^"]+)"', path.read_text())}
    assert len(used) > 8
    assert used <= words, f"not in {DOCS / 'glossary.md'}"


def test_the_chart_library_is_the_published_one_with_its_licence() -> None:
    folder = PAGE / "vendor" / "uplot"
    # The files of uPlot 1.6.32 as npm has them, unchanged.
    digest = hashlib.sha256((folder / "uPlot.esm.js").read_bytes()).hexdigest()
    assert digest == "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba"
    assert "(v1.6.32)" in (folder / "uPlot.esm.js").read_text()[:400]
    assert "The MIT License" in (folder / "LICENSE").read_text()


def colours(selector: str) -> dict[str, str]:
    block = STYLE.split(selector + " {", 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2: from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("selector", [":root", ':root[data-theme="dark"]'])
@pytest.mark.parametrize("text", ["ink", "muted", "accent", "ok", "warn", "bad"])
def test_text_can_be_read_on_its_background(selector: str, text: str) -> None:
    theme = colours(selector)
    for background in ("bg", "card"):
        assert contrast(theme[text], theme[background]) >= 4.5, f"{text} on {background}"


def test_dark_by_choice_is_dark_by_system() -> None:
    assert colours(':root[data-theme="dark"]') == colours(':root:not([data-theme="light"])')


def test_lines_can_be_told_from_their_background_and_are_colours_of_okabe_and_ito() -> None:
    text = (PAGE / "palette.js").read_text()
    light, dark = (re.findall(r"#[0-9a-f]{6}", line) for line in re.findall(r"= \[(\"#.*)\];", text))
    for palette, background in ((light, "#ffffff"), (dark, colours(':root[data-theme="dark"]')["card"])):
        assert len(palette) == len(set(palette)) == 8
        for colour in palette:
            assert contrast(colour, background) >= 2.2, colour
    okabe_ito = {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}
    assert len(okabe_ito & set(light)) >= 6
