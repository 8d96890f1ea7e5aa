"""Every relative link and picture in the documentation leads to a file that exists, and every anchor to a heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<(?:img|a)\s[^>]*(?:src|href)=\"([^\"]+)\"")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|<img\s[^>]*src=\"([^\"]+)\"")
_ELSEWHERE = re.compile(r"^[a-z]+:")


def links(text: str, pattern: re.Pattern[str] = _LINK) -> list[str]:
    """Return the targets of all links outside of code blocks."""
    return [found[1] or found[2] for found in pattern.finditer(_FENCE.sub("", text))]


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page, numbered where a heading stands more than once."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        name = slug(heading)
        number = seen.get(name, 0)
        seen[name] = number + 1
        found.add(f"{name}-{number}" if number else name)
    return frozenset(found)


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    wrong = []
    for link in links(page.read_text(encoding="utf-8")):
        if _ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Two `words`, here\n")
    page = tmp_path / "a.md"
    page.write_text("[b](b.md) [h](b.md#two-words-here) [x](b.md#other) [y](c.md) ![z](z.png)\n```\n[no](no.md)\n```\n")
    assert broken(page) == ["b.md#other", "c.md", "z.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_the_index_reaches_every_page() -> None:
    """Decisions and runbooks are reached through their folders, all other pages by their own link."""
    docs = ROOT / "docs"
    linked = {(docs / link.partition("#")[0]).resolve() for link in links((docs / "index.md").read_text())}
    missing = [page.name for page in docs.glob("*.md") if page.resolve() not in linked and page.name != "index.md"]
    assert missing == []


def test_the_path_of_a_report_has_a_module_at_every_step() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().split("## The path of one report")[1]
    steps = re.split(r"^(?=\d+\. )", text, flags=re.MULTILINE)[1:]
    assert len(steps) == 12
    for step in steps:
        assert any(link.endswith((".py", ".lua")) for link in links(step)), step


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_picture_stands_twice_on_a_page(page: Path) -> None:
    pictures = links(page.read_text(encoding="utf-8"), _IMAGE)
    assert len(pictures) == len(set(pictures))


def test_no_picture_is_left_over() -> None:
    shown = {(page.parent / picture).resolve() for page in PAGES for picture in links(page.read_text(), _IMAGE)}
    pictures = [path for path in (ROOT / "docs" / "images").rglob("*") if path.is_file()]
    assert [path.name for path in pictures if path.resolve() not in shown] == []
