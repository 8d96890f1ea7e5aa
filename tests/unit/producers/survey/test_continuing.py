"""Surveys that continue others: what must be the same, what is refused and why, and which one judges frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from producers.survey.check import explain
from producers.survey.document import document_of, opened, sealed
from producers.survey.folder import RESCAN_UNKNOWN_MS, SurveyFolder
from producers.survey.survey import Survey, SurveyError, parse_survey
from tests.support.continuing import LONGER, LONGEST, SHORT, text_with_rungs, with_rungs
from tests.support.surveys import INDEPENDENT, WEEK


def test_it_is_counted_as_the_first_one_and_frames_tell_them_apart() -> None:
    assert SHORT.id == SHORT.edition == LONGER.id == LONGEST.id
    assert len({SHORT.edition, LONGER.edition, LONGEST.edition}) == 3
    assert LONGEST.digests == (SHORT.digest, LONGER.digest, LONGEST.digest)
    assert LONGER.digest.hex()[:8] == LONGER.edition[-8:]
    assert [one.decoding_hash for one in LONGEST.earlier] == [SHORT.decoding_hash, LONGER.decoding_hash]
    assert [one.opens_ms for one in LONGEST.earlier] == [SHORT.opens_ms, LONGER.opens_ms]
    alone = with_rungs(3)
    assert alone.digest != LONGER.digest, "where answers are counted is part of the id"
    assert alone.id != LONGER.id


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"ladder": "ladder = [0.5, 1.1, 2.0]"}, "continues", "the ladder of an earlier survey must be the beginning"),
        ({"values": 'values = ["red", "green"]'}, "continues", "the beginnings of this file are colour-"),
        ({"size": 'size = "2m"'}, "continues", r"with \[0.5\], colour-.* with \[0.5, 1.0\]; got 'colour-"),
        ({"lifetime": INDEPENDENT}, "continues", 'write rungs = "any"'),
        ({"size": 'size = "1m"\nstanding = true'}, "continues", "answers of a standing value belong to no window"),
        ({"lifetime": "lifetime = 9\n[tiers]\npublic = 0\nowner = 2"}, "continues", "a new top would add a tier"),
        (
            {"lifetime": "lifetime = 9\n[canary]\ndevices = 9\nseed = 1\nshares = [0.5, 0.25, 0.25]"},
            "continues",
            "simulated devices keep no chains",
        ),
    ],
)
def test_what_does_not_continue_the_old_one_is_refused_with_the_reason(
    changes: dict[str, str], field: str, reason: str
) -> None:
    with pytest.raises(SurveyError, match=reason) as refused:
        with_rungs(3, SHORT.id, **changes)
    assert refused.value.field == field


def test_other_refusals() -> None:
    with pytest.raises(SurveyError, match="the beginnings of this file are none"):
        with_rungs(1, SHORT.id)
    with pytest.raises(SurveyError, match="must be the beginning of this one"):
        with_rungs(2, SHORT.id)
    with pytest.raises(SurveyError, match="must be the beginning of this one"):
        with_rungs(5, LONGER.edition)  # which continues another: that one must be named before it
    with pytest.raises(SurveyError, match="must be the beginning of this one"):
        with_rungs(5, LONGER.edition, SHORT.id)
    withdrawable = "shards = 16\nwithdrawable = true"
    asked = with_rungs(2, shards=withdrawable)
    with pytest.raises(SurveyError, match="the key of a withdrawal is that of the rung above the top"):
        with_rungs(3, shards=f'continues = "{asked.id}"\n{withdrawable}')


def test_a_mechanism_without_a_forward_step_is_refused() -> None:
    sensitive = 'name = "urr"\nsensitive = ["red"]'

    def text(rungs: int, *earlier: str) -> str:
        # "name" begins two lines, so the mechanism is replaced by hand.
        accepted = 'accept_risk = "blue is no secret to anybody"\n'
        return accepted + text_with_rungs(rungs, *earlier).replace('name = "grr"', sensitive)

    short = parse_survey(text(2))
    with pytest.raises(SurveyError, match="its answers cannot be continued; write a new survey"):
        parse_survey(text(3, short.id))


def test_the_newest_judges_frames_of_all_and_stands_for_them_in_lists(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("a.toml", text_with_rungs(2))
    workers, shown = SurveyFolder(tmp_path, 0), SurveyFolder(tmp_path, 0, keep_removed=False)
    for folder in (workers, shown):
        assert [one.edition for one in folder.surveys(0)] == [SHORT.edition]
        assert folder.get(LONGER.digest, 0) is None
    write("b.toml", text_with_rungs(3, SHORT.id))
    now_ms = RESCAN_UNKNOWN_MS
    for folder in (workers, shown):
        for digest in (LONGER.digest, SHORT.digest):
            found = folder.get(digest, now_ms)
            assert found is not None
            assert found.edition == LONGER.edition
        assert [one.edition for one in folder.surveys(now_ms)] == [LONGER.edition]
        assert [path.name for path in folder.files(now_ms)] == ["b.toml"]
    (tmp_path / "b.toml").unlink()
    now_ms += 60_000
    assert [one.edition for one in workers.surveys(now_ms)] == [LONGER.edition], "reports of it may be on the way"
    assert [one.edition for one in shown.surveys(now_ms)] == [SHORT.edition]


def test_a_second_continuation_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.toml").write_text(text_with_rungs(3, SHORT.id), encoding="utf-8")
    other = text_with_rungs(3, SHORT.id).replace("[0.5, 1.0, 2.0]", "[0.5, 1.0, 3.0]")
    (tmp_path / "b.toml").write_text(other, encoding="utf-8")
    folder = SurveyFolder(tmp_path, 0)
    assert [one.edition for one in folder.surveys(0)] == [LONGER.edition]
    reason = f"{LONGER.edition} continues {SHORT.id} with other levels; a chain has one continuation"
    assert reason in str(folder.errors["b.toml"])
    assert reason in caplog.text


def test_a_device_is_served_what_continues_the_survey_it_asks_for() -> None:
    text = text_with_rungs(3, SHORT.id)
    raw = sealed(document_of(LONGER, text, WEEK, WEEK + 1_000), None, None)
    found, document = opened(raw, "here", WEEK)
    assert (found.id, document.id, found.edition) == (SHORT.id, SHORT.id, LONGER.edition)
    forged = sealed(document_of(replace(LONGER, shards=17), text, WEEK, WEEK + 1_000), None, None)
    with pytest.raises(SurveyError, match="the text in it is that of"):
        opened(forged, "here", WEEK)


def test_the_check_explains_it() -> None:
    def said(survey: Survey) -> list[str]:
        return [one for one in explain(survey).sentences if "continues" in one]

    assert not said(SHORT)
    (sentence,) = said(LONGEST)
    assert sentence == (
        f"It continues {SHORT.edition} (2 levels) and {LONGER.edition} (3 levels): chains of these go on above their "
        f"top, and answers to all of them are counted together, as {SHORT.id}."
    )
