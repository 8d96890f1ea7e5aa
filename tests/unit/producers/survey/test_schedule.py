"""Release schedules: levels and opening times from the release table."""

from __future__ import annotations

import pytest

from producers.survey.survey import SurveyError, parse_survey
from tests.support.surveys import survey_text


def release(text: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    asked = parse_survey(
        survey_text(kind=text, ladder="", opens="", retention='retention = "9d"', lifetime="lifetime = 99")
    )
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


def test_noisy_sampling_follows_the_curve() -> None:
    # Pan, experiment 1: epsilon 1 permanent, 0.5 per sample, ten rounds.
    ladder, opens_ms = release(
        'kind = "noisy_sampling"\nepsilon_permanent = 1\nepsilon_sample = 0.5\nrounds = 10\nevery = "1h"'
    )
    printed = [0.227336294, 0.433780830, 0.604812750, 0.735325664, 0.828337140]
    printed += [0.891221917, 0.932158011, 0.958127997, 0.974328025, 0.984325757]
    assert ladder == pytest.approx(printed, abs=5e-10)
    assert opens_ms[-1] == 9 * 3_600_000


def test_one_listed_level_needs_no_opening_time() -> None:
    assert release('kind = "listed"\nladder = [1.5]') == ((1.5,), (0,))


def test_the_second_rung_may_open_at_the_windows_end() -> None:
    assert release('kind = "listed"\nladder = [1, 2]\nopens = ["0s", "0s"]') == ((1.0, 2.0), (0, 0))


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ('kind = "linear"\nfrom = 1\nto = 2\nsteps = 0\nevery = "1m"', "steps", "1 to 255 rungs"),
        ('kind = "linear"\nfrom = 1\nto = 2\nsteps = 256\nevery = "1m"', "steps", "1 to 255 rungs"),
        ('kind = "linear"\nfrom = 1\nto = 2\nsteps = 1\nevery = "1m"', "steps", "needs two rungs; for one, use kind"),
        ('kind = "linear"\nfrom = 2\nto = 1\nsteps = 2\nevery = "1m"', "to", "must be above `from` (2); exchange"),
        ('kind = "linear"\nfrom = 0\nto = 1\nsteps = 2\nevery = "1m"', "from", "epsilon must be in (0, 20]"),
        ('kind = "linear"\nfrom = 1\nto = 30\nsteps = 2\nevery = "1m"', "to", "epsilon must be in (0, 20]"),
        (
            'kind = "linear"\nfrom = 1\nto = 2\nsteps = 2\nevery = "0s"',
            "every",
            "rungs that open together are one rung",
        ),
        ('kind = "linear"\nfrom = 1\nto = 2\nsteps = 2\nevery = "x"', "every", "whole numbers with units"),
        ('kind = "linear"\nto = 2\nsteps = 2\nevery = "1m"', "from", "is missing; add it (lowest level"),
        ('kind = "linear"\nfrom = 1\nto = 2\nsteps = 2\nevery = "1m"\nratio = 2', "ratio", "known: from, to, steps"),
        ('kind = "geometric"\nfrom = 1\nsteps = 2\nevery = "1m"', "to", "give either `to` or `ratio`"),
        (
            'kind = "geometric"\nfrom = 1\nto = 2\nratio = 2\nsteps = 2\nevery = "1m"',
            "to",
            "give either `to` or `ratio`",
        ),
        ('kind = "geometric"\nfrom = 1\nratio = 1\nsteps = 2\nevery = "1m"', "ratio", "must be above 1"),
        ('kind = "geometric"\nfrom = 1\nratio = 10\nsteps = 3\nevery = "1m"', "ratio", "would be 100, above 20; use"),
        ('kind = "geometric"\nfrom = 1\nto = 2\nsteps = 1\nevery = "1m"', "steps", "needs two rungs"),
        ('kind = "geometric"\nfrom = 2\nto = 1\nsteps = 2\nevery = "1m"', "to", "must be above `from` (2)"),
        (
            'kind = "noisy_sampling"\nepsilon_permanent = 0\nepsilon_sample = 1\nrounds = 2\nevery = "1m"',
            "epsilon_permanent",
            "epsilon must be in (0, 20]",
        ),
        (
            'kind = "noisy_sampling"\nepsilon_permanent = 1\nepsilon_sample = 1\nrounds = 0\nevery = "1m"',
            "rounds",
            "1 to 255 rungs",
        ),
    ],
)
def test_nonsense_is_refused(text: str, field: str, remedy: str) -> None:
    with pytest.raises(SurveyError) as refused:
        release(text)
    assert refused.value.field == f"release.{field}"
    assert remedy in refused.value.remedy


def test_a_curve_that_no_longer_rises_is_refused() -> None:
    """After many samples the curve is flat to the last digit; two equal rungs would be one."""
    with pytest.raises(SurveyError, match=r"release\.rounds.*no longer rises"):
        release('kind = "noisy_sampling"\nepsilon_permanent = 1\nepsilon_sample = 20\nrounds = 9\nevery = "1m"')
