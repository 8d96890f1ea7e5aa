"""`thaw estimates` on a terminal and as data."""

import io
import json
from collections.abc import Iterator, Sequence

import click
import msgspec
import pytest
import tomli_w
from rich.console import Console

from producers.survey.survey import Survey, parse_survey
from streams.cli.estimates import Found, _looks, _watch_data
from streams.cli.terminal.estimates import (
    ASCII,
    BAR_CELLS,
    UNICODE,
    VALUES_SHOWN,
    band_bar,
    clean,
    sparkline,
    survey_view,
)
from streams.cli.terminal.views import with_view
from streams.store.contract import StoreUnavailableError
from streams.windows.likelihood import Likelihood, Likelihoods
from streams.windows.record import (
    AlertBound,
    DerivedEstimate,
    EstimateRecord,
    ShareView,
    UnexplainedShare,
    ValueEstimate,
)
from tests.support.clock import ManualClock
from tests.support.examples import EXAMPLES, survey_file
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey, survey_text

MINUTE_MS = 60_000


def record(known: Survey, age: int, shares: Sequence[float | None], **changes: object) -> EstimateRecord:
    rows = [
        ValueEstimate(
            label, share, 0.01, None if share is None else share - 0.1, None if share is None else share + 0.1
        )
        for label, share in zip(known.mechanism.labels, shares, strict=True)
    ]
    start = WEEK - age * MINUTE_MS
    made = EstimateRecord(
        1, known.id, start, start + MINUTE_MS, start, start + 5, 60, [30, 20, 10], [0.5, 1.0, 2.0], "pooled", "fleet",
        0.05, None, [], rows,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def shown(
    known: Survey, records: Sequence[EstimateRecord], *, encoding: str = "utf-8", now_ms: int = WEEK + 10 * MINUTE_MS
) -> str:
    output = io.StringIO()
    signs = ASCII if encoding == "ascii" else None
    view = survey_view(known, records, now_ms, now_ms, signs or UNICODE)
    Console(file=output, width=200).print(view)
    return output.getvalue()


def test_the_newest_window_is_told_in_full_and_the_others_as_a_line() -> None:
    known = survey()
    text = shown(known, [record(known, 0, [0.6, 0.3, None]), record(known, 1, [0.3, 0.3, 0.1])])
    assert "Which colour do you like most?" in text
    assert "60 users (30 / 20 / 10 by rung), pooled" in text
    [red] = [line for line in text.splitlines() if line.strip().startswith("red")]
    assert "60.00%" in red
    assert "50.00% to 70.00%" in red
    assert red.rstrip().endswith("▄▇"), "oldest first, on one scale"
    [blue] = [line for line in text.splitlines() if line.strip().startswith("blue")]
    assert "-  " in blue
    assert " to " not in blue
    assert text.index("red") < text.index("green") < text.index("blue"), "the most frequent first, unknown ones last"


def test_the_noise_of_an_open_window_is_not_shown() -> None:
    known = survey()
    records = [
        record(known, 0, [0.99, -0.4, 0.3]),
        record(known, 1, [0.88, 0.1, 0.1]),
        record(known, 2, [0.2, 0.5, 0.3]),
    ]
    # The newest window is open for 50 s; the one before settles 32 s after its end, 22 s from now.
    text = shown(known, records, now_ms=WEEK + 10_000)
    assert "newest settled window, from" in text
    assert "99.00%" not in text
    assert "88.00%" not in text
    assert text.index("green") < text.index("blue") < text.index("red"), "ordered by the settled window"
    assert "60 users so far, open for another 50 s" in text
    assert "60 users so far, not all rungs released yet, settles in 22 s" in text


def test_before_a_window_has_settled_it_says_when() -> None:
    known = survey()
    text = shown(known, [record(known, 0, [0.99, -0.4, 0.3])], now_ms=WEEK + 10_000)
    assert "no settled window yet: the first settles in 82 s" in text
    assert "99.00%" not in text


def test_a_view_stands_beside_the_estimates_and_says_what_it_is() -> None:
    known = survey()
    view = ShareView("simplex", [0.65, 0.35, 0.0], None, 0.02, 0.1)
    output = io.StringIO()
    drawn = survey_view(
        known,
        [record(known, 0, [0.6, 0.3, -0.1], views=[view])],
        WEEK + 10 * MINUTE_MS,
        WEEK + 10 * MINUTE_MS,
        view="simplex",
    )
    Console(file=output, width=200).print(drawn)
    text = output.getvalue()
    assert "view: simplex" in text
    [blue] = [line for line in text.splitlines() if line.strip().startswith("blue")]
    assert "-10.00%" in blue
    assert " 0.00%" in blue
    assert "A view, not the estimate: it is biased and has no band." in text
    assert "2.0 points away in total variation, the unbiased estimate 10.0" in text
    assert "view" not in shown(known, [record(known, 0, [0.6, 0.3, -0.1], views=[view])])


def test_a_survey_without_such_a_view_is_refused_in_a_sentence_and_a_likelihood_is_waited_for() -> None:
    clock = ManualClock(WEEK)
    likelihoods = Likelihoods(MemoryStore(clock).states)
    mean = parse_survey(tomli_w.dumps(survey_file(next(one for one in EXAMPLES if one.name == "mean"))), "mean.toml")
    with pytest.raises(click.ClickException, match="has no view simplex: a device may have none or several"):
        with_view([(mean, [])], "simplex", likelihoods, named=True, whole=False)
    assert with_view([(mean, [])], "simplex", likelihoods, named=False, whole=False) == [(mean, [])]
    sue = parse_survey(survey_text().replace('name = "grr"', 'name = "sue"'), "test.toml")
    found = record(sue, 0, [0.6, 0.3, 0.1])
    likelihoods.ask(sue, WEEK, found.users, WEEK)
    assert likelihoods.take(sue, WEEK, "one", WEEK)
    likelihoods.tell(sue, WEEK, Likelihood("done", WEEK, "one", 1.0, found.users, [0.7, 0.3, 0.0]))
    [(_, [seen])] = with_view([(sue, [found])], "likelihood", likelihoods, named=True, whole=True)
    assert seen.views == [ShareView("likelihood", [0.7, 0.3, 0.0])]


def test_a_contradicted_assumption_is_told() -> None:
    known = survey()
    changes = {"assumption": "independent", "contradicted": True, "homogeneity_p": 0.0000123}
    text = shown(known, [record(known, 0, [0.6, 0.3, 0.1], **changes)])
    assert "pooled, rungs = independent" in text
    assert 'the rungs contradict rungs = "independent" (p = 1.2e-05)' in text


def test_a_band_never_reads_as_if_it_had_no_width() -> None:
    known = survey()
    rows = [
        ValueEstimate("red", 0.21, 1e-9, 0.21, 0.2100003),
        ValueEstimate("green", 0.0, 0.0, 0.0, 0.0),
        ValueEstimate("blue", 0.0, 1e-9, -0.00001, 0.00001),
    ]
    text = shown(known, [record(known, 0, [None] * 3, values=rows)])
    assert "21.00000% to 21.00003%" in text
    assert "0.00% to 0.00%" not in text
    assert "-0.001% to 0.001%" in text


def test_rules_are_told_beside_their_values() -> None:
    known = parse_survey(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.4')
    alerts = [AlertBound("red", "above", 0.4, 0.01, 0.45), AlertBound("green", "below", 0.1, 0.01, 0.3)]
    text = shown(known, [record(known, 0, [0.6, 0.3, 0.1], alerts=alerts)])
    assert "FIRING: lower bound 45.00% > 40%" in text
    assert "quiet: upper bound 30.00%, fires < 10%" in text


def test_a_survey_without_estimates_says_so() -> None:
    assert "no estimates yet" in shown(survey(), [])


def test_values_cannot_steer_the_terminal_or_break_the_table() -> None:
    known = parse_survey(survey_text(values='values = ["[/bold][red]x", "\\u001b[2Jgone", "line\\nbreak"]'))
    text = shown(known, [record(known, 0, [0.5, 0.3, 0.2])])
    assert "[/bold][red]x" in text
    assert "\x1b" not in text
    assert "�[2Jgone" in text
    assert "line�break" in text
    assert clean("plain ü 😀") == "plain ü 😀"


def test_many_values_are_cut_and_said_to_be() -> None:
    names = json.dumps([f"v{i}" for i in range(VALUES_SHOWN + 5)])
    known = parse_survey(survey_text(values=f"values = {names}"))
    shares = [1 / (i + 1) for i in range(VALUES_SHOWN + 5)]
    together = sum(shares[VALUES_SHOWN:])
    assert f"5 more values, together {together:.2%} (no band); --json" in shown(known, [record(known, 0, shares)])
    unknown = record(known, 0, [*shares[:-1], None])
    assert "5 more values; --json" in shown(known, [unknown]), "a value without an estimate is in no sum"


def test_a_terminal_without_unicode_gets_letters() -> None:
    known = survey()
    text = shown(known, [record(known, 0, [0.6, 0.3, 0.1])], encoding="ascii")
    assert text.isascii()


def test_bars_and_lines_stay_within_their_cells() -> None:
    wild = ValueEstimate("x", -0.5, 0.1, -2.0, 3.0)
    bar = band_bar(wild, 0.0, 1.0)
    assert len(bar) == BAR_CELLS
    assert bar[0] == "●"
    assert band_bar(ValueEstimate("x", None, None, None, None), 0.0, 1.0).strip() == ""
    assert sparkline([1.0], 1.0, 1.0) == "·"
    assert sparkline([], 0.0, 1.0) == ""


def test_watching_as_data_prints_every_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    known = survey()
    old, new = record(known, 1, [0.3, 0.3, 0.4]), record(known, 0, [0.6, 0.3, 0.1])
    changed = msgspec.structs.replace(new, computed_ms=new.computed_ms + 1_000)
    looks: list[tuple[Found, str]] = [
        ([(known, [old])], ""),
        ([(known, [new, old])], ""),
        ([(known, [new, old])], "Redis is away"),
        ([(known, [new, old])], "Redis is away"),
        ([(known, [changed, old])], ""),
    ]
    _watch_data(looks, "records")
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["window_start_ms"], line["computed_ms"]) for line in lines] == [
        (found.window_start_ms, found.computed_ms) for found in (old, new, changed)
    ]
    assert err == "Redis is away\n", "said once, on stderr"
    _watch_data(looks, "csv")
    rows = capsys.readouterr().out.splitlines()
    assert sum(row.startswith("survey,") for row in rows) == 1
    assert len(rows) == 1 + 3 * 3
    _watch_data(looks, "json")
    table = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in table] == ["red", "green", "blue"] * 3


