"""Release schedules: levels and opening times from the release table."""

from __future__ import annotations

import pytest

from producers.survey.survey import SurveyError, parse_survey
from tests.support.surveys import survey_text


def release(
    text: str, mechanism: str = 'name = "grr"', values: str = 'values = ["red", "green", "blue"]'
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    file = survey_text(
        kind=text, ladder="", opens="", retention='retention = "9d"', lifetime="lifetime = 99", values=values
    )
    asked = parse_survey(file.replace('name = "grr"', mechanism))
    return asked.mechanism.ladder, asked.opens_ms


def test_linear() -> None:
    ladder, opens_ms = release('kind = "linear"\nfrom = 0.5\nto = 2.5\nsteps = 5\nevery = "1m"')
    assert ladder == (0.5, 1.0, 1.5, 2.0, 2.5)
    assert opens_ms == (0, 60_000, 120_000, 180_000, 240_000)


def test_the_ends_of_a_ladder_are_exactly_as_written() -> None:
    for kind in ("linear", "geometric"):
        ladder, _ = release(f'kind = "{kind}"\nfrom = 0.1\nto = 0.7\nsteps = 7\nevery = "1m"')
        assert (ladder[0], ladder[-1]) == (0.1, 0.7)
        assert list(ladder) == sorted(set(ladder))


def test_geometric_to() -> None:
    ladder, _ = release('kind = "geometric"\nfrom = 0.5\nto = 4\nsteps = 4\nevery = "1m"')
    assert ladder == pytest.approx((0.5, 1.0, 2.0, 4.0))


def test_geometric_ratio() -> None:
    ladder, _ = release('kind = "geometric"\nfrom = 0.5\nratio = 2\nsteps = 4\nevery = "1m"')
    assert ladder == (0.5, 1.0, 2.0, 4.0)


YES_OR_NO = 'values = ["no", "yes"]'


def test_noisy_sampling_follows_the_curve() -> None:
    # Pan, experiment 1: epsilon 1 permanent, 0.5 per sample, ten rounds, of a yes or no.
    ladder, opens_ms = release(
        'kind = "noisy_sampling"\nepsilon_permanent = 1\nepsilon_sample = 0.5\nrounds = 10\nevery = "1h"',
        mechanism='name = "warner"',
        values=YES_OR_NO,
    )
    printed = [0.227336294, 0.433780830, 0.604812750, 0.735325664, 0.828337140]
    printed += [0.891221917, 0.932158011, 0.958127997, 0.974328025, 0.984325757]
    assert ladder == pytest.approx(printed, abs=5e-10)
    assert opens_ms[-1] == 9 * 3_600_000


def test_noisy_sampling_depends_on_the_mechanism() -> None:
    """The levels are those of a whole answer, here of a string with two hashes, not of one of its bits."""
    ladder, _ = release(
        'kind = "noisy_sampling"\nepsilon_permanent = 4\nepsilon_sample = 2\nrounds = 3\nevery = "1h"',
        mechanism='name = "rappor"\nhashes = 2',
    )
    assert ladder == pytest.approx((0.909345, 1.735123, 2.419251), abs=1e-6)


def test_a_mechanism_without_samples_is_refused() -> None:
    with pytest.raises(SurveyError, match=r"release\.kind.*no noisy samples"):
        release(table("noisy_sampling", {}), mechanism='name = "improved_christofides"', values=YES_OR_NO)


def test_one_listed_level_needs_no_opening_time() -> None:
    assert release('kind = "listed"\nladder = [1.5]') == ((1.5,), (0,))


def test_the_second_rung_may_open_at_the_windows_end() -> None:
    assert release('kind = "listed"\nladder = [1, 2]\nopens = ["0s", "0s"]') == ((1.0, 2.0), (0, 0))


VALID: dict[str, dict[str, object]] = {
    "linear": {"from": 1, "to": 2, "steps": 2, "every": '"1m"'},
    "geometric": {"from": 1, "to": 2, "steps": 2, "every": '"1m"'},
    "noisy_sampling": {"epsilon_permanent": 1, "epsilon_sample": 1, "rounds": 2, "every": '"1m"'},
}
ABSENT = None


@pytest.mark.parametrize("kind", VALID)
def test_the_tables_that_nonsense_is_made_from_are_valid(kind: str) -> None:
    assert len(release(table(kind, {}))[0]) == 2


@pytest.mark.parametrize(
    ("kind", "changes", "field", "remedy"),
    [
        ("linear", {"steps": 0}, "steps", "1 to 255 rungs"),
        ("linear", {"steps": 256}, "steps", "1 to 255 rungs"),
        ("linear", {"steps": 1}, "steps", "needs two rungs; for one, use kind"),
        ("linear", {"from": 2, "to": 1}, "to", "must be above `from` (2); exchange"),
        ("linear", {"from": 0}, "from", "epsilon must be in (0, 20]"),
        ("linear", {"to": 30}, "to", "epsilon must be in (0, 20]"),
        ("linear", {"every": '"0s"'}, "every", "rungs that open together are one rung"),
        ("linear", {"every": '"x"'}, "every", "whole numbers with units"),
        ("linear", {"from": ABSENT}, "from", "is missing; add it (lowest level"),
        ("linear", {"ratio": 2}, "ratio", "known: from, to, steps"),
        ("geometric", {"to": ABSENT}, "to", "give either `to` or `ratio`"),
        ("geometric", {"ratio": 2}, "to", "give either `to` or `ratio`"),
        ("geometric", {"to": ABSENT, "ratio": 1}, "ratio", "must be above 1"),
        ("geometric", {"to": ABSENT, "ratio": 10, "steps": 3}, "ratio", "would be 100, above 20; use"),
        ("geometric", {"steps": 1}, "steps", "needs two rungs"),
        ("geometric", {"from": 2, "to": 1}, "to", "must be above `from` (2)"),
        ("noisy_sampling", {"epsilon_permanent": 0}, "epsilon_permanent", "epsilon must be in (0, 20]"),
        ("noisy_sampling", {"rounds": 0}, "rounds", "1 to 255 rungs"),
    ],
)
def test_nonsense_is_refused(kind: str, changes: dict[str, object], field: str, remedy: str) -> None:
    with pytest.raises(SurveyError) as refused:
        release(table(kind, changes))
    assert refused.value.field == f"release.{field}"
    assert remedy in refused.value.remedy


def table(kind: str, changes: dict[str, object]) -> str:
    """Return a valid release table with some fields changed, added or left out."""
    fields = {**VALID[kind], **changes}
    lines = [f"{name} = {value}" for name, value in fields.items() if value is not ABSENT]
    return "\n".join([f'kind = "{kind}"', *lines])


def test_a_curve_that_no_longer_rises_is_refused() -> None:
    """After many samples the curve is flat to the last digit; two equal rungs would be one."""
    with pytest.raises(SurveyError, match=r"release\.rounds.*no longer rises"):
        release('kind = "noisy_sampling"\nepsilon_permanent = 1\nepsilon_sample = 20\nrounds = 9\nevery = "1m"')
