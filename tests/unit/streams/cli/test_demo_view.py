"""The demo's view on a terminal: the table shows a settled window, or says when there will be one."""

import io
from collections.abc import Sequence

import msgspec
import pytest
import tomli_w
from rich.console import Console

from producers.survey.survey import parse_survey
from streams.cli.terminal.demo import SurveyView, WindowView, render, window_view
from streams.windows.settled import WindowState
from tests.support.examples import EXAMPLES, survey_file
from tests.support.exporter import record_of
from tests.support.surveys import WEEK, survey

NOW_MS = WEEK + 65_000


def view(share: float, state: WindowState) -> WindowView:
    known = survey()
    return window_view(known, record_of(known, WEEK, [share, 0.2, 0.1]), [0.5, 0.3, 0.2], state, NOW_MS)


def shown(windows: Sequence[WindowView], settles_seconds: float | None = None) -> str:
    output = io.StringIO()
    survey_view = SurveyView("colour-1", "Which?", [0.5, 1.0, 2.0], windows, settles_seconds)
    Console(file=output, width=200).print(render([survey_view], "status"))
    return output.getvalue()


def test_the_table_is_that_of_the_newest_settled_window() -> None:
    text = shown([view(0.987, "open"), view(0.876, "releasing"), view(0.456, "settled"), view(0.345, "settled")])
    assert "45.6%" in text
    assert "35.6% to 55.6%" in text
    assert not any(number in text for number in ("98.7%", "87.6%", "34.5%"))
    assert "settles in 27.0 s" in text
    assert "settled, closed 5 s ago" in text


def test_before_a_window_has_settled_it_says_when() -> None:
    text = shown([view(0.987, "open")], 12.2)
    assert "no settled window yet: the first settles in 12 s" in text
    assert "98.7%" not in text


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("mean", [21.906], ["21.91", "21.81 to 22.01", "truth"]),
        ("lpp", [0.25, -0.5, 0.25, -0.5, 0.25, -0.5], ["25.0%", "15.0% to 35.0%", "-0.5000", "-0.6000 to -0.4000"]),
    ],
)
def test_numbers_have_the_unit_of_their_quantity(name: str, numbers: list[float], expected: list[str]) -> None:
    [found] = [example for example in EXAMPLES if example.name == name]
    known = parse_survey(tomli_w.dumps(survey_file(found)))
    numbers = numbers[: len(known.mechanism.labels)]
    window = window_view(known, record_of(known, WEEK, numbers), numbers, "settled", NOW_MS)
    text = shown([window])
    for part in expected:
        assert part in text
    if name == "mean":
        assert "%" not in text.replace("95 % band", "")
        assert "±0.1" in text


def test_devices_are_counted_and_not_their_copies() -> None:
    [found] = [example for example in EXAMPLES if example.name == "k_randomization"]
    content = survey_file(found)
    content["mechanism"]["copies"] = 4
    known = parse_survey(tomli_w.dumps(content))
    record = record_of(known, WEEK, [0.5] * len(known.mechanism.labels))
    record = msgspec.structs.replace(record, users=400, users_per_rung=[400])
    assert window_view(known, record, [None] * len(record.values), "settled", NOW_MS).users_per_rung == [100]
