"""Pictures: the same charts give the same text, and every colour has its partner for dark pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from estimators.reproduction.charts import Band, Bars, Chart, Curve, Level
from streams.reproduction.pictures import CARD, DARK, DARK_CARD, INK, LIGHT, QUIET, draw

CHARTS = [
    Chart(
        "Title",
        "x",
        "y",
        [
            Band("band", [1, 2, 3], [0.5, 1, 1], [2, 3, 4]),
            Curve("line", [1, 2, 3], [1, 2, 3]),
            Curve("points", [1, 2, 3], [1, 2, 2], style="points", error=[0.1, 0.1, 0.1]),
            Curve("printed", [1, 2, 3], [1, 2, 2], style="published"),
            Level("level", 2.0),
        ],
        y_log=True,
    ),
    Chart("Bars", "kind", "y", [Bars(["a", "b"], {"one": [1, 2], "two": [2, 3]}, {"two": [0.1, 0.2]})]),
]


def test_the_same_charts_give_the_same_text() -> None:
    assert draw(CHARTS) == draw(CHARTS)


def test_text_stays_text_and_every_mark_is_named() -> None:
    texts = [text.text for text in ET.fromstring(draw(CHARTS)).iter("{http://www.w3.org/2000/svg}text")]
    assert {"Title", "Bars", "band", "line", "points", "printed", "level", "one", "two", "a", "b"} <= set(texts)


def test_every_colour_has_a_dark_partner() -> None:
    svg = draw(CHARTS)
    _, style, rest = svg.partition("@media (prefers-color-scheme: dark)")
    rules, _, drawing = rest.partition("</style>")
    assert style
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawing))
    assert {CARD, INK, QUIET, LIGHT[0], LIGHT[1]} <= used
    for colour in used - {"#000000"}:
        assert f": {colour}" in rules, f"{colour} stays as it is on a dark page"
    assert DARK[0] in rules
    assert DARK_CARD in rules


def test_axes_have_separators_in_long_numbers_and_whole_numbers_under_shifted_marks() -> None:
    long = Chart("Long", "x", "y", [Curve("line", [1, 1e6], [10, 20])], x_log=True)
    shifted = Chart("Shifted", "x", "y", [Curve("points", [0.9, 2.1, 2.9], [10, 20, 30], style="points")])
    texts = {text.text for text in ET.fromstring(draw([long, shifted])).iter("{http://www.w3.org/2000/svg}text")}
    assert {"100", "10,000", "1,000,000", "1", "2", "3"} <= texts
    assert not {"10000", "1.0", "1.5", "2.5"} & texts
