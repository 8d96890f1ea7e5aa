"""Alert rules and limits in survey files: what they mean, and how nonsense is refused."""

import pytest

from producers.survey.alerts import MAX_RULES, AlertRule, Limits
from producers.survey.survey import SurveyError, parse_survey
from tests.support.surveys import survey, survey_text

ALERTS = """
[[alert]]
value = "red"
above = 0.5

[[alert]]
value = "blue"
below = 0.1
alpha = 0.02

[limits]
band = 0.2
stale = "5m"
budget = 0.9
flood = 40
canary = 5
"""


def test_rules_share_the_false_alarm_rate() -> None:
    found = parse_survey(survey_text() + ALERTS)
    assert found.alerts == (AlertRule("red", "above", 0.5, 0.005), AlertRule("blue", "below", 0.1, 0.01))
    assert found.limits == Limits(0.2, 300_000, 0.9, 40, 5)


def test_alerts_and_limits_are_no_part_of_the_id() -> None:
    assert parse_survey(survey_text() + ALERTS).id == survey().id
    assert survey().alerts == ()
    assert survey().limits == Limits()


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ('[[alert]]\nvalue = "pink"\nabove = 0.5', "alert[0].value", "must be one of what is estimated (red, green"),
        ('[[alert]]\nvalue = "red"', "alert[0]", "give one threshold"),
        ('[[alert]]\nvalue = "red"\nabove = 0.5\nbelow = 0.1', "alert[0]", "write two tables"),
        ('[[alert]]\nvalue = "red"\nabove = inf', "alert[0].above", "finite"),
        ('[[alert]]\nvalue = "red"\nabove = 0.5\nalpha = 0', "alert[0].alpha", "between 0 and 0.5"),
        ('[[alert]]\nvalue = "red"\nabove = 0.5\n' * 2, "alert[1].above", "has such a rule already"),
        ('[[alert]]\nvalue = "red"\nabove = 0.5\n' * (MAX_RULES + 1), "alert", "at most 100 rules"),
        ('[[alert]]\nvalue = "red"\nover = 0.5', "alert[0].over", "unknown field"),
        ("[[alert]]\nabove = 0.5", "alert[0].value", "is missing"),
        ("[limits]\nband = 0", "limits.band", "above 0"),
        ("[limits]\nflood = nan", "limits.flood", "finite"),
        ("[limits]\nbudget = 1.5", "limits.budget", "part of the lifetime budget"),
        ('[limits]\nstale = "soon"', "limits.stale", "duration"),
        ('[limits]\nstale = "5ms"', "limits.stale", "at least 1s"),
        ("[limits]\nbands = 1", "limits.bands", "did you mean band"),
    ],
)
def test_nonsense_is_refused_with_field_and_remedy(text: str, field: str, remedy: str) -> None:
    with pytest.raises(SurveyError) as caught:
        parse_survey(survey_text() + "\n" + text)
    assert caught.value.field == field
    assert remedy in str(caught.value)
