"""Topics on a real broker and on the embedded one, which cannot create any."""

from dataclasses import replace
from pathlib import Path

import pytest

from streams.kafka.errors import KafkaDownError
from streams.kafka.topics import TopicError, Topics, wanted
from streams.local.kafka import EmbeddedKafka
from streams.local.process import free_ports
from streams.settings import Settings
from tests.integration.workers import run_thaw
from tests.support.surveys import survey, survey_text

pytestmark = pytest.mark.real


@pytest.fixture
def settings(kafka: str, topic_prefix: str, tmp_path: Path) -> Settings:
    (tmp_path / "colour.toml").write_text(survey_text())
    return Settings(kafka=kafka, prefix=topic_prefix, surveys=str(tmp_path))


def test_topics_are_created_once_and_verified_afterwards(settings: Settings) -> None:
    dry = run_thaw(settings, "topics", "create", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("missing; to be created") == 3
    assert not Topics(settings).partitions().keys() & {settings.reports_topic}
    made = run_thaw(settings, "topics", "create")
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == [
        f"{settings.reports_topic}: created",
        f"{settings.estimates_topic}: created",
        f"{settings.dead_letters_topic}: created",
    ]
    again = run_thaw(settings, "topics", "create")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("exists as required") == 3
    specs = wanted(settings, [survey()])
    # A worker may be away for a day more than the longest survey counts late reports.
    assert specs[0].settings["retention.ms"] == str(60_000 + 5 * 60_000 + 86_400_000)
    assert specs[0].settings["message.timestamp.type"] == "LogAppendTime"
    Topics(settings).create(specs)


def test_topics_that_differ_are_told_and_left_alone(settings: Settings) -> None:
    run_thaw(settings, "topics", "create")
    differing = run_thaw(settings, "topics", "create", "--partitions", "4")
    assert differing.returncode == 1
    assert f"{settings.reports_topic}: exists, but has 8 partitions instead of 4" in differing.stdout
    assert "some topics differ" in differing.stderr
    assert Topics(settings).partitions()[settings.reports_topic] == 8
    [finding, *_] = Topics(settings).compare(wanted(settings, [survey(retention='retention = "7d"')]))
    assert finding.step == "differs"
    assert finding.differences[0].startswith("retention.ms is ")


def test_a_broker_that_is_away_is_told(settings: Settings) -> None:
    [nobody] = free_ports(1)
    with pytest.raises(KafkaDownError, match=r"no broker answered at .*Connection refused.*; check THAW_KAFKA"):
        Topics(replace(settings, kafka=f"127.0.0.1:{nobody}"), timeout_seconds=1).partitions()


def test_a_broker_that_cannot_create_topics_is_used_as_it_is(tmp_path: Path) -> None:
    names = Settings()
    with EmbeddedKafka(topics={names.reports_topic: 8, names.estimates_topic: 8}, folder=tmp_path) as embedded:
        topics = Topics(Settings(kafka=embedded.address), timeout_seconds=5)
        reports, estimates, letters = topics.compare(wanted(names, [survey()]))
        assert (reports.step, estimates.step, letters.step) == ("unknown", "unknown", "create")
        assert "its settings cannot be read" in reports.sentence()
        with pytest.raises(TopicError, match="cannot create topics on request"):
            topics.create([letters.spec])
