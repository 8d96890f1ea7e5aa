"""What a survey may ask beyond the twenty mechanisms as they are, end to end on real services.

Second moments, attributes, cells of a map, sensitive sets that shrink, noisy samples, and candidates that change while
the survey runs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from estimators.intervals.one_look import two_sided_z
from producers.survey.survey import Survey, load_survey
from streams.local.demo_report import audit_window, window_entry
from streams.windows.record import EstimateRecord, decode_estimate
from tests.integration.fleets import worker_with_fleet
from tests.support.deadline import until
from tests.support.stats import assert_normal

pytestmark = pytest.mark.real

DEVICES = 8_000
LISTED = {"kind": "listed", "ladder": [1.0, 2.0, 3.0], "opens": ["0s", "1s", "2s"], "jitter": "1s"}
SAMPLES = {
    "kind": "noisy_sampling",
    "epsilon_permanent": 3.0,
    "epsilon_sample": 1.0,
    "rounds": 2,
    "every": "1s",
    "relax": False,
    "then": [4.0],
    "jitter": "1s",
}
GRID = {"south": 44.0, "north": 45.0, "west": -94.0, "east": -93.0, "rows": 3, "columns": 3, "outside": "elsewhere"}
PEOPLE = {"sex": ["female", "male"], "age": ["young", "middle", "old"], "town": ["yes", "no"]}
FORMS: dict[str, dict[str, Any]] = {
    "numbers": {"values": ["hours"], "mechanism": {"name": "mean", "low": 0.0, "high": 60.0, "moments": 2}},
    "people": {"values": {"attributes": PEOPLE}, "mechanism": {"name": "grr"}},
    "places": {"values": {"grid": GRID}, "mechanism": {"name": "oue"}},
    "fading": {
        "values": ["home", "bar", "clinic", "court"],
        "mechanism": {"name": "urr", "sensitive": [["bar", "clinic", "court"], ["clinic", "court"], ["court"]]},
    },
    "samples": {"values": ["no", "yes"], "mechanism": {"name": "warner"}, "release": SAMPLES},
    "tagged": {
        "values": ["home", "bar", "clinic", "court"],
        "mechanism": {"name": "pum", "sensitive": ["clinic"], "tags": ["mine"], "base": "urap"},
    },
    "strings": {
        "values": {"candidates": "strings.txt"},
        "mechanism": {"name": "rappor", "bits": 32, "cohorts": 4},
        "release": LISTED | {"ladder": [2.0, 4.0, 8.0]},
    },
}
STRINGS = ["blank", "news", "mail", "shop", "bank"]


def write_forms(folder: Path) -> None:
    for name, form in FORMS.items():
        content = {
            "name": name,
            "question": "Does this work from end to end?",
            "shards": 16,
            "release": LISTED,
            "window": {"size": "10s", "retention": "1d"},
            "budget": {"lifetime": 1e6},
        }
        (folder / f"{name}.toml").write_text(tomli_w.dumps(content | form))
    (folder / "strings.txt").write_text("\n".join(STRINGS))


def test_every_form_of_a_survey_works_from_fleet_to_estimate_and_candidates_change_under_it(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    write_forms(tmp_path)
    arguments = ["--devices", str(DEVICES), "--scenario", "stoppers", "--seed", "5", "--windows", "1"]
    with worker_with_fleet(kafka, redis_url, topic_prefix, tmp_path, arguments) as (store, surveys, journals):

        def stored(survey: Survey, window_ms: int) -> EstimateRecord:
            payload = store.estimates.read(survey.id, window_ms)
            assert payload is not None, survey.id
            return decode_estimate(payload)

        by_id = {survey.id: survey for survey in surveys}
        assert sorted(by_id[journal.survey_id].name for journal in journals) == sorted(FORMS)
        for journal in journals:
            survey, truth = by_id[journal.survey_id], journal.truth()
            audit = audit_window(store, survey, journal)
            assert (audit.lost, audit.double) == (0, 0), survey.id
            record = stored(survey, journal.window_ms)
            assert record.users == DEVICES
            check_values(survey, record, truth)
            check_derived(survey, record, truth)

        [strings] = [survey for survey in surveys if survey.name == "strings"]
        [journal] = [journal for journal in journals if journal.survey_id == strings.id]
        shares = dict(zip(STRINGS, journal.truth(), strict=True))
        (tmp_path / "strings.txt").write_text("mail\nblank\nnobody has this\n")
        changed = load_survey(tmp_path / "strings.toml")
        assert changed.id == strings.id
        until(
            lambda: [row.value for row in stored(strings, journal.window_ms).values] == list(changed.mechanism.labels),
            60,
            "the window decoded with the candidates of today",
        )
        record = stored(strings, journal.window_ms)
        assert record.users == DEVICES
        check_values(changed, record, [shares.get(label, 0.0) for label in changed.mechanism.labels])
        # Each device has one string, and some a string that was never listed.
        left = 1.0 - sum(shares.get(label) or 0.0 for label in changed.mechanism.labels)
        assert record.unexplained is not None
        assert_normal(record.unexplained.estimate, left, math.sqrt(record.unexplained.variance))


def check_values(survey: Survey, record: EstimateRecord, truth: list[float | None]) -> None:
    for row in window_entry(record, truth)["estimates"]:
        assert row["estimate"] is not None, (survey.id, row)
        assert_normal(row["estimate"], row["truth"], math.sqrt(row["variance"]) + 1e-9)


def check_derived(survey: Survey, record: EstimateRecord, truth: list[float | None]) -> None:
    """Sums over attributes and the spread of a number are near what the values of all devices say."""
    known = [share or 0.0 for share in truth]
    expected: dict[str, float] = {}
    if survey.attributes is not None:
        expected = {one.name: sum(known[cell] for cell in one.cells) for one in survey.attributes.sums()}
        assert len(expected) == 2 + 3 + 2 + 2 * 3 + 2 * 2 + 3 * 2
    elif survey.name == "numbers":
        mean, square = known
        expected = {"variance": square - mean**2, "standard deviation": math.sqrt(square - mean**2)}
    assert [one.name for one in record.derived] == list(expected)
    for one in record.derived:
        assert one.estimate is not None
        assert one.lower is not None
        assert one.upper is not None
        assert_normal(one.estimate, expected[one.name], (one.upper - one.lower) / 2 / two_sided_z(record.alpha))