def test_watching_goes_on_while_redis_is_away() -> None:
    known = survey()
    answers: Iterator[Found | Exception] = iter([StoreUnavailableError("no route"), [(known, [])]])

    def read() -> Found:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    looks = _looks([], read, 0.001)
    assert next(looks) == ([], "")
    assert next(looks) == ([], "Redis does not answer: no route")
    assert next(looks) == ([(known, [])], "")


def example(name: str) -> Survey:
    [found] = [example for example in EXAMPLES if example.name == name]
    return parse_survey(tomli_w.dumps(survey_file(found)))


def test_a_mean_is_told_in_its_unit_and_not_as_a_share() -> None:
    known = example("mean")
    [label] = known.mechanism.labels
    alert = AlertBound(label, "above", 20.0, 0.01, 21.5)
    text = shown(known, [record(known, 0, [21.906], alerts=[alert])], now_ms=WEEK + 10**9)
    assert "21.91" in text
    assert "21.81 to 22.01" in text
    assert "FIRING: lower bound 21.50 > 20" in text
    assert "%" not in text.replace("95% band", "")


def test_shares_and_means_of_keys_have_tables_of_their_own() -> None:
    known = example("lpp")
    values = [0.25 if quantity.kind == "share" else -0.5 for quantity in known.mechanism.quantities]
    lines = shown(known, [record(known, 0, values)], now_ms=WEEK + 10**9).splitlines()
    for key in {quantity.name for quantity in known.mechanism.quantities}:
        [share, mean] = [line for line in lines if line.strip().startswith(f"{key} ")]
        assert "25.00%" in share
        assert "%" not in mean
        assert "-0.6000 to -0.4000" in mean
    heads = ["share with the key", "mean of its value"]
    assert [head for line in lines for head in heads if head in line] == heads
    assert sum("95% band" in line for line in lines) == 2


def test_a_mean_of_a_key_that_too_few_have_is_said_to_be_not_estimable() -> None:
    known = example("lpp")
    values = [0.25 if quantity.kind == "share" else None for quantity in known.mechanism.quantities]
    text = shown(known, [record(known, 0, values)], now_ms=WEEK + 10**9)
    assert text.count("not estimable") == len(values) // 2


def test_totals_and_averages_have_as_many_digits_as_their_bands_deserve() -> None:
    known = example("lpp")
    derived = [
        DerivedEstimate("edges", "total", "pairs", 70_724.31, 4.7e6, 66_480.0, 74_968.0),
        DerivedEstimate("keys", "mean", "keys of a device", 1.4412, 0.002, 1.3531, 1.5293),
        DerivedEstimate("density", "share", "pairs that exist", 0.36031, 0.0001, 0.339, 0.382),
        DerivedEstimate("mean edge weight", "mean", "mean weight", None, None, None, None),
    ]
    text = shown(known, [record(known, 0, [0.1] * len(known.mechanism.labels), derived=derived)], now_ms=WEEK + 10**9)
    assert "pairs: 70,724 (66,480 to 74,968)" in text
    assert "keys of a device: 1.441 (1.353 to 1.529)" in text
    assert "pairs that exist: 36.03% (33.90% to 38.20%)" in text
    assert "mean weight: not estimable" in text


def test_sensitive_values_are_marked_and_so_are_those_that_are_not_hidden() -> None:
    known = example("urr")
    text = shown(known, [record(known, 0, [0.1] * len(known.mechanism.labels))], now_ms=WEEK + 10**9)
    marked = [quantity.sensitive for quantity in known.mechanism.quantities]
    assert (text.count("(sensitive)"), text.count("(not hidden)")) == (sum(marked), len(marked) - sum(marked))
    assert 0 < sum(marked) < len(marked)


def test_copies_are_counted_as_devices() -> None:
    [found] = [example for example in EXAMPLES if example.name == "k_randomization"]
    file = survey_file(found)
    file["mechanism"]["copies"] = 4
    known = parse_survey(tomli_w.dumps(file))
    made = record(known, 0, [0.1] * len(known.mechanism.labels), users=400, users_per_rung=[400])
    assert "100 devices, 400 copies" in shown(known, [made], now_ms=WEEK + 10**9)


def test_strings_have_standard_errors_and_what_no_candidate_explains_is_told() -> None:
    known = example("rappor")
    left = UnexplainedShare(0.125, 0.0004, 0.085, 0.165)
    made = record(known, 0, [0.1] * len(known.mechanism.labels), unexplained=left)
    text = shown(known, [made], now_ms=WEEK + 10**9)
    assert "explained by no candidate: 12.50%, standard error 2.00%, 8.50% to 16.50%" in text
    assert text.count("10.00%") >= 2 * len(known.mechanism.labels), "shares, and standard errors"
